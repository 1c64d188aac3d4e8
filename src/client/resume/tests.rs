//! Stories of connections that break, told to the state machine alone.

use super::*;

fn run(id: &str) -> RunId {
    RunId::parse(id).unwrap()
}

fn event(id: &str) -> Sent {
    let data = format!("{{\"event\":\"token\",\"event_id\":{id:?}}}");
    Sent { id: id.to_owned(), has_own_id: true, name: "token".to_owned(), data }
}

/// A notice comes with the id of the last event, as every event behind it does.
fn notice(name: &str, data: &str) -> Sent {
    Sent { id: "r:9".to_owned(), has_own_id: false, name: name.to_owned(), data: data.to_owned() }
}

/// What is told of what is sent, in short.
fn tell(resume: &mut Resume, sent: Sent) -> String {
    match resume.take(sent) {
        Ok(Step::Nothing) => "-".to_owned(),
        Ok(Step::Again(_)) => "again".to_owned(),
        Err(_) => "bad".to_owned(),
        Ok(Step::Tell(Told::Event(event))) => event.id,
        Ok(Step::Tell(Told::Gap { after_seq, .. })) => format!("gap {}", after_seq.unwrap()),
        Ok(Step::Tell(Told::Snapshot { reason, .. })) => format!("snapshot {reason}"),
        Ok(Step::Tell(Told::Ended(end))) => format!("end {} {}", end.run, end.state),
        Ok(Step::Tell(other)) => format!("{other:?}"),
    }
}

#[track_caller]
fn check(resume: &mut Resume, sent: Vec<Sent>, expected: &str) {
    let told: Vec<String> = sent.into_iter().map(|sent| tell(resume, sent)).collect();
    assert_eq!(told.join(", "), expected);
}

fn following() -> Resume {
    let mut resume = Resume::new(Scope::Run(run("r")), None);
    resume.connected();
    resume
}

const END: &str = r#"{"run_id":"r","last_seq":3,"state":"completed"}"#;

#[test]
fn every_event_is_told_once_over_any_number_of_connections() {
    let mut resume = following();
    assert_eq!(resume.last_event_id(), None);
    check(&mut resume, vec![event("r:1"), event("r:2"), event("r:2"), event("r:1")], "r:1, r:2, -, -");
    assert_eq!(resume.last_event_id().as_deref(), Some("r:2"));
    resume.connected();
    check(
        &mut resume,
        vec![event("r:1"), event("r:2"), event("r:3"), notice("end", END)],
        "-, -, r:3, end r completed",
    );
    assert!(resume.is_over());
}

#[test]
fn a_follower_that_knows_a_place_goes_on_there() {
    let mut resume = Resume::new(Scope::Run(run("r")), Some((run("r"), 2)));
    assert_eq!(resume.last_event_id().as_deref(), Some("r:2"));
    check(&mut resume, vec![event("r:2"), event("r:3"), notice("end", END)], "-, r:3, end r completed");
}

#[test]
fn an_event_may_have_the_name_of_a_notice() {
    let mut resume = following();
    let named = |id: &str, name: &str| Sent { name: name.to_owned(), ..event(id) };
    check(&mut resume, vec![named("r:1", "end"), named("r:2", "snapshot"), named("r:3", "gap")], "r:1, r:2, r:3");
    assert!(!resume.is_over());
}

