//! Turns that replace others: the place is named by an id, the old rows stay until the new run has ended well, and the ones that
//! do not stand in the transcript are a branch.

use std::fs;

use lastword::{
    AskedBefore, BranchReason, Event, List, Outcome, Replaces, Row, Run, RunId, Store, StoreError, UserTurn,
};
use serde_json::{Value, json};

use crate::fixture::{Fixture, fixture};

fn run_id(name: &str) -> RunId {
    RunId::parse(name).unwrap()
}

fn answer(name: &str) -> UserTurn {
    UserTurn { replaces: Some(Replaces::Answer(name.to_owned())), ..UserTurn::default() }
}

fn edit(name: &str, words: &str) -> UserTurn {
    UserTurn { replaces: Some(Replaces::Message(name.to_owned())), ..UserTurn::text(words) }
}

impl Fixture {
    fn start(&self, name: &str, turn: UserTurn) -> Run {
        self.store.begin_run(&self.id, turn.with_run(run_id(name))).unwrap()
    }

    /// A turn that is answered: a tool call, and words that name the run.
    fn answered(&self, name: &str, turn: UserTurn) {
        let run = self.start(name, turn);
        run.append(Event::tool("t", name, &serde_json::json!({"where": "looks"}))).unwrap();
        run.append(Event::tool_complete("t", name, &serde_json::json!("seen"), false)).unwrap();
        run.append(Event::token(&format!("answer of {name}"))).unwrap();
        run.finish(Outcome::Completed).unwrap();
    }

    /// Five turns, `r1` to `r5`.
    fn five() -> Self {
        let fixture = fixture();
        (1..=5).for_each(|nth| fixture.answered(&format!("r{nth}"), UserTurn::text(&format!("question {nth}"))));
        fixture
    }

    /// The questions, each with the run that its answer names.
    fn talk(&self) -> Vec<String> {
        talk(&self.store, &self.id)
    }

    fn refusal(&self, turn: UserTurn) -> StoreError {
        let before = fs::read(self.folder.path().join(format!("{}.json", self.id))).unwrap();
        let error = self.store.begin_run(&self.id, turn).unwrap_err();
        assert_eq!(before, fs::read(self.folder.path().join(format!("{}.json", self.id))).unwrap());
        error
    }

    fn branches(&self) -> Vec<(String, Option<String>, usize, usize, &'static str)> {
        let branches = self.store.branches(&self.id).unwrap();
        branches
            .into_iter()
            .map(|branch| (branch.branch_id, branch.run_id, branch.at_row, branch.rows, branch.reason.as_str()))
            .collect()
    }
}

pub(crate) fn talk(store: &Store, id: &lastword::SessionId) -> Vec<String> {
    let session = store.get_session(id).unwrap();
    let mut talk: Vec<String> = Vec::new();
    for row in session.messages() {
        match (&*row.role(), row.is_error()) {
            ("user", _) => talk.push(row.content().into_owned()),
            (_, true) => talk.last_mut().unwrap().push_str(" !"),
            _ if row.content().is_empty() => {}
            _ => talk.last_mut().unwrap().push_str(&format!(": {}", row.content())),
        }
    }
    talk
}

fn turns(of: &[(u32, &str)]) -> Vec<String> {
    of.iter().map(|(nth, run)| format!("question {nth}: answer of {run}")).collect()
}

