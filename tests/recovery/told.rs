//! What tools were really called with and what they answered, and the note of the run, through recovery and growth.

use lastword::model::fold::StoredValue;
use lastword::{Attachment, AttachmentId, ContextMessage, Event, NewSession, Outcome, Session, Store, UserTurn};
use serde_json::{Value, json};

use crate::scene::{BEGAN, RUN, Scene, id, rows, run};

/// The arguments and the results of the calls that a model is shown.
fn shown(store: &Store) -> Vec<(String, String)> {
    let context = store.context(&id()).unwrap();
    assert_eq!(context.left_out, []);
    let calls = context.messages.into_iter().flat_map(|message| match message {
        ContextMessage::Assistant { calls, .. } => calls,
        _ => Vec::new(),
    });
    calls.map(|call| (call.arguments, call.result.text)).collect()
}

fn cards(session: &Session) -> Vec<Value> {
    session.tool_cards().map(|card| serde_json::from_str(&card.fields().to_json()).unwrap()).collect()
}

fn large() -> String {
    "\u{e9}\n\"".repeat(40_000)
}

fn events() -> Vec<Event> {
    vec![
        Event::token("Let me see. "),
        Event::tool("a", "cat", &json!({"path": "/", "n": 1.5, "flags": [true, null], "d": {"e": {}}, "five": "5"})),
        Event::tool("b", "cat", &json!({"text": large()})),
        Event::tool_complete("b", "cat", &json!({"rows": [large(), 7]}), false),
        Event::token("And so on."),
        Event::tool_complete("a", "cat", &json!("no such file"), true),
    ]
}

/// What a model is to be shown after so many of the events.
fn expected(count: usize) -> Vec<(String, String)> {
    let interrupted = || "The tool was interrupted before it answered.".to_owned();
    let args = |at: usize| {
        let payload: Value = serde_json::from_str(events()[at].payload()).unwrap();
        payload["args"].to_string()
    };
    let a = (args(1), if count > 5 { "no such file".to_owned() } else { interrupted() });
    let b = (args(2), if count > 3 { json!({"rows": [large(), 7]}).to_string() } else { interrupted() });
    [a, b].into_iter().take(count.saturating_sub(1).min(2)).collect()
}

fn begun(scene: &Scene) -> Store {
    let store = scene.open();
    store.create(NewSession::titled("A talk").with_id(id())).unwrap();
    store
}

#[test]
fn a_run_that_is_killed_after_any_event_shows_a_model_exactly_what_its_tools_did() {
    for count in 0..=events().len() {
        let scene = Scene::new();
        let store = begun(&scene);
        let begun = store.begin_run(&id(), UserTurn::text("Go").with_run(run(RUN))).unwrap();
        events().into_iter().take(count).for_each(|event| drop(begun.append(event).unwrap()));
        drop((begun, store));
        scene.wait(60);
        let store = scene.open();
        assert_eq!(shown(&store), expected(count), "{count}");
        let stored = std::fs::read(scene.root.join("talk.json")).unwrap();
        drop(store);
        scene.wait(60);
        let store = scene.open();
        assert_eq!(shown(&store), expected(count), "{count}, read again");
        assert_eq!(std::fs::read(scene.root.join("talk.json")).unwrap(), stored, "{count}");
    }
}

#[test]
fn an_answer_that_grows_after_it_was_recovered_shows_every_call_once_and_whole() {
    for count in 0..=events().len() {
        let scene = Scene::new();
        let store = begun(&scene);
        let begun = store.begin_run(&id(), UserTurn::text("Go").with_run(run(RUN))).unwrap();
        events().into_iter().take(count).for_each(|event| drop(begun.append(event).unwrap()));
        drop(begun);
        scene.wait(60);
        assert_eq!(shown(&store), expected(count), "{count}");
        let late = store.resume_run(&id(), &run(RUN)).unwrap();
        for (nth, event) in events().into_iter().enumerate().skip(count) {
            late.append(event).unwrap();
            assert_eq!(shown(&store), expected(nth + 1), "{count} and on to {nth}");
        }
        late.finish(Outcome::Completed).unwrap();
        assert_eq!(shown(&store), expected(events().len()), "{count}");
        assert_eq!(store.get_session(&id()).unwrap().tool_cards().len(), 2);
    }
}

