//! What has to hold after a run was killed, whenever that was: what was printed is kept, the prompt is there once, nobody
//! of the agent is left behind, nothing is answered twice, and the conversation goes on.

use std::fs;
use std::path::PathBuf;

use serde_json::Value;

use crate::data::{PROMPT, RUN, SESSION};
use crate::scene::{PLAIN_ANSWER, Scene, event, names};
use crate::table::NOBODY;

const NEXT_PROMPT: &str = "Und dann?";
const NEXT_RUN: &str = "r2";

/// Looks at a scene after its run was killed, or has come to its end, with all that it had printed.
pub(crate) fn check(scene: &Scene, printed: &[String]) {
    let journalled = check_events(scene, printed);
    let is_begun = check_prompt(scene, &journalled);
    check_nobody_is_left(scene);
    let work = scene.work(RUN).len();
    let attempts = names(&journalled).iter().filter(|name| *name == "attempt").count();
    assert!(work <= attempts, "{work} times at work in {attempts} attempts");
    check_transcript(scene, is_begun, &journalled);
    check_next_turn(scene, is_begun, &journalled);
    assert!(scene.journalled(RUN) == journalled, "the events of the run changed");
    assert_eq!(scene.work(RUN).len(), work, "the turn was answered again");
}

/// Every event that was printed is there, byte by byte, and nothing stands between them.
fn check_events(scene: &Scene, printed: &[String]) -> Vec<String> {
    let journalled = scene.journalled(RUN);
    assert!(journalled.starts_with(printed), "printed {printed:#?}\nis not what is kept: {journalled:#?}");
    journalled
}

/// The prompt is in the session once, pending or as a row, if there is any event; otherwise it may be missing.
fn check_prompt(scene: &Scene, journalled: &[String]) -> bool {
    let session = scene.data.stored().expect("the session is there");
    let is_pending = session["pending_user_message"] == PROMPT;
    assert!(!is_pending || session["active_stream_id"] == RUN, "half a turn: {session}");
    let times = usize::from(is_pending) + rows_of_user(&session, PROMPT);
    assert!(times <= 1 && (times == 1 || journalled.is_empty()), "the prompt is there {times} times: {session}");
    times == 1
}

/// The next writer, whatever it writes, finds nobody or ends them, and clears away the notes.
fn check_nobody_is_left(scene: &Scene) {
    let noted = scene.notes().len();
    let new = scene.data.must(&["new"]);
    assert_eq!(scene.notes(), [] as [PathBuf; 0], "{}", new.stderr);
    match noted {
        // Whoever was started and not noted ends by itself.
        0 => scene.wait_until_nobody_is_left(),
        _ => assert_eq!(scene.survivors(), NOBODY, "{}", new.stderr),
    }
}

/// The whole text of the tokens is there once, with a marker behind it unless it is complete. Reading again changes
/// nothing.
fn check_transcript(scene: &Scene, is_begun: bool, journalled: &[String]) {
    let session = scene.shown();
    assert_eq!(rows_of_user(&session, PROMPT), usize::from(is_begun), "{session}");
    let rows: Vec<&Value> = rows(&session).iter().skip_while(|row| row["content"] != PROMPT).skip(1).collect();
    let (markers, said): (Vec<&Value>, Vec<&Value>) = rows.iter().partition(|row| row["_error"] == true);
    assert!(said.iter().all(|row| row["role"] == "assistant"), "{session}");
    assert_eq!(texts(said.iter().map(|row| &row["content"])), texts_of(journalled, "token"), "{session}");
    assert_eq!(texts(said.iter().map(|row| &row["reasoning"])), texts_of(journalled, "reasoning"), "{session}");
    let has_tools = names(journalled).iter().any(|name| name == "tool");
    assert!(has_tools || said.len() <= 1, "one answer is torn: {session}");
    let is_cut = is_begun && !is_complete(journalled);
    assert_eq!(markers.len(), usize::from(is_cut), "{session}");
    check_reading_changes_nothing(scene, &session);
}

/// But for the count of a marker that hopes for more.
fn check_reading_changes_nothing(scene: &Scene, session: &Value) {
    let before = files(scene);
    let again = scene.shown();
    match rows(session).iter().any(|row| row["_pending_journal_recovery"] == true) {
        true => assert_eq!(uncounted(again), uncounted(session.clone())),
        false => {
            assert_eq!(&again, session);
            assert!(files(scene) == before, "reading again changed something");
        }
    }
}

/// A session without the count of looks that were in vain.
fn uncounted(mut session: Value) -> Value {
    let rows = session["messages"].as_array_mut().expect("a session has messages");
    rows.iter_mut().filter_map(Value::as_object_mut).for_each(|row| drop(row.remove("_journal_retry_attempts")));
    session
}

/// Another turn is answered, by an agent that is told what there was of the first.
fn check_next_turn(scene: &Scene, is_begun: bool, journalled: &[String]) {
    let before = rows(&scene.shown()).len();
    scene.data.must(&["run", SESSION, "--message", NEXT_PROMPT, "--run", NEXT_RUN, "--runner", "agent"]);
    let work = scene.work(NEXT_RUN);
    assert_eq!(work.len(), 1, "the next turn is answered once");
    let context = work[0]["context"].as_array().expect("the agent is told a conversation");
    let said_by = |role: &str| texts(context.iter().filter(|row| row["role"] == role).map(|row| &row["content"]));
    let user = said_by("user");
    assert_eq!(user.matches(&squashed(PROMPT)).count(), usize::from(is_begun), "{context:?}");
    assert!(user.ends_with(&squashed(NEXT_PROMPT)), "{context:?}");
    assert!(said_by("assistant").ends_with(&texts_of(journalled, "token")), "{context:?}");
    let session = scene.shown();
    let new = &rows(&session)[before..];
    let contents: Vec<&Value> = new.iter().map(|row| &row["content"]).collect();
    assert_eq!(contents, [NEXT_PROMPT, PLAIN_ANSWER], "{session}");
}

/// Whether a run has come to its end in peace.
pub(crate) fn is_complete(journalled: &[String]) -> bool {
    journalled.last().is_some_and(|last| event(last)["terminal_state"] == "completed")
}

fn rows(session: &Value) -> &[Value] {
    session["messages"].as_array().expect("a session has messages")
}

fn rows_of_user(session: &Value, text: &str) -> usize {
    rows(session).iter().filter(|row| row["role"] == "user" && row["content"] == text).count()
}

/// The texts of all events of a name, one behind the other.
fn texts_of(journalled: &[String], name: &str) -> String {
    let events: Vec<Value> = journalled.iter().map(|line| event(line)).collect();
    texts(events.iter().filter(|event| event["event"] == name).map(|event| &event["payload"]["text"]))
}

fn texts<'v>(values: impl Iterator<Item = &'v Value>) -> String {
    squashed(&values.filter_map(Value::as_str).collect::<Vec<_>>().concat())
}

/// Without white space, which is not kept at the edges of rows.
fn squashed(text: &str) -> String {
    text.split_whitespace().collect()
}

/// Every file of the data directory, but for the lock that says who wrote last.
fn files(scene: &Scene) -> Vec<(PathBuf, Vec<u8>)> {
    let paths = scene.data.everything().into_iter().filter(|path| path.is_file() && !path.ends_with("_lock"));
    let mut files: Vec<_> = paths.map(|path| (path.clone(), fs::read(path).expect("it can be read"))).collect();
    files.sort();
    files
}
