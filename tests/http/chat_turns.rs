//! Turns of a chat: repeated, edited, answered again, and put back.

use std::thread;
use std::time::Duration;

use serde_json::json;

use crate::chat_client::{
    branches, chat_house, chunks, demo_house, edit, live_run, regenerate, rows, run_of, stop, submit, text_of, user,
};
use crate::wire::ask;

#[test]
fn the_same_message_id_again_is_the_same_turn() {
    let house = chat_house();
    let first = submit(&house, "c", user("m1", "hello")).expect(200);
    let again = submit(&house, "c", user("m1", "hello")).expect(200);
    assert_eq!(run_of(&first), run_of(&again));
    assert_eq!(text_of(&chunks(&first)), text_of(&chunks(&again)));
    assert_eq!(rows(&house, "c"), ["user: hello", "assistant: hello! 0 files"]);
    submit(&house, "c", user("m2", "more")).expect(200);
    assert_eq!(run_of(&submit(&house, "c", user("m1", "hello")).expect(200)), run_of(&first));
    assert_eq!(submit(&house, "c", user("m1", "other")).expect(409).code(), "conflict");
    assert_eq!(rows(&house, "c").len(), 4);
}

#[test]
fn a_message_that_is_being_answered_is_streamed_to_its_repeat() {
    let house = chat_house();
    thread::scope(|scope| {
        let first = scope.spawn(|| submit(&house, "c", user("m1", "half")));
        let run = live_run(&house, "c");
        let again = scope.spawn(|| submit(&house, "c", user("m1", "half")));
        assert_eq!(submit(&house, "c", user("m1", "other")).expect(409).code(), "conflict");
        assert_eq!(submit(&house, "c", user("m2", "next")).expect(409).code(), "run_in_progress");
        thread::sleep(Duration::from_millis(100));
        stop(&house, "c", &run);
        for answer in [first, again] {
            assert_eq!(run_of(&answer.join().unwrap().expect(200)), run);
        }
    });
}

#[test]
fn two_requests_with_one_message_at_once_begin_one_turn() {
    let house = demo_house(Duration::from_millis(2));
    for chat in ["c1", "c2", "c3", "c4"] {
        let send = || run_of(&submit(&house, chat, user("m1", "hello")).expect(200));
        let runs = thread::scope(|scope| [scope.spawn(send), scope.spawn(send)].map(|sent| sent.join().unwrap()));
        assert_eq!(runs[0], runs[1]);
        let questions = rows(&house, chat).into_iter().filter(|row| row.starts_with("user")).count();
        assert_eq!(questions, 1);
    }
}

#[test]
fn the_clients_ids_and_metadata_are_kept() {
    let house = chat_house();
    let mut message = user("m1", "hello");
    message["metadata"] = json!({ "from": "phone" });
    submit(&house, "c", message).expect(200);
    let row = house.get("/v1/sessions/c").json()["messages"][0].clone();
    assert_eq!((row["_message_id"].clone(), row["_metadata"].clone()), (json!("m1"), json!({ "from": "phone" })));
    let bad = json!({ "id": "m2", "role": "user", "metadata": 7, "parts": [{ "type": "text", "text": "x" }] });
    submit(&house, "c", bad).expect(400);
    submit(&house, "c", user(&"x".repeat(300), "x")).expect(400);
    assert_eq!(rows(&house, "c").len(), 2);
}

#[test]
fn an_edit_replaces_the_message_and_what_follows_which_becomes_a_branch() {
    let house = chat_house();
    for (id, text) in [("m1", "one"), ("m2", "two"), ("m3", "three")] {
        submit(&house, "c", user(id, text)).expect(200);
    }
    let run = run_of(&edit(&house, "c", user("m2", "deux")).expect(200));
    assert_eq!(rows(&house, "c"), ["user: one", "assistant: one! 0 files", "user: deux", "assistant: deux! 0 files"]);
    let branches = branches(&house, "c");
    assert_eq!((branches.len(), &branches[0]["reason"], &branches[0]["at_row"]), (1, &json!("edit"), &json!(2)));
    assert_eq!((&branches[0]["rows"], &branches[0]["branch_id"]), (&json!(4), &json!(run)));
    let row = house.get("/v1/sessions/c").json()["messages"][2].clone();
    assert_eq!(row["_message_id"], "m2");
}