#[test]
fn each_of_five_answers_is_replaced_in_its_own_place_and_the_rest_is_a_branch() {
    for (nth, name) in [(1, "r1"), (3, "r3-user"), (3, "r3"), (5, "r5"), (5, "last")] {
        let fixture = Fixture::five();
        let turn = if name == "last" { UserTurn::last_answer_again() } else { answer(name) };
        let before = fixture.talk();
        let run = fixture.start("new", turn);
        assert_eq!(fixture.talk(), before, "{name}: the old rows stay while it runs");
        assert_eq!(fixture.branches(), [], "{name}");
        run.append(Event::token("answer of new")).unwrap();
        run.finish(Outcome::Completed).unwrap();
        let kept = before[..nth - 1].iter().cloned();
        let expected: Vec<String> = kept.chain([format!("question {nth}: answer of new")]).collect();
        assert_eq!(fixture.talk(), expected, "{name}");
        let session = fixture.store.get_session(&fixture.id).unwrap();
        assert_eq!(session.pending_turn(), None, "{name}");
        let per_turn = 3;
        let rows = (6 - nth) * per_turn;
        let run = Some(format!("r{nth}"));
        let at_row = (nth - 1) * per_turn;
        assert_eq!(fixture.branches(), [("new".to_owned(), run, at_row, rows, "regenerate")], "{name}");
        // The message keeps its id, and tool cards go with their rows.
        let user = session.message(at_row).unwrap();
        assert_eq!(user.fields().text("_message_id").as_deref(), Some(&*format!("r{nth}-user")), "{name}");
        assert_eq!(session.len(List::ToolCalls), nth - 1, "{name}");
        let cards_point = session.tool_cards().all(|card| card.row_index().unwrap() < at_row);
        assert!(cards_point, "{name}");
    }
}

#[test]
fn a_message_that_is_not_known_is_refused_and_nothing_changes() {
    let fixture = Fixture::five();
    for turn in [answer("r6"), answer("row-2"), answer(""), answer("a/b"), edit("r1", "x"), edit("m", "x")] {
        let error = fixture.refusal(turn.clone());
        assert!(matches!(error, StoreError::UnknownMessage { .. }), "{turn:?}: {error:?}");
        assert_eq!(error.code(), "unknown_message");
    }
    let empty = fixture.store.create(lastword::NewSession::titled("empty")).unwrap();
    let error = fixture.store.begin_run(&empty, UserTurn::last_answer_again()).unwrap_err();
    assert_eq!(error.code(), "unknown_message");
    let expected = format!("session {empty} has no question yet that could be answered again: ask one first");
    assert_eq!(error.to_string(), expected);
    assert_eq!(fixture.branches(), []);
}

#[test]
fn an_edit_replaces_from_its_message_on_and_keeps_its_id() {
    for (nth, run) in [(1, "r1-user"), (4, "r4-user")] {
        let fixture = Fixture::five();
        fixture.answered("new", edit(run, "question 9"));
        let mut expected = turns(&[(1, "r1"), (2, "r2"), (3, "r3")][..nth - 1]);
        expected.push("question 9: answer of new".to_owned());
        assert_eq!(fixture.talk(), expected);
        assert_eq!(fixture.branches()[0].4, "edit");
        fixture.answered("newer", edit(run, "question 10"));
        assert_eq!(fixture.talk().last().unwrap(), "question 10: answer of newer");
        assert_eq!(fixture.branches().len(), 2);
    }
}

/// What is noted of the message goes into its row, and with it into the turn that replaces it.
#[test]
fn the_clients_id_and_metadata_are_kept_also_when_the_answer_is_another() {
    let fixture = fixture();
    let given = UserTurn {
        message_id: Some("m-1".to_owned()),
        metadata: Some("{\n\"a\": [1,\t\"x\"]}".to_owned()),
        attachments: r#"[{"type":"file"}]"#.to_owned(),
        ..UserTurn::text("hi")
    };
    let first = fixture.start("r1", given);
    let asked = |run: &str, is_pending| AskedBefore {
        run: Some(run_id(run)),
        message: "hi".to_owned(),
        attachments: r#"[{"type":"file"}]"#.to_owned(),
        is_pending,
    };
    let known = |id| fixture.store.run_of_message(&fixture.id, id).unwrap();
    assert_eq!((known("m-1"), known("r1-user")), (Some(asked("r1", true)), None));
    first.append(Event::token("ho")).unwrap();
    first.finish(Outcome::Completed).unwrap();
    assert_eq!((known("m-1"), known("m-2")), (Some(asked("r1", false)), None));
    let second = fixture.start("r2", answer("m-1"));
    assert_eq!(known("m-1"), Some(asked("r2", true)), "the turn that waits comes first");
    let note = fixture.store.turn_note(&fixture.id, &run_id("r2")).unwrap().unwrap();
    assert_eq!(note.replaces.unwrap().message, "m-1");
    second.finish(Outcome::Completed).unwrap();
    let row = fixture.store.get_session(&fixture.id).unwrap().message(0).unwrap();
    let row: Value = serde_json::from_str(&row.fields().to_json()).unwrap();
    assert_eq!(row["_message_id"], "m-1");
    assert_eq!((&row["_metadata"], &row["attachments"]), (&json!({"a": [1, "x"]}), &json!([{"type": "file"}])));
    assert_eq!(fixture.store.turn_note(&fixture.id, &run_id("r9")).unwrap(), None);
}

