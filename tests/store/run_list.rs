//! Runs as they are listed: the same from notes and from journals, without a change of anything.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use lastword::clock::{ManualClock, ManualSteady, Timestamp};
use lastword::{
    Event, NewSession, Options, Outcome, RunId, RunList, RunState, SessionId, Store, StoreError, Usage, UserTurn,
};
use serde_json::{Value, json};

use crate::fixture::{Fixture, fixture};

fn event(name: &str, payload: Value) -> Event {
    Event::new(name, &payload.to_string()).unwrap()
}

fn run(name: &str) -> RunId {
    RunId::parse(name).unwrap()
}

/// Answers a question by these events.
fn answer(fixture: &Fixture, name: &str, events: &[Event]) {
    let begun = fixture.store.begin_run(&fixture.id, UserTurn::text("x").with_run(run(name))).unwrap();
    events.iter().for_each(|event| drop(begun.append(event.clone()).unwrap()));
}

fn list(store: &Store, session: &SessionId) -> RunList {
    store.list_runs(session, None, 1_000).unwrap()
}

fn states(list: &RunList) -> Vec<(&str, &str)> {
    list.runs.iter().map(|info| (info.run.as_str(), info.state.as_str())).collect()
}

/// A session whose runs ended in every way, one of them twice replaced.
fn ended_in_every_way() -> Fixture {
    let fixture = fixture();
    let usage = || Event::usage(Some("m"), Some(3), Some(4));
    let attempt = |number: u32| event("attempt", json!({ "attempt": number, "of": 3, "runner": "agent" }));
    let failed = event("apperror", json!({ "type": "busy", "message": "m", "close_reason": "exit" }));
    answer(&fixture, "z-done", &[attempt(1), Event::token("x"), attempt(2), usage(), usage(), Event::done()]);
    answer(&fixture, "stopped", &[Event::token("x"), usage(), Event::stopped_by_user()]);
    answer(&fixture, "failed", &[attempt(1), usage(), failed]);
    answer(&fixture, "crashed", &[Event::end(Outcome::InterruptedByCrash)]);
    answer(&fixture, "limit", &[usage(), Event::end(Outcome::ToolLimitReached)]);
    answer(&fixture, "a-twice", &[Event::token("x"), Event::done()]);
    let again = |name: &str| UserTurn { run: Some(run(name)), ..UserTurn::last_answer_again() };
    let better = fixture.store.begin_run(&fixture.id, again("better")).unwrap();
    better.append(Event::token("y")).unwrap();
    better.finish(Outcome::Completed).unwrap();
    let worse = fixture.store.begin_run(&fixture.id, again("worse")).unwrap();
    worse.append(usage()).unwrap();
    worse.fail("x", "It failed.").unwrap();
    fixture
}

#[test]
fn every_run_is_listed_once_in_the_order_in_which_they_began() {
    let fixture = ended_in_every_way();
    let list = list(&fixture.store, &fixture.id);
    assert_eq!(
        states(&list),
        [
            ("z-done", "completed"),
            ("stopped", "interrupted-by-user"),
            ("failed", "errored"),
            ("crashed", "interrupted-by-crash"),
            ("limit", "tool_limit_reached"),
            ("a-twice", "completed"),
            ("better", "completed"),
            ("worse", "errored"),
        ]
    );
    let done = &list.runs[0];
    assert_eq!((done.runner.as_deref(), done.attempts, done.model.as_deref()), (Some("agent"), Some(2), Some("m")));
    assert_eq!((done.last_seq, done.usage.known.total), (6, Some(14)));
    assert_eq!((list.usage.known, list.usage.at_least.total), (Usage::default(), Some(14 + 4 * 7)));
    for info in &list.runs {
        assert_eq!(fixture.store.run_info(&fixture.id, &info.run).unwrap(), *info);
    }
}

/// Changes the stored document, as another program would.
fn edit(fixture: &Fixture, change: impl Fn(&mut Value)) {
    let path = fixture.folder.path().join(format!("{}.json", fixture.id));
    let mut document: Value = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
    document["messages"].as_array_mut().unwrap().iter_mut().for_each(change);
    fs::write(&path, document.to_string()).unwrap();
}