#[test]
fn an_edit_of_a_message_that_is_not_there_is_refused_and_begins_nothing() {
    let house = chat_house();
    assert_eq!(edit(&house, "new", user("m1", "x")).expect(400).code(), "unknown_message");
    house.get("/v1/sessions/new").expect(404);
    let run = run_of(&submit(&house, "c", user("m1", "one")).expect(200));
    assert_eq!(edit(&house, "c", user("m9", "x")).expect(400).code(), "unknown_message");
    // The id of an answer is not that of a message of the user.
    assert_eq!(edit(&house, "c", user(&run, "x")).expect(400).code(), "unknown_message");
    assert_eq!(rows(&house, "c").len(), 2);
}

#[test]
fn the_first_the_middle_and_the_last_answer_can_be_given_again() {
    let house = chat_house();
    let runs: Vec<String> = [("m1", "one"), ("m2", "two"), ("m3", "three")]
        .map(|(id, text)| run_of(&submit(&house, "c", user(id, text)).expect(200)))
        .into();
    // The last, as the client does that names nothing.
    let last = run_of(&regenerate(&house, "c", None, &[user("m3", "three")]).expect(200));
    assert_ne!(last, runs[2]);
    assert_eq!(rows(&house, "c").len(), 6);
    // The middle one by its run, the client holding a part of the transcript.
    regenerate(&house, "c", Some(&runs[1]), &[user("m2", "two")]).expect(200);
    assert_eq!(rows(&house, "c"), ["user: one", "assistant: one! 0 files", "user: two", "assistant: two! 0 files"]);
    // The first one by its message.
    let first = run_of(&regenerate(&house, "c", Some("m1"), &[user("m1", "one")]).expect(200));
    assert_eq!(rows(&house, "c"), ["user: one", "assistant: one! 0 files"]);
    let session = house.get("/v1/sessions/c").json();
    assert_eq!(session["messages"][0]["_message_id"], "m1");
    assert_eq!(session["messages"][1]["_run_id"], json!(first));
    assert_eq!(branches(&house, "c").len(), 3);
    for unknown in [&runs[2][..], "nothing"] {
        assert_eq!(regenerate(&house, "c", Some(unknown), &[]).expect(400).code(), "unknown_message", "{unknown}");
    }
    assert_eq!(regenerate(&house, "new", None, &[]).expect(404).code(), "not_found");
}

#[test]
fn another_answer_without_an_id_is_for_the_last_message_of_the_client() {
    let house = chat_house();
    for (id, text) in [("m1", "one"), ("m2", "two")] {
        submit(&house, "c", user(id, text)).expect(200);
    }
    // Without any message: the last answer.
    regenerate(&house, "c", None, &[]).expect(200);
    assert_eq!(rows(&house, "c").len(), 4);
    // A message that the client has changed is an edit.
    regenerate(&house, "c", None, &[user("m2", "deux")]).expect(200);
    assert_eq!(rows(&house, "c")[2..], ["user: deux", "assistant: deux! 0 files"]);
    // An id of another program's: the words say which.
    regenerate(&house, "c", None, &[user("x", "deux")]).expect(200);
    assert_eq!(rows(&house, "c").len(), 4);
    regenerate(&house, "c", None, &[user("m3", "three")]).expect(200);
    assert_eq!(rows(&house, "c").len(), 6);
}

#[test]
fn an_answer_that_cannot_be_given_again_stays_and_the_failed_one_is_a_branch() {
    let house = chat_house();
    submit(&house, "c", user("m1", "one")).expect(200);
    let before = rows(&house, "c");
    edit(&house, "c", user("m1", "fail")).expect(200);
    assert_eq!(rows(&house, "c"), before);
    let failed = branches(&house, "c");
    assert_eq!((failed.len(), &failed[0]["reason"]), (1, &json!("failed")));
    let nobody =
        json!({ "id": "c", "runner": "nobody", "messages": [user("m1", "one")], "trigger": "regenerate-message" });
    assert_eq!(house.post("/api/chat", nobody).expect(400).code(), "unknown_runner");
    thread::scope(|scope| {
        scope.spawn(|| edit(&house, "c", user("m1", "hang")));
        let run = live_run(&house, "c");
        assert_eq!(regenerate(&house, "c", Some("m1"), &[]).expect(409).code(), "run_in_progress");
        assert_eq!(rows(&house, "c"), before, "the old rows stay while the new answer is being made");
        stop(&house, "c", &run);
    });
    assert_eq!(rows(&house, "c"), before);
}