#[test]
fn ids_and_metadata_that_cannot_be_kept_are_refused() {
    let fixture = fixture();
    let with_id = |id: &str| UserTurn { message_id: Some(id.to_owned()), ..UserTurn::text("x") };
    let with_metadata = |json: &str| UserTurn { metadata: Some(json.to_owned()), ..UserTurn::text("x") };
    let long = format!("{{\"a\":\"{}\"}}", "x".repeat(32 * 1024));
    let turns = [
        with_id(""),
        with_id("a\n"),
        with_id(&"x".repeat(257)),
        with_metadata("[]"),
        with_metadata("{"),
        with_metadata(&long),
    ];
    for turn in turns {
        assert_eq!(fixture.refusal(turn).code(), "invalid_argument");
    }
    // The most that is taken fits into the run's record.
    let most = format!("{{\"a\":\"{}\"}}", "\\\"".repeat(16 * 1024 - 4));
    let turn = UserTurn { message_id: Some("\u{10348}".repeat(256)), ..with_metadata(&most) };
    fixture.answered("r1", turn);
    let row = fixture.store.get_session(&fixture.id).unwrap().message(0).unwrap();
    assert_eq!(row.fields().get("_metadata"), Some(&*most));
}

/// A run that fails leaves the old answer where it was.
#[test]
fn a_failed_attempt_becomes_the_branch_and_the_old_answer_stays() {
    for is_edit in [false, true] {
        let fixture = Fixture::five();
        let before = fixture.store.get_session(&fixture.id).unwrap();
        let rows = |session: &lastword::Session| session.texts(List::Messages).map(str::to_owned).collect::<Vec<_>>();
        let turn = if is_edit { edit("r4-user", "question 9") } else { answer("r4") };
        let run = fixture.start("new", turn);
        run.append(Event::token("a beginning")).unwrap();
        run.fail("overloaded", "no room today").unwrap();
        let after = fixture.store.get_session(&fixture.id).unwrap();
        assert_eq!(rows(&after), rows(&before));
        assert_eq!(after.len(List::ToolCalls), 5);
        assert_eq!(after.pending_turn(), None);
        assert_eq!(fixture.branches(), [("new".to_owned(), Some("new".to_owned()), 9, 3, "failed")]);
        // Restored, it says what it was.
        let restored = fixture.store.restore_branch(&fixture.id, "new", |_| true).unwrap().unwrap();
        let last: Vec<Row> = restored.messages().skip(9).collect();
        let question = if is_edit { "question 9" } else { "question 4" };
        let said: Vec<String> = last.iter().map(|row| row.content().into_owned()).collect();
        assert_eq!(said, [question, "a beginning", "no room today"]);
        assert!(last[2].is_error());
        let branches = fixture.branches();
        assert_eq!(branches.len(), 1);
        assert_eq!((branches[0].1.as_deref(), branches[0].3, branches[0].4), (Some("r4"), 6, "regenerate"));
        fixture.store.restore_branch(&fixture.id, &branches[0].0, |_| true).unwrap().unwrap();
        assert_eq!(rows(&fixture.store.get_session(&fixture.id).unwrap()), rows(&before));
    }
}