#[test]
fn a_list_says_the_same_from_notes_and_from_journals() {
    let fixture = ended_in_every_way();
    let from_notes = list(&fixture.store, &fixture.id);
    let drop_note = |row: &mut Value| drop(row.as_object_mut().unwrap().remove("_run"));
    let as_before = |row: &mut Value| {
        for key in ["runner", "attempts", "first_event_at", "close_reason", "last_seq", "usage_at_least"] {
            row.get_mut("_run").and_then(Value::as_object_mut).map(|note| note.remove(key));
        }
    };
    for change in [&as_before as &dyn Fn(&mut Value), &drop_note] {
        edit(&fixture, change);
        assert_eq!(list(&fixture.store, &fixture.id), from_notes);
        assert_eq!(list(&fixture.store, &fixture.id), from_notes, "and once more, from memory");
    }
}

fn journal(fixture: &Fixture, name: &str) -> std::path::PathBuf {
    fixture.folder.path().join(format!("_run_journal/{}/{name}.jsonl", fixture.id))
}

/// What would change if it were read.
#[test]
fn the_journal_of_a_run_that_is_folded_is_not_read_for_a_list() {
    let fixture = ended_in_every_way();
    let before = list(&fixture.store, &fixture.id);
    for name in ["stopped", "failed", "crashed", "worse"] {
        fs::write(journal(&fixture, name), "").unwrap();
    }
    // Of one that a `stream_end` may follow, the end alone is read.
    let done = fs::read_to_string(journal(&fixture, "z-done")).unwrap();
    fs::write(journal(&fixture, "z-done"), done.lines().last().unwrap().to_owned() + "\n").unwrap();
    assert_eq!(list(&fixture.store, &fixture.id), before);
}

#[test]
fn a_stream_end_that_comes_later_is_counted() {
    let fixture = fixture();
    let begun = fixture.begin("x");
    begun.append(Event::done()).unwrap();
    let last_seq = |fixture: &Fixture| fixture.store.run_info(&fixture.id, begun.id()).unwrap().last_seq;
    assert_eq!(last_seq(&fixture), 1);
    begun.append(event("stream_end", json!({}))).unwrap();
    assert_eq!(last_seq(&fixture), 2);
}

#[test]
fn a_run_whose_journal_was_removed_is_gone_and_what_the_transcript_notes_is_shown() {
    let fixture = ended_in_every_way();
    let before = list(&fixture.store, &fixture.id);
    fixture.store.remove_run(&fixture.id, &run("z-done")).unwrap();
    fixture.store.remove_run(&fixture.id, &run("failed")).unwrap();
    let after = list(&fixture.store, &fixture.id);
    let ids = |list: &RunList| list.runs.iter().map(|info| info.run.clone()).collect::<Vec<_>>();
    assert_eq!(ids(&after), ids(&before), "each stays in its place");
    let gone = &after.runs[0];
    assert_eq!((gone.state, gone.usage.known, gone.usage.at_least.total), (RunState::Gone, Usage::default(), Some(14)));
    assert_eq!((gone.runner.as_deref(), gone.began_at), (Some("agent"), before.runs[0].began_at));
    let nobody = fixture.store.run_info(&fixture.id, &run("nobody")).unwrap_err();
    assert!(matches!(nobody, StoreError::RunNotFound { .. }), "{nobody}");
}

/// All files of a directory with their contents.
fn files(folder: &Path) -> BTreeMap<String, Vec<u8>> {
    let mut found = BTreeMap::new();
    for entry in fs::read_dir(folder).unwrap().map(Result::unwrap) {
        let path = entry.path();
        match path.is_dir() {
            true => found.extend(files(&path)),
            false => drop(found.insert(path.display().to_string(), fs::read(&path).unwrap())),
        }
    }
    found
}

