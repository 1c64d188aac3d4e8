//! Which runs are live and which are dead, as the real program tells its producers and readers: dead producers, pauses, clock
//! steps, restarts, renewals, late events.

use std::future::Future;
use std::time::{Duration, Instant};

use lastword::Event;
use serde_json::Value;
use tokio::runtime::Runtime;
use tokio::task::JoinHandle;

use crate::conversation::{Conversation, check_chunks, expected_rows, question, without_notices};
use crate::event_source::EventSource;
use crate::fake_clock::FakeClock;
use crate::host::{Host, in_time, runtime};
use crate::table::Signal;
use crate::verdict::{check_directory, journal, names};

const QUIET: [&str; 2] = ["--log", "warn"];

/// A run is not dead before this much time has passed since it began.
const GRACE: Duration = Duration::from_secs(30);
/// Timers, and some time for a slow machine.
const SOON: Duration = Duration::from_secs(10);
const HOUR: i64 = 3_600;

fn millis(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

/// Scenarios side by side. Reports all that fail.
struct Scenarios<'r> {
    runtime: &'r Runtime,
    started: Vec<(&'static str, JoinHandle<()>)>,
}

impl<'r> Scenarios<'r> {
    fn on(runtime: &'r Runtime) -> Self {
        Scenarios { runtime, started: Vec::new() }
    }

    fn start(&mut self, name: &'static str, scenario: impl Future<Output = ()> + Send + 'static) {
        self.started.push((name, self.runtime.spawn(scenario)));
    }

    fn join(self) {
        let ended = self.started.into_iter().map(|(name, started)| (name, self.runtime.block_on(started)));
        let failed: Vec<&str> = ended.filter(|(_, result)| result.is_err()).map(|(name, _)| name).collect();
        assert!(failed.is_empty(), "these failed: {failed:?}");
    }
}

/// Reads until the turn is marked, which is not before the grace is over. The server may have been busy, so that its awake
/// time lags.
async fn read_until_marked(conversation: &Conversation, began: Instant) {
    let deadline = began + GRACE + SOON;
    loop {
        if conversation.is_marked().await {
            break;
        }
        assert!(Instant::now() < deadline, "{}: the dead run is not marked", conversation.session);
        tokio::time::sleep(millis(100)).await;
    }
    let lived = began.elapsed();
    assert!(lived > GRACE - millis(500), "{}: marked after {lived:?}", conversation.session);
}

async fn sleep_until_grace_is_almost_over(began: Instant) {
    tokio::time::sleep((GRACE - millis(1_000)).saturating_sub(began.elapsed())).await;
}

/// The three kinds of followers of a dead run with one token: each is told that it was interrupted.
struct Followers {
    of_run: EventSource,
    of_session: EventSource,
    of_chat: EventSource,
}

impl Followers {
    async fn of(conversation: &Conversation) -> Self {
        Followers {
            of_run: conversation.follow_run("r1", None).await,
            of_session: conversation.follow("", None).await,
            of_chat: conversation.follow_chunks().await,
        }
    }

    async fn see_the_crash(mut self) {
        for source in [&mut self.of_run, &mut self.of_session] {
            let (ids, state) = source.until_end("r1", SOON).await;
            assert_eq!(
                (&ids[..], state.as_str()),
                (&["r1:1".to_owned(), "r1:2".to_owned()][..], "interrupted-by-crash")
            );
        }
        check_chunks(&self.of_chat.rest(SOON).await);
        self.of_run.rest(SOON).await;
    }
}

async fn read_before_it_is_followed(conversation: Conversation) {
    let began = conversation.begin("r1", 1.0, &["To the sea."]).await;
    sleep_until_grace_is_almost_over(began).await;
    read_until_marked(&conversation, began).await;
    Followers::of(&conversation).await.see_the_crash().await;
    let expected = [("user", &question("r1")[..]), ("assistant", "To the sea."), ("notice", "")];
    assert_eq!(without_notices(conversation.rows().await), expected_rows(&expected));
}

async fn followed_before_it_is_read(conversation: Conversation) {
    let began = conversation.begin("r1", 1.0, &["To the sea."]).await;
    let followers = Followers::of(&conversation).await;
    sleep_until_grace_is_almost_over(began).await;
    read_until_marked(&conversation, began).await;
    followers.see_the_crash().await;
    let late = conversation.say("r1", 2, &["Too late."]).await;
    assert_eq!(late.expect_err("the run is sealed").code(), Some("sealed"));
}

/// Nothing but the timer works here: no reads.
async fn followed_and_never_read(conversation: Conversation) {
    let began = conversation.begin("r1", 1.0, &["To the sea."]).await;
    let followers = Followers::of(&conversation).await;
    sleep_until_grace_is_almost_over(began).await;
    followers.see_the_crash().await;
    assert!(began.elapsed() > GRACE - millis(500), "it was sealed after {:?}", began.elapsed());
}

/// No reader waits for it: a late append is accepted, and the next read folds it above the marker.
async fn unheeded(conversation: Conversation) {
    let began = conversation.begin("r1", 1.0, &["To the "]).await;
    sleep_until_grace_is_almost_over(began).await;
    read_until_marked(&conversation, began).await;
    conversation.must_say("r1", 2, &["sea."]).await;
    let question = question("r1");
    let interrupted = [("user", &question[..]), ("assistant", "To the sea."), ("notice", "")];
    assert_eq!(without_notices(conversation.rows().await), expected_rows(&interrupted));
    conversation.must_say("r1", 3, &[" Today."]).await;
    conversation.finish("r1", 4).await;
    let completed = [("user", &question[..]), ("assistant", "To the sea. Today.")];
    assert_eq!(conversation.rows().await, expected_rows(&completed));
}

/// A reader that came for what is live after the run was given up, and before it goes on.
async fn resumed_after_now(conversation: Conversation) {
    let began = conversation.begin("r1", 1.0, &["To the "]).await;
    sleep_until_grace_is_almost_over(began).await;
    read_until_marked(&conversation, began).await;
    let mut live = conversation.follow("?after=now", None).await;
    let first = live.must(SOON).await;
    assert_eq!((first.id.as_deref(), first.data.as_deref()), (Some("r1:1"), None));
    live.stays_silent(millis(300)).await;
    conversation.must_say("r1", 2, &["sea."]).await;
    conversation.finish("r1", 3).await;
    assert_eq!(live.until_end("r1", SOON).await, (ids(&["r1:2", "r1:3"]), "completed".to_owned()));
}

fn ids(ids: &[&str]) -> Vec<String> {
    ids.iter().map(|id| (*id).to_owned()).collect()
}

/// A run that is dead, and goes on after another one began and ended.
async fn continued_after_another(conversation: Conversation) {
    let began = conversation.begin("r1", 1.0, &["To the "]).await;
    sleep_until_grace_is_almost_over(began).await;
    read_until_marked(&conversation, began).await;
    conversation.begin("r2", 30.0, &["By ", "train."]).await;
    let mut live = conversation.follow("?after=now", None).await;
    conversation.finish("r2", 3).await;
    assert_eq!(live.until_end("r2", SOON).await, (ids(&["r2:1", "r2:2", "r2:3"]), "completed".to_owned()));
    conversation.must_say("r1", 2, &["sea", "side."]).await;
    assert_eq!(live.ids_until("r1:3", SOON).await, ids(&["r1:2", "r1:3"]));

    // It is live again, for as long as its lease is renewed.
    let all = ids(&["r1:1", "r2:1", "r2:2", "r2:3", "r1:2", "r1:3"]);
    let renewing = {
        let conversation = conversation.clone();
        tokio::spawn(async move { conversation.renew_for("r1", millis(200), GRACE).await })
    };
    let mut connected = Vec::new();
    for (at, last_id) in std::iter::once(None).chain(all.iter().map(Some)).enumerate() {
        let mut source = conversation.follow("", last_id.map(String::as_str)).await;
        if at < all.len() {
            assert_eq!(source.ids_until("r1:3", SOON).await, all[at..], "after {last_id:?}");
        }
        connected.push(source);
    }
    renewing.abort();
    conversation.finish("r1", 4).await;
    for source in connected.iter_mut().chain([&mut live]) {
        assert_eq!(source.until_end("r1", SOON).await, (ids(&["r1:4"]), "completed".to_owned()));
    }
    let all = [all, ids(&["r1:4"])].concat();
    check_every_position(&conversation, &all).await;
    let questions = [question("r1"), question("r2")];
    let rows = [
        ("user", &questions[0][..]),
        ("assistant", "To the seaside."),
        ("user", &questions[1][..]),
        ("assistant", "By train."),
    ];
    assert_eq!(conversation.rows().await, expected_rows(&rows));
}

/// A reader that is cut after each event, and comes back with its id, sees all events once and in the same order.
async fn check_every_position(conversation: &Conversation, all: &[String]) {
    let (mut seen, mut last_id) = (Vec::new(), None);
    while seen.len() < all.len() {
        let mut source = conversation.follow("", last_id.as_deref()).await;
        let mut frame = source.must(SOON).await;
        while !frame.is_event() {
            frame = source.must(SOON).await;
        }
        seen.extend(frame.id);
        last_id = source.last_id;
    }
    assert_eq!(seen, all);
    for at in 0..all.len() - 1 {
        let mut source = conversation.follow("", Some(&all[at])).await;
        assert_eq!(source.ids_until(&all[all.len() - 1], SOON).await, all[at + 1..], "after {}", all[at]);
    }
}

/// A run without events is reported as orphaned and not sealed. Its first event is delivered all the same.
async fn orphaned_before_its_first_event(conversation: Conversation) {
    let began = conversation.begin("r1", 1.0, &[]).await;
    let mut live = conversation.follow("", None).await;
    let mut of_run = conversation.follow_run("r1", None).await;
    sleep_until_grace_is_almost_over(began).await;
    for source in [&mut live, &mut of_run] {
        assert_eq!(source.until_end("r1", SOON).await, (ids(&[]), "orphaned".to_owned()));
    }
    assert!(began.elapsed() > GRACE - millis(500), "it was given up after {:?}", began.elapsed());
    of_run.rest(SOON).await;
    conversation.must_say("r1", 1, &["To the sea."]).await;
    assert_eq!(live.ids_until("r1:1", SOON).await, ids(&["r1:1"]));
    conversation.finish("r1", 2).await;
    assert_eq!(live.until_end("r1", SOON).await, (ids(&["r1:2"]), "completed".to_owned()));
    let mut again = conversation.follow_run("r1", None).await;
    assert_eq!(again.until_end("r1", SOON).await, (ids(&["r1:1", "r1:2"]), "completed".to_owned()));
}

/// The server died after the run began. The producer never comes back.
async fn killed_with_the_server(conversation: Conversation, began: Instant) {
    let mut of_run = conversation.follow_run("r1", Some("r1:1")).await;
    let mut of_session = conversation.follow("", Some("r1:1")).await;
    sleep_until_grace_is_almost_over(began).await;
    for source in [&mut of_run, &mut of_session] {
        let ended = source.until_end("r1", SOON).await;
        assert_eq!(ended, (ids(&["r1:2"]), "interrupted-by-crash".to_owned()));
    }
    assert!(began.elapsed() > GRACE - millis(500), "it was sealed after {:?}", began.elapsed());
}

/// The same with a run that a producer keeps alive by renewals alone, far beyond its lease and the grace.
async fn kept_alive(conversation: Conversation) {
    conversation.begin("r1", 2.0, &["To the "]).await;
    let mut of_run = conversation.follow_run("r1", None).await;
    conversation.renew_for("r1", millis(500), GRACE + Duration::from_secs(4)).await;
    assert!(!conversation.is_marked().await);
    conversation.must_say("r1", 2, &["sea."]).await;
    conversation.finish("r1", 3).await;
    assert_eq!(of_run.until_end("r1", SOON).await, (ids(&["r1:1", "r1:2", "r1:3"]), "completed".to_owned()));
}

/// The grace is 30 s of real time, so all that waits for it happens side by side.
#[test]
fn a_dead_run_ends_for_its_readers_after_its_lease_and_grace_and_goes_on_if_none_waits() {
    let (runtime, mut host, mut restarted) = (runtime(), Host::start(&QUIET), Host::start(&QUIET));
    let create = |name: &str| runtime.block_on(Conversation::create(&host, name));
    let mut scenarios = Scenarios::on(&runtime);
    scenarios.start("read_before_it_is_followed", read_before_it_is_followed(create("read-first")));
    scenarios.start("followed_before_it_is_read", followed_before_it_is_read(create("followed-first")));
    scenarios.start("followed_and_never_read", followed_and_never_read(create("never-read")));
    scenarios.start("unheeded", unheeded(create("unheeded")));
    scenarios.start("resumed_after_now", resumed_after_now(create("now")));
    scenarios.start("continued_after_another", continued_after_another(create("continued")));
    scenarios.start("orphaned_before_its_first_event", orphaned_before_its_first_event(create("silent")));
    scenarios.start("kept_alive", kept_alive(create("kept-alive")));
    let killed = runtime.block_on(Conversation::create(&restarted, "killed"));
    let began = runtime.block_on(killed.begin("r1", 1.0, &["To the sea."]));
    restarted.kill();
    restarted.revive();
    scenarios.start("killed_with_the_server", killed_with_the_server(killed, began));
    scenarios.join();
    for host in [&mut host, &mut restarted] {
        host.stop();
        check_directory(&host.data);
    }
    assert_eq!(names(&journal(&restarted.data, "killed", "r1")), ["token", "apperror"]);
}

/// Restarts a server so much later by its wall clock that the grace of its runs is over: only their leases count.
fn restart_after_the_grace(host: &mut Host, clock: &FakeClock, seconds: i64) {
    host.kill();
    clock.set(seconds);
    host.revive();
}

async fn check_completed(conversation: &Conversation, mut sources: Vec<EventSource>, all: &[&str]) {
    for source in &mut sources {
        assert_eq!(source.until_end("r1", SOON).await, (ids(all), "completed".to_owned()));
    }
    assert!(!conversation.is_marked().await, "a live run was marked");
}

#[test]
fn a_restart_and_a_pause_grant_every_producer_its_whole_lease() {
    let (runtime, clock) = (runtime(), FakeClock::ahead(0));
    let mut host = clock.start(&QUIET);
    let (comes_back, never_back, paused) = runtime.block_on(async {
        let comes_back = Conversation::create(&host, "comes-back").await;
        let never_back = Conversation::create(&host, "never-back").await;
        let paused = Conversation::create(&host, "paused").await;
        comes_back.begin("r1", 5.0, &["To the "]).await;
        never_back.begin("r1", 3.0, &["To the "]).await;
        paused.begin("r1", 2.0, &["To the "]).await;
        (comes_back, never_back, paused)
    });
    restart_after_the_grace(&mut host, &clock, HOUR);
    let started = Instant::now();
    runtime.block_on(async {
        // The followers come before their producers, and the sessions are read.
        let of_run = comes_back.follow_run("r1", None).await;
        let of_session = comes_back.follow("", None).await;
        let mut of_never_back = never_back.follow_run("r1", Some("r1:1")).await;
        for conversation in [&comes_back, &never_back, &paused] {
            assert!(!conversation.is_marked().await, "{} is marked right after the start", conversation.session);
        }
        // Its lease is the shortest.
        paused.renew("r1").await;
        let ended = in_time("the dead run ends", SOON, of_never_back.until_end("r1", SOON)).await;
        assert_eq!(ended, (ids(&["r1:2"]), "interrupted-by-crash".to_owned()));
        let lived = started.elapsed();
        assert!(lived > millis(2_500), "the lease was not granted anew: sealed after {lived:?}");
        assert!(!comes_back.is_marked().await);
        comes_back.must_say("r1", 2, &["sea."]).await;
        comes_back.finish("r1", 3).await;
        check_completed(&comes_back, vec![of_run, of_session], &["r1:1", "r1:2", "r1:3"]).await;
    });
    // No reader waited for it, so a renewal revives it.
    runtime.block_on(pause(&host, &paused));
    host.stop();
    check_directory(&host.data);
}

/// SIGSTOP for longer than the lease, while a follower waits and the producer's next append is on its way.
async fn pause(host: &Host, conversation: &Conversation) {
    conversation.renew("r1").await;
    let of_run = conversation.follow_run("r1", None).await;
    let of_session = conversation.follow("", None).await;
    tokio::time::sleep(millis(500)).await;
    conversation.renew("r1").await;
    host.signal(Signal::STOP);
    tokio::time::sleep(millis(4_000)).await;
    let queued = {
        let conversation = conversation.clone();
        tokio::spawn(async move { conversation.say("r1", 2, &["sea."]).await })
    };
    let read = {
        let conversation = conversation.clone();
        tokio::spawn(async move { conversation.is_marked().await })
    };
    tokio::time::sleep(millis(1_000)).await;
    host.signal(Signal::CONT);
    assert!(!conversation.is_marked().await, "marked right after the pause");
    assert!(!read.await.expect("the session is read"), "the read that was queued has marked it");
    assert_eq!(queued.await.expect("the append ends").expect("the append is accepted"), 2);
    // A pause in which nothing was queued: the whole lease counts from its end.
    host.signal(Signal::STOP);
    tokio::time::sleep(millis(3_000)).await;
    host.signal(Signal::CONT);
    assert!(!conversation.is_marked().await, "marked right after the second pause");
    tokio::time::sleep(millis(1_000)).await;
    conversation.finish("r1", 3).await;
    check_completed(conversation, vec![of_run, of_session], &["r1:1", "r1:2", "r1:3"]).await;
}

#[test]
fn steps_of_the_clock_kill_no_producer_and_leave_the_runs_in_order() {
    let (runtime, clock) = (runtime(), FakeClock::ahead(0));
    let mut host = clock.start(&QUIET);
    let conversation = runtime.block_on(Conversation::create(&host, "steps"));
    runtime.block_on(conversation.begin("r1", 2.0, &["1"]));
    // From here on its beginning is known by the wall clock alone.
    host.kill();
    host.revive();
    let steps = [2 * HOUR, 0, -2 * HOUR];
    runtime.block_on(async {
        let sources = vec![conversation.follow_run("r1", None).await, conversation.follow("", None).await];
        let mut next = 2;
        for step in steps {
            clock.set(step);
            assert!(!conversation.is_marked().await, "marked after the clock was set to {step:+} s");
            for _ in 0..5 {
                conversation.must_say("r1", next, &["."]).await;
                next += 1;
                tokio::time::sleep(millis(500)).await;
                assert!(!conversation.is_marked().await, "marked after the clock was set to {step:+} s");
            }
        }
        conversation.finish("r1", next).await;
        let all: Vec<String> = (1..=next).map(|seq| format!("r1:{seq}")).collect();
        let all: Vec<&str> = all.iter().map(String::as_str).collect();
        check_completed(&conversation, sources, &all).await;
    });
    let conversation = runtime.block_on(Conversation::create(&host, "order"));
    let mut live = runtime.block_on(conversation.follow("", None));
    runtime.block_on(async {
        for (run, step) in [("r1", HOUR), ("r2", -HOUR), ("r3", -3 * HOUR)] {
            clock.set(step);
            conversation.begin(run, 30.0, &["A word."]).await;
            conversation.finish(run, 2).await;
        }
    });
    let all = ids(&["r1:1", "r1:2", "r2:1", "r2:2", "r3:1", "r3:2"]);
    assert_eq!(runtime.block_on(live.ids_until("r3:2", SOON)), all);
    for is_restarted in [false, true] {
        if is_restarted {
            host.kill();
            host.revive();
        }
        runtime.block_on(check_every_position(&conversation, &all));
        let questions: Vec<String> = ["r1", "r2", "r3"].map(question).to_vec();
        let asked = runtime.block_on(conversation.rows()).into_iter().filter(|(role, _)| role == "user");
        assert_eq!(asked.map(|(_, text)| text).collect::<Vec<_>>(), questions);
    }
    host.stop();
    check_directory(&host.data);
}

/// Whether the directory, as `show` reads it without a server, has a marker in this session.
fn is_marked_by_show(data: &crate::data::Data, session: &str) -> bool {
    let shown = data.must(&["show", session, "--json"]).lines.join("\n");
    let shown: Value = serde_json::from_str(&shown).unwrap_or_else(|cause| panic!("{shown}: {cause}"));
    crate::verdict::rows(&shown).iter().any(|(role, _)| role == "notice")
}

#[test]
fn a_producer_that_only_renews_is_alive_also_for_a_command_after_the_servers_death() {
    // The run begins an hour ago, so that its renewals alone keep it alive.
    let (runtime, clock) = (runtime(), FakeClock::ahead(-HOUR));
    let mut host = clock.start(&QUIET);
    let conversation = runtime.block_on(Conversation::create(&host, "renewed"));
    runtime.block_on(conversation.begin("r1", 3.0, &["To the "]));
    clock.set(0);
    runtime.block_on(conversation.renew_for("r1", millis(1_000), millis(4_500)));
    runtime.block_on(conversation.renew("r1"));
    let renewed = Instant::now();
    host.kill();
    let copy = host.data.copy();
    let is_marked = is_marked_by_show(&host.data, "renewed");
    // A machine that took longer than the lease proves nothing.
    assert!(!is_marked || renewed.elapsed() > millis(2_900), "marked {:?} after a renewal", renewed.elapsed());
    host.revive();
    runtime.block_on(async {
        let of_run = conversation.follow_run("r1", None).await;
        let of_session = conversation.follow("", None).await;
        conversation.renew_for("r1", millis(1_000), millis(4_500)).await;
        assert!(is_marked || !conversation.is_marked().await, "marked while it is renewed");
        conversation.must_say("r1", 2, &["sea."]).await;
        conversation.finish("r1", 3).await;
        check_completed(&conversation, vec![of_run, of_session], &["r1:1", "r1:2", "r1:3"]).await;
    });
    assert!(is_marked_by_show(&copy, "renewed"), "a command grants nothing: the lease has lapsed");
    host.stop();
    check_directory(&host.data);
}

#[test]
fn a_reader_of_what_is_live_that_is_cut_before_its_first_event_misses_nothing() {
    let (runtime, mut host) = (runtime(), Host::start(&QUIET));
    for restarts in [false, true] {
        let prefix = if restarts { "restarted" } else { "cut" };
        let [none, live, finished] = ["none", "live", "finished"]
            .map(|name| runtime.block_on(Conversation::create(&host, &format!("{prefix}-{name}"))));
        let last_ids = runtime.block_on(async {
            live.begin("r1", 30.0, &["To ", "the "]).await;
            finished.begin("r1", 30.0, &["To ", "the "]).await;
            finished.finish("r1", 3).await;
            let mut last_ids = Vec::new();
            for (conversation, expected) in [(&none, "0"), (&live, "r1:0"), (&finished, "r1:3")] {
                let mut source = conversation.follow("?after=now", None).await;
                let first = source.must(SOON).await;
                assert_eq!((first.data, first.event.as_str()), (None, ""), "{}: not a lone id", conversation.session);
                assert_eq!(first.id.as_deref(), Some(expected), "{}", conversation.session);
                last_ids.push(source.last_id.expect("it has an id"));
            }
            last_ids
        });
        if restarts {
            host.kill();
            host.revive();
        }
        runtime.block_on(async {
            none.begin("r1", 30.0, &["To ", "the "]).await;
            live.must_say("r1", 3, &["sea."]).await;
            live.finish("r1", 4).await;
            finished.begin("r2", 30.0, &["By train."]).await;
            finished.finish("r2", 2).await;
            let first_three = ids(&["r1:1", "r1:2"]);
            let expected = [first_three, ids(&["r1:1", "r1:2", "r1:3", "r1:4"]), ids(&["r2:1", "r2:2"])];
            let conversations = [&none, &live, &finished];
            for ((conversation, last_id), expected) in conversations.into_iter().zip(&last_ids).zip(&expected) {
                // An EventSource asks for the same address again.
                for query in ["?after=now", ""] {
                    let mut source = conversation.follow(query, Some(last_id)).await;
                    let seen = source.ids_until(&expected[expected.len() - 1], SOON).await;
                    assert_eq!(&seen, expected, "{} with {query:?}", conversation.session);
                }
            }
            none.append("r1", 3, &[Event::done()]).await.expect("it ends");
        });
    }
    host.stop();
    check_directory(&host.data);
}