#[test]
fn an_attempt_that_was_stopped_takes_the_place_if_it_said_anything() {
    let fixture = Fixture::five();
    let before = fixture.talk();
    fixture.start("silent", answer("r5")).finish(Outcome::InterruptedByUser).unwrap();
    assert_eq!((fixture.talk(), fixture.branches()), (before.clone(), vec![]));
    // The words of an edit stand nowhere else.
    fixture.start("edited", edit("r5-user", "question 9")).finish(Outcome::InterruptedByUser).unwrap();
    assert_eq!(fixture.talk(), before);
    assert_eq!(fixture.branches()[0].4, "failed");
    let run = fixture.start("new", answer("r5"));
    run.append(Event::token("answer of new")).unwrap();
    run.finish(Outcome::InterruptedByUser).unwrap();
    assert_eq!(fixture.talk().last().unwrap(), "question 5: answer of new !");
    assert_eq!(fixture.branches().len(), 2);
}

#[test]
fn a_limit_of_tool_calls_counts_as_an_answer() {
    let fixture = Fixture::five();
    let run = fixture.start("new", answer("r2"));
    run.append(Event::token("answer of new")).unwrap();
    run.finish(Outcome::ToolLimitReached).unwrap();
    let talk = fixture.talk();
    assert_eq!((talk.len(), talk[1].starts_with("question 2: answer of new")), (2, true), "{talk:?}");
    assert_eq!(fixture.branches()[0].4, "regenerate");
}

/// The client still shows the attempt that failed, and names its run.
#[test]
fn what_a_failed_attempt_should_have_replaced_can_be_asked_again_by_its_run() {
    let fixture = Fixture::five();
    fixture.start("failed", answer("r5")).fail("x", "x").unwrap();
    fixture.answered("new", answer("failed"));
    assert_eq!(fixture.talk(), [turns(&[(1, "r1"), (2, "r2"), (3, "r3"), (4, "r4")]), turns(&[(5, "new")])].concat());
    fixture.start("edited", edit("r5-user", "question 9")).fail("x", "x").unwrap();
    fixture.answered("newer", answer("edited"));
    assert_eq!(fixture.talk().last().unwrap(), "question 9: answer of newer", "the edit is asked again");
    // The same after its branch was restored and taken out again.
    let fixture = Fixture::five();
    fixture.start("edited", edit("r5-user", "question 9")).fail("x", "x").unwrap();
    fixture.store.restore_branch(&fixture.id, "edited", |_| true).unwrap().unwrap();
    let old = fixture.branches()[0].0.clone();
    fixture.store.restore_branch(&fixture.id, &old, |_| true).unwrap().unwrap();
    assert_eq!(fixture.talk().last().unwrap(), "question 5: answer of r5");
    fixture.answered("newer", answer("edited"));
    assert_eq!(fixture.talk().last().unwrap(), "question 9: answer of newer", "the edit is asked again");
    let run = fixture.store.begin_run(&fixture.id, answer("nobody")).unwrap_err();
    assert_eq!(run.code(), "unknown_message");
}

#[test]
fn an_answer_that_failed_or_was_interrupted_is_replaced_with_its_marker() {
    let fixture = fixture();
    fixture.answered("r1", UserTurn::text("question 1"));
    fixture.start("r2", UserTurn::text("question 2")).fail("x", "it broke").unwrap();
    assert_eq!(fixture.talk()[1], "question 2 !");
    fixture.answered("r3", answer("r2"));
    assert_eq!(fixture.talk(), turns(&[(1, "r1"), (2, "r3")]));
    // An orphaned run is recovered first.
    let run = fixture.start("r4", UserTurn::text("question 4"));
    run.append(Event::token("half")).unwrap();
    drop(run);
    let path = fixture.folder.path().to_owned();
    let Fixture { folder, store, id } = fixture;
    drop(store);
    let store = Store::open(&path, lastword::Options::default()).unwrap();
    let fixture = Fixture { folder, store, id };
    fixture.answered("r5", UserTurn::last_answer_again());
    assert_eq!(fixture.talk(), turns(&[(1, "r1"), (2, "r3"), (4, "r5")]));
    let branches = fixture.branches();
    assert_eq!((branches[1].1.as_deref(), branches[1].3), (Some("r4"), 3), "prompt, half and marker");
}