#[test]
fn a_snapshot_forgets_what_was_told() {
    let mut resume = following();
    let snapshot = || notice("snapshot", r#"{"reason":"ahead","run_id":"r","last_seq":1}"#);
    check(&mut resume, vec![event("r:1"), event("r:2"), snapshot()], "r:1, r:2, snapshot ahead");
    assert_eq!(resume.last_event_id(), None, "the next connection begins with the first event too");
    check(&mut resume, vec![event("r:1"), event("r:1")], "r:1, -");
    assert_eq!(resume.last_event_id().as_deref(), Some("r:1"));
}

#[test]
fn an_end_before_the_last_event_is_believed_only_if_it_is_said_again() {
    let mut resume = following();
    check(&mut resume, vec![event("r:1"), notice("end", END)], "r:1, again");
    assert!(!resume.is_over());
    resume.connected();
    check(&mut resume, vec![event("r:2"), notice("end", END)], "r:2, again");
    resume.connected();
    check(&mut resume, vec![notice("end", END)], "end r completed");
    assert!(resume.is_over());
}

#[test]
fn a_deleted_run_ends_wherever_it_is() {
    let deleted = r#"{"run_id":"r","last_seq":7,"state":"deleted"}"#;
    check(&mut following(), vec![event("r:1"), notice("end", deleted)], "r:1, end r deleted");
}

#[test]
fn a_session_goes_on_behind_the_end_of_a_run_until_it_is_deleted() {
    let mut resume = Resume::new(Scope::Session, None);
    resume.connected();
    let end = || notice("end", r#"{"run_id":"r","last_seq":1,"state":"errored"}"#);
    check(&mut resume, vec![event("r:1"), end(), event("s:1")], "r:1, end r errored, s:1");
    assert_eq!(resume.last_event_id().as_deref(), Some("s:1"));
    resume.connected();
    check(&mut resume, vec![end(), event("r:1"), event("s:2")], "-, -, s:2");
    check(&mut resume, vec![notice("end", r#"{"state":"deleted"}"#)], "Deleted");
    assert!(resume.is_over());
}

#[test]
fn whoever_asked_for_what_is_live_is_told_what_that_cannot_promise() {
    let mut resume = Resume::from_now(Scope::Session);
    assert!(resume.is_from_now());
    assert_eq!(resume.connected(), None);
    assert_eq!(resume.connected(), Some(Told::Missed));
    check(&mut resume, vec![event("r:5")], "r:5");
    assert!(!resume.is_from_now());
    assert_eq!(resume.connected(), None);
}

#[test]
fn an_id_without_an_event_is_a_place_to_go_on_from() {
    let mut resume = Resume::from_now(Scope::Session);
    resume.connected();
    resume.begin_at("r:5");
    assert_eq!(resume.last_event_id().as_deref(), Some("r:5"));
    assert_eq!(resume.connected(), None);
    check(&mut resume, vec![event("r:5"), event("r:6")], "-, r:6");
    resume.begin_at("r:1");
    assert_eq!(resume.last_event_id().as_deref(), Some("r:6"));
}

#[test]
fn an_id_before_the_first_event_of_a_run_or_a_session_is_a_place_too() {
    let mut resume = Resume::from_now(Scope::Session);
    resume.connected();
    resume.begin_at("r:0");
    assert_eq!((resume.last_event_id().as_deref(), resume.connected()), (Some("r:0"), None));
    let mut resume = Resume::from_now(Scope::Session);
    resume.connected();
    resume.begin_at("0");
    assert_eq!((resume.last_event_id(), resume.is_from_now(), resume.connected()), (None, false, None));
}

#[test]
fn a_run_that_goes_on_after_its_end_ends_again() {
    let mut resume = Resume::new(Scope::Session, None);
    let end = |state, last| notice("end", &format!(r#"{{"run_id":"r","last_seq":{last},"state":"{state}"}}"#));
    let sent = vec![event("r:1"), end("orphaned", 1), end("orphaned", 1), event("r:2"), end("completed", 2)];
    check(&mut resume, sent, "r:1, end r orphaned, -, r:2, end r completed");
}

#[test]
fn lines_without_a_number_are_told_once_too() {
    let mut resume = following();
    let line = || notice("token", r#"{"event":"token","payload":{}}"#);
    check(&mut resume, vec![line(), event("r:1"), line()], ", r:1, ");
    resume.connected();
    check(&mut resume, vec![line(), line(), line()], "-, -, ");
}

#[test]
fn what_is_not_understood_is_said_and_what_is_unknown_is_passed() {
    for id in ["r", "r:", "r:x", ":3", "r:0", "a/b:3", "other:3"] {
        check(&mut following(), vec![event(id)], "bad");
    }
    check(
        &mut following(),
        vec![notice("end", "gone"), notice("gap", "[]"), notice("end", r#"{"run_id":"x"}"#)],
        "bad, bad, bad",
    );
    check(&mut following(), vec![notice("weather", "{}"), notice("", "hello")], "-, -");
    check(&mut following(), vec![notice("gap", r#"{"run_id":"r","after_seq":4}"#)], "gap 4");
}

#[test]
fn an_endless_session_is_remembered_within_bounds() {
    let mut resume = Resume::new(Scope::Session, None);
    for number in 0..2 * RUNS_MAX {
        check(&mut resume, vec![event(&format!("r{number}:1"))], &format!("r{number}:1"));
    }
    assert_eq!(resume.runs.len(), RUNS_MAX);
}
