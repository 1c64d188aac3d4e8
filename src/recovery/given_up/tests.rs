//! Markers that gave up, and answers that a repair adds.

use super::*;
use crate::model::SessionId;
use crate::model::fold::{Folded, FoldedRow};
use crate::model::marker::Finding;
use crate::recovery::{JournalState, RunNote};

const WORDS: &str = "To the sea.";

fn now() -> Timestamp {
    Timestamp::from_seconds(1_000.0)
}

fn session(rows: &[Row]) -> Session {
    let mut session = Session::new(SessionId::parse("s").unwrap(), "", now());
    rows.iter().for_each(|row| session.push_message(row).unwrap());
    session
}

fn assistant(content: &str) -> Row {
    Row::parse(&format!(r#"{{"role":"assistant","content":"{content}","timestamp":5}}"#))
}

/// The prompt of a run.
fn prompt_of(run: &str) -> Row {
    let mut row = Row::user("Where to?", 1);
    row.fields_mut().set_text("_run_id", run);
    row
}

/// A marker that hopes for nothing, with its run or without.
fn lost(run: Option<&str>) -> Row {
    let mut row = interrupted_marker(&Finding::Lost, "process_restart", run.unwrap_or_default(), 9);
    if run.is_none() {
        row.fields_mut().remove("_run_id");
    }
    row
}

/// A journal that says this, and in which more may come.
fn evidence(words: &str) -> Evidence {
    let row = FoldedRow {
        content: words.to_owned(),
        reasoning: String::new(),
        timestamp: Some(5),
        first_seq: Some(1),
        parts: Vec::new(),
        truncated_from: None,
    };
    Evidence {
        journal: JournalState::Unsealed { bytes: 100, records: 1 },
        folded: Folded { rows: vec![row], ..Folded::default() },
        ending: None,
        failure: None,
        is_ours: false,
        error_row: None,
        agent: None,
        note: RunNote::default(),
        damaged: 0,
    }
}

/// Whether the one marker of these rows is answered by the words.
fn is_answered(rows: &[Row]) -> bool {
    let session = session(rows);
    let markers = given_up(&session);
    assert_eq!(markers.len(), 1, "{markers:?}");
    markers[0].is_answered_by(&session, &evidence(WORDS))
}

#[test]
fn a_marker_that_names_no_run_is_answered_by_words_that_stand_anywhere() {
    let (user, answer) = (Row::user("Where to?", 1), assistant(WORDS));
    let [before, after] = [[user.clone(), answer.clone()], [user.clone(), lost(None)]];
    assert!(is_answered(&[before.clone(), after.clone()].concat()), "in the turn before");
    assert!(is_answered(&[after.clone(), before].concat()), "in the turn after");
    assert!(is_answered(&[user.clone(), lost(None), answer]), "in its own");
    assert!(!is_answered(&after), "nowhere");
}

#[test]
fn a_marker_that_names_its_run_is_answered_by_words_in_its_own_turn_only() {
    let (user, answer) = (Row::user("Where to?", 1), assistant(WORDS));
    let [other, own] = [[user.clone(), answer.clone()], [user.clone(), lost(Some("r"))]];
    assert!(!is_answered(&[other.clone(), own.clone()].concat()), "in the turn before");
    assert!(!is_answered(&[own.clone(), other].concat()), "in the turn after");
    assert!(is_answered(&[&own[..], std::slice::from_ref(&answer)].concat()), "below it");
    assert!(is_answered(&[user, answer, lost(Some("r"))]), "above it");
}

/// Adds the answer of run `r`, and gives roles and runs of all rows.
fn after_answer(rows: &[Row]) -> Vec<(String, bool, Option<String>)> {
    let mut session = session(rows);
    let said = Said::anywhere(&session);
    assert_eq!(add_answer(&mut session, "r", &evidence(WORDS), 2.0, &said, now()), Ok(1));
    let shown = |row: Row| (row.content().into_owned(), row.is_error(), row.run().map(|run| run.into_owned()));
    session.messages().map(shown).collect()
}

#[test]
fn an_answer_that_a_repair_adds_has_one_marker() {
    let markers = |rows: &[(String, bool, Option<String>)], run: &str| {
        rows.iter().filter(|(_, is_error, of)| *is_error && of.as_deref() == Some(run)).count()
    };
    let with_marker = after_answer(&[prompt_of("r"), lost(Some("r")), Row::user("And then?", 20)]);
    assert_eq!((with_marker.len(), markers(&with_marker, "r")), (4, 1), "{with_marker:?}");
    assert_eq!((with_marker[1].0.as_str(), with_marker[2].1), (WORDS, true), "it stands above its marker");
    let without = after_answer(&[prompt_of("r"), Row::user("And then?", 20)]);
    assert_eq!((without.len(), markers(&without, "r")), (4, 1), "{without:?}");
    let beside = after_answer(&[prompt_of("r"), lost(Some("q")), Row::user("And then?", 20)]);
    assert_eq!(
        (markers(&beside, "r"), markers(&beside, "q")),
        (1, 1),
        "another run's marker is not its own: {beside:?}"
    );
}

#[test]
fn an_answer_without_its_prompt_stands_before_the_turn_that_began_after_it() {
    let rows = [Row::user("Who is there?", 1), Row::user("And then?", 20), assistant("Home.")];
    let shown = after_answer(&rows);
    let place = |words: &str| shown.iter().position(|(content, ..)| content == words).unwrap();
    assert!(place("Who is there?") < place(WORDS), "{shown:?}");
    assert!(place(WORDS) < place("And then?"), "{shown:?}");
}

#[test]
fn only_a_marker_above_which_nothing_stands_and_that_hopes_for_nothing_has_given_up() {
    let (user, recovered) = (Row::user("Where to?", 1), Finding::Recovered);
    let of = |finding: &Finding| interrupted_marker(finding, "process_restart", "r", 9);
    let mut armed = of(&Finding::Pending);
    marker::arm(&mut armed, "r", 0, 9);
    let mut own = assistant(WORDS);
    own.fields_mut().set_text("_recovered_stream_id", "r");
    let count = |rows: &[Row]| given_up(&session(rows)).len();
    assert_eq!(count(&[user.clone(), lost(Some("r"))]), 1);
    assert_eq!(count(&[user.clone(), assistant(WORDS), lost(Some("r"))]), 1, "the row may be another run's");
    assert_eq!(count(&[user.clone(), own, lost(Some("r"))]), 0, "its answer stands above it");
    assert_eq!(count(&[user.clone(), of(&recovered)]), 0, "it says that its answer was recovered");
    assert_eq!(count(&[user.clone(), armed]), 0, "it asks for another look");
    assert_eq!(count(&[user, marker::stopped_marker(9)]), 0, "the user stopped it");
}

#[test]
fn a_repair_adds_no_words_that_stand_somewhere_unless_a_prompt_names_the_run() {
    let mut repeated = session(&[Row::user("Where to?", 1), assistant(&format!("Well. {WORDS}"))]);
    let said = Said::anywhere(&repeated);
    assert_eq!(add_answer(&mut repeated, "r", &evidence(WORDS), 20.0, &said, now()), Ok(0));
    assert_eq!(repeated.len(List::Messages), 2);
    let rows = [Row::user("Where to?", 1), assistant(WORDS), prompt_of("r")];
    assert_eq!(after_answer(&rows)[3].0, WORDS, "an equal answer to a prompt of its own");
}

#[test]
fn an_error_row_that_repeats_the_words_is_no_answer() {
    let mut error = assistant(&format!("Cut off after: {WORDS}"));
    error.fields_mut().set("_error", "true");
    let user = Row::user("Where to?", 1);
    assert!(!is_answered(&[user.clone(), error.clone(), lost(Some("r"))]), "of a marker that names its run");
    assert!(!is_answered(&[user.clone(), error.clone(), lost(None)]), "of one that does not");
    let added = after_answer(&[user, error]);
    assert_eq!(added.iter().filter(|(words, is_error, _)| words == WORDS && !is_error).count(), 1, "{added:?}");
}