#[test]
fn while_a_run_is_live_nothing_is_replaced_or_restored() {
    let fixture = Fixture::five();
    fixture.answered("new", answer("r5"));
    let run = fixture.start("live", answer("new"));
    for turn in [answer("r1"), edit("r1-user", "x"), UserTurn::last_answer_again(), UserTurn::text("x")] {
        assert!(matches!(fixture.refusal(turn), StoreError::RunInProgress { .. }));
    }
    let refused = fixture.store.restore_branch(&fixture.id, "new", |_| true).unwrap_err();
    assert!(matches!(refused, StoreError::RunInProgress { .. }), "{refused:?}");
    run.finish(Outcome::Completed).unwrap();
    assert_eq!(fixture.branches().len(), 2);
}

#[test]
fn of_two_that_replace_at_once_one_does() {
    let fixture = Fixture::five();
    let begin = || fixture.store.begin_run(&fixture.id, answer("r2"));
    let begun: Vec<Result<Run, StoreError>> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..2).map(|_| scope.spawn(begin)).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    let (run, refused): (Vec<_>, Vec<_>) = begun.into_iter().partition(Result::is_ok);
    assert!(matches!(refused[0], Err(StoreError::RunInProgress { .. })), "{refused:?}");
    run.into_iter().for_each(|run| drop(run.unwrap().finish(Outcome::Completed).unwrap()));
    assert_eq!(fixture.branches().len(), 1);
}

/// The id of a run whose attempt is a branch is taken: another one would overwrite it.
#[test]
fn the_run_of_a_branch_does_not_begin_again() {
    let fixture = Fixture::five();
    let run = fixture.start("new", edit("r5-user", "question 9"));
    drop(run);
    let Fixture { folder, store, id } = fixture;
    drop(store);
    let store = Store::open(folder.path(), lastword::Options::default()).unwrap();
    let fixture = Fixture { folder, store, id };
    assert_eq!(fixture.talk().len(), 5);
    assert_eq!(fixture.branches()[0].4, "failed");
    let refused = fixture.store.begin_run(&fixture.id, UserTurn::text("x").with_run(run_id("new"))).unwrap_err();
    assert!(matches!(refused, StoreError::RunTaken { .. }), "{refused:?}");
}

/// Rows without run ids are named by their places.
#[test]
fn a_session_of_the_reference_program_is_replaced_by_rows() {
    for (name, nth) in [("row-0", 1), ("row-1", 1), ("row-3", 2), ("row-4", 2)] {
        let fixture = fixture();
        let rows: Vec<Value> = vec![
            json!({"role": "user", "content": "question 1", "timestamp": 1}),
            json!({"role": "assistant", "content": "answer of a", "timestamp": 2}),
            json!({"role": "assistant", "content": "more", "timestamp": 2}),
            json!({"role": "user", "content": "question 2", "timestamp": 3}),
            json!({"role": "assistant", "content": "answer of b", "timestamp": 4}),
        ];
        let path = fixture.folder.path().join("ref.json");
        let cards = json!([{"name": "t", "assistant_msg_idx": 1}, {"name": "t", "assistant_msg_idx": 4}]);
        let context: Vec<Value> = rows.iter().filter(|row| row["content"] != "more").cloned().collect();
        let session = json!({"session_id": "ref", "title": "", "created_at": 1.0, "updated_at": 2.0, "message_count": 5,
            "messages": rows, "tool_calls": cards, "context_messages": context});
        fs::write(path, session.to_string()).unwrap();
        let fixture = Fixture { id: lastword::SessionId::parse("ref").unwrap(), ..fixture };
        fixture.answered("new", answer(name));
        let talk = fixture.talk();
        assert_eq!((talk.len(), &*talk[nth - 1]), (nth, &*format!("question {nth}: answer of new")), "{name}");
        let session = fixture.store.get_session(&fixture.id).unwrap();
        let shown: Vec<String> =
            session.texts(List::ContextMessages).map(|row| Row::parse(row).content().into_owned()).collect();
        let at_row = if nth == 1 { 0 } else { 3 };
        if nth == 2 {
            let expected = ["question 1", "answer of a", "question 2", "", "answer of new"];
            assert_eq!(shown, expected, "{name}: the model's own view goes on");
        } else {
            assert_eq!(shown.len(), 0, "{name}: nothing is left of the model's own view");
        }
        let user = session.message(at_row).unwrap();
        assert_eq!(user.fields().text("_message_id").as_deref(), Some(&*format!("row-{at_row}")), "{name}");
        // And back.
        let branch = fixture.branches()[0].clone();
        assert_eq!((branch.1, branch.2, branch.3), (None, at_row, 5 - at_row), "{name}");
        let restored = fixture.store.restore_branch(&fixture.id, &branch.0, |_| true).unwrap().unwrap();
        let found: Vec<Value> = restored.texts(List::Messages).map(|row| serde_json::from_str(row).unwrap()).collect();
        assert_eq!(found, rows, "{name}");
        let shown: Vec<Value> =
            restored.texts(List::ContextMessages).map(|row| serde_json::from_str(row).unwrap()).collect();
        assert_eq!(shown, context, "{name}");
        let indexes: Vec<_> = restored.tool_cards().map(|card| card.row_index().unwrap()).collect();
        assert_eq!(indexes, [1, 4], "{name}");
    }
}

