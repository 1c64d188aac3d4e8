//! `lastword show` of a session with an interrupted answer, when the directory cannot be opened to be written.

use std::fs;

use lastword::{Event, NewSession, UserTurn};

use crate::data::{Data, STORAGE, sid};

/// A session whose answer was interrupted.
fn interrupted() -> Data {
    let data = Data::new();
    let store = data.writer();
    store.create(NewSession::titled("Half").with_id(sid("half"))).unwrap();
    let run = store.begin_run(&sid("half"), UserTurn::text("Where to?")).unwrap();
    run.append(Event::token("To the sea")).unwrap();
    data
}

#[test]
fn an_interrupted_answer_is_resolved_where_the_directory_can_be_written() {
    let shown = interrupted().run(&["show", "half"]);
    assert_eq!(shown.code, 0, "{shown:?}");
    assert!(shown.out.contains("To the sea") && shown.out.contains("interrupted"), "{shown:?}");
}

#[test]
fn a_session_is_shown_as_it_is_while_somebody_else_writes() {
    let data = interrupted();
    let _busy = data.writer();
    let shown = data.run(&["show", "half"]);
    assert_eq!(shown.code, 0, "{shown:?}");
    assert!(shown.out.contains("waiting for run") && !shown.out.contains("To the sea"), "{shown:?}");
}

#[test]
fn a_session_of_a_newer_version_is_shown_as_it_is() {
    let data = interrupted();
    let path = data.path("_lastword.json");
    let mut identity: serde_json::Value = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
    identity["format"] = 2.into();
    fs::write(&path, identity.to_string()).unwrap();
    let shown = data.run(&["show", "half"]);
    assert_eq!(shown.code, 0, "{shown:?}");
    assert!(shown.out.contains("waiting for run"), "{shown:?}");
}

#[test]
fn a_directory_that_cannot_be_opened_for_another_reason_is_reported() {
    let data = interrupted();
    fs::remove_file(data.path("_lock")).unwrap();
    fs::create_dir(data.path("_lock")).unwrap();
    let shown = data.run(&["show", "half"]);
    assert_eq!((shown.code, shown.out.as_str()), (STORAGE, ""), "{shown:?}");
    assert!(shown.err.contains("_lock"), "{shown:?}");
    assert_eq!(data.run(&["show", "good"]).code, 0, "what needs no writer is shown all the same");
}
