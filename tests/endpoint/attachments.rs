//! Files of a message: sent as content parts, byte for byte, or said to be left out.

use lastword::model::AttachmentId;
use lastword::{RunId, UserTurn};
use serde_json::{Value, json};

use crate::house::{House, PATIENT, in_time, text};
use crate::server::Server;
use crate::words::{DONE, HEAD, call, document, fine, finish, sends, thought, word};

const PNG: &[u8] = b"\x89PNG\r\n\x1a\n and what follows \x00\xff";
const PNG_BASE64: &str = "iVBORw0KGgogYW5kIHdoYXQgZm9sbG93cyAA/w==";
const REQUEST: &str = r#"{"model":"test-model","stream":true,"stream_options":{"include_usage":true},"messages":"#;

/// A file of a message, as the chat stores it.
fn file(media_type: &str, name: &str, url: &str) -> Value {
    json!({"type": "file", "mediaType": media_type, "filename": name, "url": url})
}

/// Stores bytes, and gives the URL that a message names them by.
fn stored(house: &House, bytes: &[u8], media_type: &str) -> String {
    house.store.put_attachment(&house.session, bytes, media_type, None).unwrap().id.to_url()
}

/// Asks a question that comes with files.
async fn ask(house: &House, message: &str, files: &[Value]) -> RunId {
    let turn = UserTurn { attachments: json!(files).to_string(), ..UserTurn::text(message) };
    let mut started = house.supervisor.start(&house.session, turn, None).await.unwrap();
    let end = in_time(started.ended()).await;
    assert!(end.is_completed(), "{end:?}");
    started.gone().await;
    started.run().clone()
}

/// What the `data` event of a run says was not sent.
fn unsent(house: &House, run: &RunId) -> Vec<(String, String)> {
    let told = house.told(run, "data");
    let items = told.iter().flat_map(|payload| {
        assert_eq!(text(payload, "name"), "attachments-not-sent");
        serde_json::from_str::<Vec<Value>>(payload.get("data").unwrap()).unwrap()
    });
    let said = |item: &Value, key: &str| item[key].as_str().unwrap().to_owned();
    items.map(|item| (said(&item, "what"), said(&item, "why"))).collect()
}

#[tokio::test]
async fn stored_files_are_sent_as_content_parts() {
    let house = House::new(vec![fine("A cat."), fine("The same.")]).await;
    let files = [
        file("image/png", "cat.png", &stored(&house, PNG, "image/png")),
        file("application/pdf", "a \"b\".pdf", &stored(&house, b"%PDF-1.7", "application/pdf")),
        file("image/png", "linked.png", "https://example.org/linked.png"),
        file("image/gif", "small.gif", "data:image/gif;base64,R0lGODdh"),
    ];
    let run = ask(&house, "What is this?", &files).await;
    assert!(unsent(&house, &run).is_empty());
    let parts = [
        r#"{"type":"text","text":"What is this?"}"#,
        &format!(r#"{{"type":"image_url","image_url":{{"url":"data:image/png;base64,{PNG_BASE64}"}}}}"#),
        r#"{"type":"file","file":{"filename":"a \"b\".pdf","file_data":"data:application/pdf;base64,JVBERi0xLjc="}}"#,
        r#"{"type":"image_url","image_url":{"url":"https://example.org/linked.png"}}"#,
        r#"{"type":"image_url","image_url":{"url":"data:image/gif;base64,R0lGODdh"}}"#,
    ];
    let user = format!(r#"{{"role":"user","content":[{}]}}"#, parts.join(","));
    assert_eq!(house.server.seen()[0].raw, format!("{REQUEST}[{user}]}}"));
    ask(&house, "And now?", &[]).await;
    let rest = r#"{"role":"assistant","content":"A cat."},{"role":"user","content":"And now?"}"#;
    assert_eq!(house.server.seen()[1].raw, format!("{REQUEST}[{user},{rest}]}}"), "every later turn shows them too");
}

#[tokio::test]
async fn files_that_cannot_be_sent_are_said_before_the_first_word_once() {
    let house =
        House::new(vec![sends(&[HEAD, &thought("Hm."), &word("Hello."), &finish("stop"), DONE]), fine("Again.")]).await;
    let gone = AttachmentId::of_bytes(b"never stored").to_url();
    let files = [
        file("image/png", "cat.png", &stored(&house, PNG, "image/png")),
        file("image/png", "gone.png", &gone),
        file("application/pdf", "linked.pdf", "https://example.org/linked.pdf"),
    ];
    let run = ask(&house, "What is this?", &files).await;
    assert_eq!(house.names(&run).join(" "), "attempt reasoning interim_assistant data token done");
    let said = unsent(&house, &run);
    assert_eq!(said.iter().map(|(what, _)| what.as_str()).collect::<Vec<_>>(), ["gone.png", "linked.pdf"]);
    let notice = text(&house.told(&run, "interim_assistant")[0], "text");
    for (what, why) in &said {
        assert!(!why.is_empty() && notice.contains(&format!("{what} ({why})")), "{notice}");
    }
    assert_eq!(house.rows()[1..], [("assistant".to_owned(), notice), ("assistant".to_owned(), "Hello.".to_owned())]);
    let sent = house.server.seen()[0].body["messages"][0]["content"].as_array().unwrap().len();
    assert_eq!(sent, 2, "the words and the picture that is there");
    let next = ask(&house, "And now?", &[]).await;
    assert_eq!(house.names(&next).join(" "), "attempt token done", "what an earlier message lost is not said again");
}

#[tokio::test]
async fn what_is_not_sent_is_said_before_a_tool_call_too() {
    let tool = call(json!({"index": 0, "id": "a", "function": {"name": "look", "arguments": "{}"}}));
    let house = House::new(vec![sends(&[HEAD, &tool, &finish("tool_calls"), DONE])]).await;
    let run = ask(&house, "What is this?", &[json!("notes.txt")]).await;
    assert_eq!(house.names(&run).join(" "), "attempt interim_assistant data tool_delta tool done");
    assert_eq!(unsent(&house, &run)[0].0, "notes.txt");
}

#[tokio::test]
async fn an_attempt_that_failed_before_its_first_word_is_made_again_and_says_it_once() {
    let house =
        House::new(vec![document("503 Service Unavailable", "", ""), sends(&[HEAD, &thought("Hm.")]), fine("Hello.")])
            .await;
    let run = ask(&house, "What is this?", &[json!("notes.txt")]).await;
    let names = house.names(&run).join(" ");
    assert_eq!(
        names, "attempt attempt_end attempt reasoning attempt_end attempt interim_assistant data token done",
        "what was said would have kept it from being made again"
    );
}

#[tokio::test]
async fn a_model_of_text_only_is_sent_no_files_and_the_answer_says_so() {
    let server = Server::start(vec![fine("I cannot see it."), fine("Still not.")]).await;
    let house = House::at(server, PATIENT, |runner, _| runner.attachments = false);
    let picture = file("image/png", "cat.png", &stored(&house, PNG, "image/png"));
    let run = ask(&house, "What is this?", &[picture]).await;
    assert_eq!(unsent(&house, &run), [("cat.png".to_owned(), "the model takes text only".to_owned())]);
    let user = r#"{"role":"user","content":"What is this?"}"#;
    assert_eq!(house.server.seen()[0].raw, format!("{REQUEST}[{user}]}}"));
    let next = ask(&house, "And now?", &[]).await;
    assert!(unsent(&house, &next).is_empty());
    assert!(!house.server.seen()[1].raw.contains("image_url"));
}