/// A turn that was counted is not another one because the rows before it changed meanwhile.
#[test]
fn a_counted_place_that_moved_is_found_and_one_that_is_gone_replaces_nothing() {
    let rows = |extra: bool| -> Vec<Value> {
        let mut rows = vec![
            json!({"role": "user", "content": "question 1", "timestamp": 1}),
            json!({"role": "user", "content": "question 2", "timestamp": 3}),
            json!({"role": "assistant", "content": "answer of b", "timestamp": 4}),
        ];
        if extra {
            rows.insert(0, json!({"role": "user", "content": "question 0", "timestamp": 1}));
        }
        rows
    };
    let write = |fixture: &Fixture, rows: &[Value]| {
        fixture
            .store
            .update(
                &fixture.id,
                lastword::SaveOptions { intent: lastword::SaveIntent::Shrink, ..Default::default() },
                |session| {
                    session.truncate(List::Messages, 0).unwrap();
                    rows.iter().try_for_each(|row| session.push_item(List::Messages, &row.to_string())).unwrap();
                },
            )
            .unwrap();
    };
    let fixture = fixture();
    write(&fixture, &rows(false));
    let run = fixture.start("new", answer("row-1"));
    write(&fixture, &rows(true));
    run.append(Event::token("answer of new")).unwrap();
    run.finish(Outcome::Completed).unwrap();
    assert_eq!(fixture.talk(), ["question 0", "question 1", "question 2: answer of new"]);
    write(&fixture, &rows(false));
    let run = fixture.start("newer", answer("row-1"));
    write(&fixture, &rows(false)[..1]);
    run.append(Event::token("answer of newer")).unwrap();
    run.finish(Outcome::Completed).unwrap();
    assert_eq!(fixture.talk(), ["question 1", "question 2: answer of newer"], "a turn like any other");
    assert_eq!(BranchReason::Edit.as_str(), "edit");
}

/// The run is not shown what it replaces.
#[test]
fn the_session_for_a_run_ends_before_the_turn_that_it_replaces() {
    let fixture = Fixture::five();
    let run = fixture.start("new", answer("r3"));
    let shown = fixture.store.session_for_run(&fixture.id, run.id()).unwrap();
    assert_eq!((shown.len(List::Messages), shown.pending_turn().unwrap().message), (6, "question 3".to_owned()));
    assert_eq!(fixture.store.get_session(&fixture.id).unwrap().len(List::Messages), 15);
    run.finish(Outcome::Completed).unwrap();
    let shown = fixture.store.session_for_run(&fixture.id, run.id()).unwrap();
    assert_eq!(shown.len(List::Messages), 7);
}