#[test]
fn large_values_lie_beside_the_session_and_not_in_its_document() {
    let scene = Scene::new();
    let store = begun(&scene);
    let begun = store.begin_run(&id(), UserTurn::text("Go").with_run(run(RUN))).unwrap();
    events().into_iter().for_each(|event| drop(begun.append(event).unwrap()));
    begun.finish(Outcome::Completed).unwrap();
    assert!(std::fs::metadata(scene.root.join("talk.json")).unwrap().len() < 20_000);
    let session = store.get_session(&id()).unwrap();
    for card in session.tool_cards().filter(|card| card.fields().text("_call_id").as_deref() == Some("b")) {
        for key in ["_args", "_result"] {
            let stored = StoredValue::parse(card.fields().get(key).unwrap()).unwrap();
            let Attachment { media_type, bytes, .. } = store.attachment(&id(), &stored.id).unwrap().unwrap();
            assert_eq!((media_type.as_str(), bytes), ("application/json", stored.bytes));
        }
    }
    let left: Vec<_> = session.context().left_out.into_iter().map(|left| left.what).collect();
    assert_eq!(left, ["the arguments of the tool cat", "the result of the tool cat"]);
}

/// A document of an earlier version has no such keys. What its journal still tells comes with the next look.
#[test]
fn cards_of_an_earlier_version_get_what_their_journal_tells_once_it_grows() {
    let scene = Scene::new();
    scene.pending(&[], "Go");
    scene.journal(RUN, 1, &[("tool", json!({"id": "a", "name": "ls", "args": {"p": [1]}, "preview": "x"}))]);
    scene.open().get_session(&id()).unwrap();
    scene.edit(|session| {
        let card = session["tool_calls"][0].as_object_mut().unwrap();
        card.retain(|key, _| !matches!(key.as_str(), "_call_id" | "_args"));
    });
    let store = scene.open();
    assert_eq!(shown(&store).len(), 1, "it is shown all the same");
    scene.journal(RUN, 2, &[("token", json!({"text": "more"}))]);
    let session = store.get_session(&id()).unwrap();
    let card = &cards(&session)[0];
    assert_eq!((&card["_call_id"], &card["_args"], &card["preview"]), (&json!("a"), &json!({"p": [1]}), &json!("x")));
    assert_eq!(session.tool_cards().len(), 1);
}

/// The value may have been lost with a disk: a repair finds it in the journal.
#[test]
fn what_is_missing_is_left_out_and_said_and_does_not_spoil_the_conversation() {
    let scene = Scene::new();
    let store = begun(&scene);
    let begun = store.begin_run(&id(), UserTurn::text("Go").with_run(run(RUN))).unwrap();
    events().into_iter().for_each(|event| drop(begun.append(event).unwrap()));
    begun.finish(Outcome::Completed).unwrap();
    std::fs::remove_dir_all(scene.root.join("_attachments")).unwrap();
    let context = store.context(&id()).unwrap();
    let left: Vec<_> = context.left_out.iter().map(|left| left.what.as_str()).collect();
    assert_eq!(left, ["the arguments of the tool cat", "the result of the tool cat"]);
    assert!(context.to_json().contains("bytes, which are left out here"));
}

#[test]
fn a_users_files_reach_a_model_or_are_named() {
    let scene = Scene::new();
    let store = begun(&scene);
    let image = store.put_attachment(&id(), b"\x89PNG", "image/png", Some("a.png")).unwrap();
    let text = store.put_attachment(&id(), b"words", "text/plain", None).unwrap();
    let file = |kind: &str, url: String| json!({"type": "file", "mediaType": kind, "url": url});
    let attachments = json!([
        file("image/png", image.id.to_url()),
        {"type": "file", "url": text.id.to_url(), "filename": "w.txt"},
        file("image/gif", "data:image/gif;base64,R0lG".to_owned()),
        file("application/pdf", "data:application/pdf;base64,JVBE".to_owned()),
        file("image/jpeg", "https://a/b.jpg".to_owned()),
        file("application/pdf", "https://a/b.pdf".to_owned()),
        file("image/png", AttachmentId::of_bytes(b"gone").to_url()),
        {"path": "/tmp/x", "name": "x"},
    ]);
    let turn = UserTurn { attachments: attachments.to_string(), ..UserTurn::text("Look") };
    drop(store.begin_run(&id(), turn).unwrap());
    let context = store.context(&id()).unwrap();
    let messages: Value = serde_json::from_str(&context.to_json()).unwrap();
    let image = |url: &str| json!({"type": "image_url", "image_url": {"url": url}});
    let file = |name: &str, data: &str| json!({"type": "file", "file": {"filename": name, "file_data": data}});
    assert_eq!(
        messages[0]["content"],
        json!([
            {"type": "text", "text": "Look"},
            image("data:image/png;base64,iVBORw=="),
            file("w.txt", "data:text/plain;base64,d29yZHM="),
            image("data:image/gif;base64,R0lG"),
            file("file", "data:application/pdf;base64,JVBE"),
            image("https://a/b.jpg"),
        ])
    );
    let left: Vec<_> = context.left_out.iter().map(|left| left.what.as_str()).collect();
    assert_eq!(left, ["application/pdf", "image/png", "x"]);
}

