//! The table of [`judge`]: facts, time, verdict.

use std::time::Duration;

use super::{Began, Journal, LastSign, LeaseFacts, Liveness, Now, Origin, RunFacts, judge};

const OURS: Origin = Origin::Ours { takes_appends: true };
const FENCED: Origin = Origin::Ours { takes_appends: false };
const NOW: Now =
    Now { awake: Duration::from_secs(500), wall: 10_000.0, holder_began: 9_500.0, grace: Duration::from_secs(30) };

/// A run of ours with events, whose producer is dead.
const DEAD: RunFacts = RunFacts {
    is_session_deleted: false,
    journal: Journal::Unsealed,
    origin: OURS,
    is_held: false,
    is_awaited: true,
    lease: None,
    began: Began::Wall(9_000.0),
};

const HELD: Liveness = Liveness::Live { for_at_most: None };

fn live(seconds: u64) -> Liveness {
    Liveness::Live { for_at_most: Some(Duration::from_secs(seconds)) }
}

fn awake_lease(seconds: f64, last_sign: u64) -> Option<LeaseFacts> {
    Some(LeaseFacts { seconds, last_sign: LastSign::Awake(Duration::from_secs(last_sign)) })
}

fn wall_lease(seconds: f64, last_sign: f64) -> Option<LeaseFacts> {
    Some(LeaseFacts { seconds, last_sign: LastSign::Wall(last_sign) })
}

fn check(rows: &[(&str, RunFacts, Liveness)]) {
    for (rule, facts, verdict) in rows {
        assert_eq!(judge(facts, &NOW), *verdict, "{rule}: {facts:?}");
    }
}

#[test]
fn what_the_journal_and_the_session_say_comes_first() {
    let sealed = RunFacts { journal: Journal::Sealed, ..DEAD };
    let lease = awake_lease(60.0, 490);
    check(&[
        ("a sealed run is over", sealed, Liveness::Sealed),
        ("whatever its lease says", RunFacts { lease, ..sealed }, Liveness::Sealed),
        ("and if a handle holds it", RunFacts { is_held: true, ..sealed }, Liveness::Sealed),
        ("also another program's", RunFacts { origin: Origin::Foreign, ..sealed }, Liveness::Sealed),
        ("a deleted session has no runs", RunFacts { is_session_deleted: true, ..DEAD }, Liveness::Gone),
        ("not even held", RunFacts { is_session_deleted: true, is_held: true, ..DEAD }, Liveness::Gone),
        ("not even sealed", RunFacts { is_session_deleted: true, ..sealed }, Liveness::Gone),
    ]);
}

#[test]
fn a_run_that_this_process_works_on_is_live_however_old_it_is() {
    let held = RunFacts { is_held: true, ..DEAD };
    check(&[
        ("a runner", held, HELD),
        ("before its journal is there", RunFacts { journal: Journal::Missing, ..held }, HELD),
        ("before its first event", RunFacts { journal: Journal::Empty, ..held }, HELD),
        ("one that is taken over", RunFacts { origin: Origin::Foreign, ..held }, HELD),
        ("a request of a producer whose lease has lapsed", RunFacts { lease: awake_lease(1.0, 0), ..held }, HELD),
    ]);
}

#[test]
fn a_lease_counts_awake_time_from_the_last_sign_of_life() {
    let leased = |lease| RunFacts { lease, ..DEAD };
    check(&[
        ("a while is left", leased(awake_lease(30.0, 480)), live(10)),
        ("its last moment counts", leased(awake_lease(20.0, 480)), live(0)),
        ("then it has lapsed", leased(awake_lease(19.0, 480)), Liveness::Orphaned),
        ("a sign of life after this look", leased(awake_lease(5.0, 501)), live(6)),
        (
            "also before the first event",
            RunFacts { journal: Journal::Empty, ..leased(awake_lease(30.0, 480)) },
            live(10),
        ),
        ("also if no turn waits", RunFacts { is_awaited: false, ..leased(awake_lease(30.0, 480)) }, live(10)),
    ]);
}

#[test]
fn where_this_process_heard_nothing_the_files_say_when_the_last_sign_was() {
    let leased = |lease| RunFacts { lease, ..DEAD };
    check(&[
        ("a while is left", leased(wall_lease(30.0, 9_980.0)), live(10)),
        ("its last moment counts", leased(wall_lease(20.0, 9_980.0)), live(0)),
        ("then it has lapsed", leased(wall_lease(19.0, 9_980.0)), Liveness::Orphaned),
        ("a clock that was a little ahead", leased(wall_lease(30.0, 10_010.0)), live(40)),
        ("a clock that was wrong", leased(wall_lease(30.0, 10_031.0)), Liveness::Orphaned),
        ("no number at all", leased(wall_lease(30.0, f64::NAN)), Liveness::Orphaned),
    ]);
}