#[test]
fn a_branch_is_put_back_by_a_client_that_knows_the_revision() {
    let house = chat_house();
    submit(&house, "c", user("m1", "one")).expect(200);
    edit(&house, "c", user("m1", "uno")).expect(200);
    let branch = branches(&house, "c")[0]["branch_id"].as_str().unwrap().to_owned();
    let restore = |id: &str, tag: Option<&str>| {
        let restore = ask("POST", &format!("/v1/sessions/c/branches/{id}/restore"));
        house.send(&tag.map_or(restore.clone(), |tag| restore.header("if-match", tag)))
    };
    assert_eq!(restore(&branch, None).expect(428).code(), "precondition_required");
    assert_eq!(restore(&branch, Some("\"old\"")).expect(412).code(), "precondition_failed");
    assert_eq!(restore("nothing", Some("*")).expect(404).code(), "not_found");
    assert_eq!(restore("..", Some("*")).expect(404).code(), "not_found");
    let tag = house.get("/v1/sessions/c").header("etag").unwrap().to_owned();
    let restored = restore(&branch, Some(&tag)).expect(200);
    assert_eq!(restored.json()["message_count"], 2);
    assert_ne!(restored.header("etag"), Some(&tag[..]));
    assert_eq!(rows(&house, "c"), ["user: one", "assistant: one! 0 files"]);
    assert_eq!(branches(&house, "c").len(), 1);
    house.get("/v1/sessions/none/branches").expect(404);
    house.send(&ask("POST", "/v1/sessions/none/branches/x/restore").header("if-match", "*")).expect(404);
}

#[test]
fn a_message_that_is_refused_begins_no_chat() {
    let house = chat_house();
    let mut large = user("m1", "x");
    large["metadata"] = json!({ "note": "x".repeat(40_000) });
    for message in [large, user(&"x".repeat(257), "x")] {
        submit(&house, "new", message).expect(400);
        house.get("/v1/sessions/new").expect(404);
    }
}

#[test]
fn results_of_tools_in_rows_of_the_user_are_not_answered_again() {
    let house = chat_house();
    let rows = json!([
        { "role": "user", "content": "weather?", "timestamp": 1 },
        { "role": "assistant", "content": [{ "type": "tool_use", "id": "a", "name": "look", "input": {} }], "timestamp": 2 },
        { "role": "user", "content": [{ "type": "tool_result", "tool_use_id": "a", "content": "sun" }], "timestamp": 3 },
        { "role": "assistant", "content": "It is sunny.", "timestamp": 4 },
    ]);
    let session = json!({ "session_id": "old", "title": "", "created_at": 1.0, "updated_at": 2.0, "messages": rows });
    let path = house.data().join("old.json");
    std::fs::write(path, session.to_string()).unwrap();
    let question = json!({ "id": "x", "role": "user", "parts": [{ "type": "text", "text": "weather?" }] });
    for messages in [vec![], vec![question]] {
        regenerate(&house, "old", None, &messages).expect(200);
        assert_eq!(crate::chat_client::rows(&house, "old"), ["user: weather?", "assistant: weather?! 0 files"]);
        let branch = branches(&house, "old")[0].clone();
        assert_eq!((&branch["at_row"], &branch["reason"]), (&json!(0), &json!("regenerate")));
    }
    assert_eq!(branches(&house, "old")[0]["rows"], 4);
}

#[test]
fn a_message_may_not_have_the_id_of_an_answer() {
    let house = chat_house();
    let run = run_of(&submit(&house, "c", user("m1", "one")).expect(200));
    assert_eq!(submit(&house, "c", user(&run, "two")).expect(409).code(), "conflict");
    assert_eq!(rows(&house, "c").len(), 2);
}