fn note(store: &Store) -> Value {
    rows(&store.get_session(&id()).unwrap())[0]["_run"].clone()
}

#[test]
fn the_prompt_notes_how_its_run_went() {
    let scene = Scene::new();
    scene.pending(&[], "Go");
    let told = [
        ("metadata", json!({"a": {"b": 1}})),
        ("usage", json!({"prompt_tokens": 3, "completion_tokens": 4, "model": "m"})),
        ("token", json!({"text": "x"})),
        ("metadata", json!({"a": {"c": 2}})),
    ];
    scene.journal(RUN, 1, &told);
    let store = scene.open();
    let usage = json!({"input_tokens": 3, "output_tokens": 4, "total_tokens": 7});
    let metadata = json!({"a": {"b": 1, "c": 2}});
    assert_eq!(
        note(&store),
        json!({"state": "interrupted-by-crash", "model": "m", "usage": null, "usage_at_least": usage, "began_at": BEGAN as f64, "ended_at": null, "metadata": metadata})
    );
    scene.journal(RUN, 5, &[("done", json!({}))]);
    let noted = note(&store);
    assert_eq!((&noted["state"], &noted["ended_at"]), (&json!("completed"), &json!(BEGAN + 5)));
    assert_eq!((&noted["began_at"], &noted["usage"]), (&json!(BEGAN as f64), &usage));
}

#[test]
fn a_run_that_ended_notes_it_too() {
    for (end, word) in [
        (Outcome::Completed, "completed"),
        (Outcome::ToolLimitReached, "tool_limit_reached"),
        (Outcome::InterruptedByUser, "interrupted-by-user"),
        (Outcome::Errored, "errored"),
    ] {
        let scene = Scene::new();
        let store = begun(&scene);
        let begun = store.begin_run(&id(), UserTurn::text("Go").with_run(run(RUN))).unwrap();
        begun.append(Event::usage(None, Some(1), Some(2))).unwrap();
        begun.finish(end).unwrap();
        let noted = note(&store);
        let told = if end.is_by_itself() { "usage" } else { "usage_at_least" };
        assert_eq!((&noted["state"], &noted[told]["total_tokens"]), (&json!(word), &json!(3)));
        assert_eq!(noted["usage"].is_null(), !end.is_by_itself(), "{noted}");
        assert!(noted["began_at"].is_number() && noted["ended_at"].is_number(), "{noted}");
    }
}

#[test]
fn files_sources_and_data_stand_in_the_row_that_they_came_with() {
    let scene = Scene::new();
    let store = begun(&scene);
    let begun = store.begin_run(&id(), UserTurn::text("Go").with_run(run(RUN))).unwrap();
    let data = |value: u64| Event::data("progress", Some("1"), &json!(value));
    for event in [
        Event::source("s", "https://a", None),
        data(1),
        Event::token("To "),
        Event::file("image/png", "https://a/b"),
        Event::token("the sea."),
        data(2),
        Event::tool("a", "ls", &json!({})),
        Event::token("Home."),
    ] {
        begun.append(event).unwrap();
    }
    let parts = json!([
        [{"type": "source-url", "sourceId": "s", "url": "https://a"}, {"type": "data-progress", "id": "1", "data": 2}],
        [{"type": "file", "mediaType": "image/png", "url": "https://a/b"}],
        null,
    ]);
    let assert_parts = |store: &Store, what: &str| {
        let session = store.get_session(&id()).unwrap();
        let answer: Vec<Value> =
            rows(&session).into_iter().filter(|row| row["role"] == "assistant" && row["_error"].is_null()).collect();
        let said: Vec<_> = answer.iter().map(|row| row["content"].as_str().unwrap()).collect();
        assert_eq!(said, ["", "To the sea.", "Home."], "{what}");
        assert_eq!(Value::from_iter(answer.iter().map(|row| row["_parts"].clone())), parts, "{what}");
    };
    drop(begun);
    scene.wait(60);
    assert_parts(&store, "recovered");
    store.resume_run(&id(), &run(RUN)).unwrap().finish(Outcome::Completed).unwrap();
    assert_parts(&store, "ended after all");
}