#[test]
fn a_run_without_a_lease_is_dead_at_once_if_it_began_before_the_holder_of_the_directory() {
    let began = |began| RunFacts { began, ..DEAD };
    let fresh = Now { holder_began: 9_990.0, ..NOW };
    assert_eq!(judge(&began(Began::Wall(9_989.0)), &fresh), Liveness::Orphaned);
    assert_eq!(judge(&began(Began::Wall(9_990.0)), &fresh), live(20));
    check(&[
        ("within its grace", began(Began::Wall(9_975.0)), live(5)),
        ("exactly 30 s", began(Began::Wall(9_970.0)), Liveness::Orphaned),
        ("in awake time", began(Began::Awake(Duration::from_secs(480))), live(10)),
        ("exactly 30 s of it", began(Began::Awake(Duration::from_secs(470))), Liveness::Orphaned),
        ("a little in the future", began(Began::Wall(10_029.0)), live(59)),
        ("far in the future", began(Began::Wall(10_031.0)), Liveness::Orphaned),
        ("unknown is long ago", began(Began::Unknown), Liveness::Orphaned),
    ]);
}

#[test]
fn a_run_with_a_lease_is_dead_when_its_lease_has_lapsed_and_30_s_have_passed_since_it_began() {
    let fresh = Now { holder_began: 9_995.0, ..NOW };
    let lapsed = RunFacts { lease: wall_lease(1.0, 9_980.0), ..DEAD };
    assert_eq!(judge(&RunFacts { began: Began::Wall(9_980.0), ..lapsed }, &fresh), live(10));
    assert_eq!(judge(&RunFacts { began: Began::Wall(9_970.0), ..lapsed }, &fresh), Liveness::Orphaned);
    let both = RunFacts { lease: awake_lease(5.0, 498), began: Began::Awake(Duration::from_secs(490)), ..DEAD };
    check(&[("the longer of both", both, live(20))]);
}

#[test]
fn a_run_that_takes_no_more_appends_is_not_kept_alive_by_a_lease() {
    let fenced = RunFacts { origin: FENCED, lease: awake_lease(3_600.0, 490), ..DEAD };
    check(&[
        ("the machine was restarted", fenced, Liveness::Orphaned),
        ("it began before this process", RunFacts { began: Began::Wall(9_499.0), ..fenced }, Liveness::Orphaned),
        ("and within its grace otherwise", RunFacts { began: Began::Wall(9_999.0), ..fenced }, live(29)),
        ("it has ended all the same", RunFacts { journal: Journal::Sealed, ..fenced }, Liveness::Sealed),
    ]);
}

#[test]
fn a_run_of_another_program_is_live_for_the_grace_of_the_turn_that_waits_for_it() {
    let theirs = RunFacts { origin: Origin::Foreign, ..DEAD };
    let young = RunFacts { began: Began::Wall(9_980.0), ..theirs };
    check(&[
        ("its turn is young", young, live(10)),
        ("its journal is not there yet", RunFacts { journal: Journal::Missing, ..young }, live(10)),
        ("its turn is old", theirs, Liveness::Foreign),
        ("no turn waits for it", RunFacts { is_awaited: false, ..young }, Liveness::Foreign),
        ("it holds nothing", RunFacts { journal: Journal::Empty, ..theirs }, Liveness::Foreign),
        ("and has no journal", RunFacts { journal: Journal::Missing, ..theirs }, Liveness::Gone),
        ("it has no lease that we granted", RunFacts { lease: awake_lease(60.0, 490), ..theirs }, Liveness::Foreign),
    ]);
}

#[test]
fn a_dead_run_of_ours_without_events_is_orphaned_and_without_a_journal_gone() {
    check(&[
        ("with events", DEAD, Liveness::Orphaned),
        ("empty", RunFacts { journal: Journal::Empty, ..DEAD }, Liveness::Orphaned),
        ("missing", RunFacts { journal: Journal::Missing, ..DEAD }, Liveness::Gone),
        ("no turn waits", RunFacts { is_awaited: false, ..DEAD }, Liveness::Orphaned),
    ]);
    let removed = RunFacts { journal: Journal::Missing, is_awaited: false, began: Began::Wall(9_999.0), ..DEAD };
    let awaited = RunFacts { is_awaited: true, ..removed };
    check(&[
        ("one that was removed is gone at once", removed, Liveness::Gone),
        ("whatever its lease says", RunFacts { lease: awake_lease(60.0, 490), ..removed }, Liveness::Gone),
        ("one that a turn waits for may still appear", awaited, live(29)),
    ]);
}