#[test]
fn a_list_changes_nothing_and_ends_no_lease() {
    let folder = tempfile::tempdir().unwrap();
    let clock = Arc::new(ManualClock::at(Timestamp::from_seconds(1.8e9)));
    let steady = Arc::new(ManualSteady::default());
    let options = Options { clock: clock.clone(), steady: steady.clone(), ..Options::default() };
    let store = Store::open(folder.path(), options).unwrap();
    let id = store.create(NewSession::titled("t")).unwrap();
    let turn = UserTurn { lease_seconds: Some(10.0), ..UserTurn::text("x").with_run(run("r")) };
    let begun = store.begin_run(&id, turn).unwrap();
    assert_eq!(states(&list(&store, &id)), [("r", "unknown")]);
    begun.append(Event::usage(None, Some(1), Some(2))).unwrap();
    store.commit().unwrap();
    let before = files(folder.path());
    let info = |store: &Store| store.run_info(&id, &run("r")).unwrap();
    assert_eq!((info(&store).state, info(&store).usage.at_least.total), (RunState::Running, Some(3)));
    for _ in 0..60 {
        clock.advance(Duration::from_secs(1));
        steady.advance(Duration::from_secs(1));
        list(&store, &id);
    }
    let orphan = info(&store);
    assert_eq!((orphan.state, orphan.ended_at, orphan.close_reason), (RunState::Orphaned, None, None));
    assert_eq!((orphan.usage.known, orphan.usage.at_least.total), (Usage::default(), Some(3)));
    assert!(store.metadata(&id).unwrap().pending_turn().is_some(), "nothing is resolved");
    assert_eq!(files(folder.path()), before);
    begun.append(Event::token("late")).unwrap();
    assert_eq!(info(&store).state, RunState::Running, "its producer is back");
    // What a full read says of it then is what its marker says.
    clock.advance(Duration::from_secs(60));
    steady.advance(Duration::from_secs(60));
    store.get_session(&id).unwrap();
    let recovered = info(&store);
    assert_eq!(recovered.state, RunState::Orphaned);
    assert!(recovered.close_reason.is_some(), "{recovered:?}");
}

/// A line as another program writes it.
fn foreign_line(session: &SessionId, run: &str, seq: u64, event: &str, is_terminal: bool) -> String {
    let state = if is_terminal { json!("completed") } else { Value::Null };
    let line = json!({
        "version": 1, "event_id": format!("{run}:{seq}"), "seq": seq, "run_id": run, "session_id": session.as_str(),
        "event": event, "type": event, "created_at": 1_700_000_000 + seq, "terminal": is_terminal,
        "terminal_state": state, "payload": { "text": "x" },
    });
    format!("{line}\n")
}

#[test]
fn runs_of_another_program_are_listed_as_their_journals_say() {
    let fixture = fixture();
    answer(&fixture, "own", &[Event::done()]);
    let line = |run: &str, seq, event, is_terminal| foreign_line(&fixture.id, run, seq, event, is_terminal);
    fs::write(journal(&fixture, "left"), line("left", 1, "token", false)).unwrap();
    let ended = [line("ended", 1, "token", false), line("ended", 2, "done", true)].concat();
    fs::write(journal(&fixture, "ended"), ended).unwrap();
    let list = list(&fixture.store, &fixture.id);
    let mut states = states(&list);
    states.sort();
    assert_eq!(states, [("ended", "completed"), ("left", "foreign"), ("own", "completed")]);
    let ended = fixture.store.run_info(&fixture.id, &run("ended")).unwrap();
    assert_eq!((ended.first_event_at, ended.ended_at), (Some(1_700_000_001.0), Some(1_700_000_002.0)));
    assert_eq!((ended.last_seq, ended.began_at, ended.attempts), (2, None, None));
}

#[test]
fn the_end_of_stderr_is_kept_over_a_restart_and_goes_with_its_session() {
    let fixture = fixture();
    answer(&fixture, "r", &[Event::done()]);
    let Fixture { folder, store, id } = fixture;
    assert_eq!(store.stderr_tail(&id, &run("r")).unwrap(), None);
    store.keep_stderr(&id, &run("r"), "first").unwrap();
    store.keep_stderr(&id, &run("r"), &format!("{}last", "x".repeat(10_000))).unwrap();
    store.keep_stderr(&id, &run("nobody"), "x").unwrap();
    drop(store);
    let store = Store::open(folder.path(), Options::default()).unwrap();
    let tail = store.stderr_tail(&id, &run("r")).unwrap().unwrap();
    assert!(tail.len() == 8 * 1024 && tail.ends_with("xlast"), "{} bytes", tail.len());
    assert_eq!(store.stderr_tail(&id, &run("nobody")).unwrap(), None);
    assert_eq!(store.run_info(&id, &run("r")).unwrap().state.as_str(), "completed");
    store.delete(&id).unwrap();
    assert_eq!(store.stderr_tail(&id, &run("r")).unwrap(), None);
    store.keep_stderr(&id, &run("r"), "late").unwrap();
    assert!(matches!(store.list_runs(&id, None, 1), Err(StoreError::NotFound { .. } | StoreError::Sidecar(_))));
}
