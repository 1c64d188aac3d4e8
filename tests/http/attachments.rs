//! Files of messages: uploaded or sent with a message, stored once, fetched, and never shown as a page of the server.

use serde_json::{Value, json};

use lastword::http::Tokens;

use crate::chat_client::{chat_house, chunks, history, rows, run_of, submit, text_of};
use crate::house::House;
use crate::wire::{Answer, Ask, ask};

const PNG: &[u8] = b"\x89PNG\r\n\x1a\n";
/// Its hash.
const PNG_ID: &str = "sha256-4c4b6a3be1314ab86138bef4314dde022e600960d8689a2c8f8631802d20dab6";
const PNG_URL: &str = "data:image/png;base64,iVBORw0KGgo=";

fn upload(house: &House, query: &str, kind: Option<&str>, bytes: &[u8]) -> Answer {
    let ask = ask("POST", &format!("/v1/sessions/a/attachments{query}"));
    let ask = kind.map_or(ask.clone(), |kind| ask.header("content-type", kind));
    house.send(&ask.bytes(bytes))
}

fn path(id: &str) -> String {
    format!("/v1/sessions/a/attachments/{id}")
}

/// A message that is nothing but this file.
fn with_file(id: &str, url: &str) -> Value {
    let file = json!({ "type": "file", "mediaType": "image/png", "filename": "a.png", "url": url });
    json!({ "id": id, "role": "user", "parts": [file] })
}

/// The attachments of the transcript's row.
fn attachments(house: &House, session: &str, row: usize) -> Value {
    house.get(&format!("/v1/sessions/{session}")).json()["messages"][row]["attachments"].clone()
}

#[test]
fn an_upload_is_stored_once_and_fetched_for_ever() {
    let house = House::new();
    house.session("a");
    let stored = upload(&house, "?filename=a%20b.png", Some("image/png"), PNG).expect(201);
    assert_eq!(stored.header("location"), Some(&path(PNG_ID)[..]));
    let expected = json!({ "attachment": PNG_ID, "media_type": "image/png", "bytes": 8, "filename": "a b.png" });
    assert_eq!(stored.json(), expected);
    assert_eq!(upload(&house, "", Some("text/html"), PNG).expect(201).json(), expected);
    let fetched = house.get(&path(PNG_ID)).expect(200);
    assert_eq!(fetched.body, PNG);
    for (name, value) in [
        ("content-type", "image/png"),
        ("content-disposition", "inline; filename=\"a b.png\""),
        ("cache-control", "private, max-age=31536000, immutable"),
        ("x-content-type-options", "nosniff"),
        ("content-security-policy", "default-src 'none'; sandbox"),
        ("cross-origin-resource-policy", "same-origin"),
    ] {
        assert_eq!(fetched.header(name), Some(value), "{name}");
    }
    let tag = fetched.header("etag").unwrap().to_owned();
    let known = house.send(&ask("GET", &path(PNG_ID)).header("if-none-match", &tag)).expect(304);
    assert!(known.body.is_empty());
    assert_eq!(house.send(&ask("GET", &path(PNG_ID)).header("if-none-match", "\"x\"")).expect(200).body, PNG);
    let files = std::fs::read_dir(house.data().join("_attachments/a")).unwrap().count();
    assert_eq!(files, 2, "the bytes, and what is known of them");
}

#[test]
fn an_upload_without_a_type_is_bytes_and_may_be_empty() {
    let house = House::new();
    house.session("a");
    let stored = upload(&house, "", None, b"").expect(201).json();
    assert_eq!((&stored["media_type"], &stored["filename"]), (&json!("application/octet-stream"), &Value::Null));
    let fetched = house.get(&path(stored["attachment"].as_str().unwrap())).expect(200);
    assert_eq!((fetched.body.len(), fetched.header("content-disposition")), (0, Some("attachment")));
    let odd = upload(&house, "?filename=%0d%0a../..%2fx%22%0d%0ay%C3%A9", Some("nonsense"), b"1").expect(201).json();
    assert_eq!(odd["media_type"], "application/octet-stream");
    let fetched = house.get(&path(odd["attachment"].as_str().unwrap())).expect(200);
    let disposition = "attachment; filename=\"x_y_\"; filename*=UTF-8''x%22y%C3%A9";
    assert_eq!(fetched.header("content-disposition"), Some(disposition));
}

#[test]
fn what_can_hold_scripts_is_never_shown() {
    let house = House::new();
    house.session("a");
    for (kind, bytes) in [
        ("image/svg+xml", &b"<svg xmlns='http://www.w3.org/2000/svg'><script>alert(1)</script></svg>"[..]),
        ("text/html", b"<script>alert(1)</script>"),
        ("application/xhtml+xml", b"<html/>"),
        ("text/xml", b"<x/>"),
        ("application/pdf", b"%PDF"),
    ] {
        let id = upload(&house, "", Some(kind), bytes).expect(201).json()["attachment"].as_str().unwrap().to_owned();
        let fetched = house.get(&path(&id)).expect(200);
        assert_eq!(fetched.header("content-disposition"), Some("attachment"), "{kind}");
        assert_eq!(fetched.header("content-security-policy"), Some("default-src 'none'; sandbox"), "{kind}");
        assert_eq!(fetched.header("x-content-type-options"), Some("nosniff"), "{kind}");
    }
}

#[test]
fn an_attachment_belongs_to_its_session() {
    let house = House::new();
    house.session("a");
    house.session("b");
    upload(&house, "", Some("image/png"), PNG).expect(201);
    for path in [
        format!("/v1/sessions/b/attachments/{PNG_ID}"),
        format!("/v1/sessions/none/attachments/{PNG_ID}"),
        path("sha256-x"),
        path("..%2f..%2fa.json"),
        path(&PNG_ID.to_uppercase()),
    ] {
        assert_eq!(house.get(&path).expect(404).code(), "not_found", "{path}");
    }
    house.send(&ask("POST", "/v1/sessions/none/attachments").bytes(PNG)).expect(404);
    house.send(&ask("DELETE", "/v1/sessions/a")).expect(204);
    house.get(&path(PNG_ID)).expect(404);
}

#[test]
fn a_token_that_reads_fetches_and_does_not_upload() {
    let (write, read) = ("0123456789abcdef", "fedcba9876543210");
    let tokens = Tokens::parse(&format!("{write}\n{read} read-only\n")).unwrap();
    let house = House::with(|options| options.tokens = tokens);
    let as_token = |ask: Ask, token: &str| house.send(&ask.header("authorization", &format!("Bearer {token}")));
    as_token(ask("POST", "/v1/sessions").json(json!({ "session_id": "a" })), write).expect(201);
    let post = || ask("POST", "/v1/sessions/a/attachments").header("content-type", "image/png").bytes(PNG);
    as_token(post(), read).expect(403);
    house.send(&post()).expect(401);
    as_token(post(), write).expect(201);
    as_token(ask("GET", &path(PNG_ID)), read).expect(200);
    house.get(&path(PNG_ID)).expect(401);
    as_token(ask("POST", "/v1/sessions/a/branches/x/restore").header("if-match", "*"), read).expect(403);
    let refused = house.get("/api/chat/a/messages").expect(401);
    assert_eq!(
        (refused.header("lastword-error"), refused.header("content-type")),
        (Some("unauthorized"), Some("text/plain; charset=utf-8"))
    );
    as_token(ask("GET", "/api/chat/a/messages"), read).expect(200);
}

#[test]
fn a_file_that_is_too_large_is_refused() {
    let house = House::with(|options| options.body_bytes_max = 2_000);
    house.session("a");
    assert_eq!(upload(&house, "", None, &[0; 2_001]).expect(413).code(), "too_large");
    upload(&house, "", None, &[0; 2_000]).expect(201);
}

#[test]
fn a_file_in_a_message_is_stored_and_replaced_by_its_reference() {
    let house = chat_house();
    let answer = submit(&house, "c", with_file("m1", PNG_URL)).expect(200);
    assert_eq!(text_of(&chunks(&answer)), "(attachments)! 1 files");
    let stored =
        json!([{ "type": "file", "mediaType": "image/png", "filename": "a.png", "url": format!("lastword:{PNG_ID}") }]);
    assert_eq!(attachments(&house, "c", 0), stored);
    assert_eq!(house.get(&format!("/v1/sessions/c/attachments/{PNG_ID}")).expect(200).body, PNG);
    // The history names it by a path, which a client sends back.
    let file = history(&house, "c")[0]["parts"][0].clone();
    let url = format!("/v1/sessions/c/attachments/{PNG_ID}");
    assert_eq!((&file["type"], &file["url"]), (&json!("file"), &json!(url)));
    let same = submit(&house, "c", with_file("m1", &url)).expect(200);
    assert_eq!(run_of(&same), run_of(&answer));
    for (id, url) in
        [("m2", url.clone()), ("m3", format!("http://{}{url}", house.address)), ("m4", format!("lastword:{PNG_ID}"))]
    {
        submit(&house, "c", with_file(id, &url)).expect(200);
    }
    for row in [2, 4, 6] {
        assert_eq!(attachments(&house, "c", row), stored, "{row}");
    }
    submit(&house, "c", with_file("m5", "https://example.org/a.png")).expect(200);
    assert_eq!(attachments(&house, "c", 8)[0]["url"], "https://example.org/a.png");
    let percent = json!({ "type": "file", "mediaType": "text/plain", "url": "data:text/plain,a%20b" });
    submit(&house, "c", json!({ "id": "m6", "role": "user", "parts": [percent] })).expect(200);
    let id = attachments(&house, "c", 10)[0]["url"].as_str().unwrap().replace("lastword:", "");
    assert_eq!(house.get(&format!("/v1/sessions/c/attachments/{id}")).expect(200).body, b"a b");
}

#[test]
fn a_message_with_a_file_that_cannot_be_had_begins_nothing() {
    let house = chat_house();
    let other = format!("/v1/sessions/other/attachments/{PNG_ID}");
    let missing = format!("lastword:{PNG_ID}");
    for (url, code) in [
        ("data:image/png;base64,iVBORw0KGgo", "invalid_argument"),
        ("data:image/png;base64", "invalid_argument"),
        ("data:image/png,%zz", "invalid_argument"),
        ("lastword:sha256-1", "invalid_argument"),
        (&other[..], "unknown_attachment"),
        (&missing[..], "unknown_attachment"),
    ] {
        assert_eq!(submit(&house, "c", with_file("m1", url)).expect(400).code(), code, "{url}");
        house.get("/v1/sessions/c").expect(404);
    }
}

#[test]
fn a_turn_that_is_refused_leaves_nothing_but_files_that_are_not_used() {
    let house = chat_house();
    submit(&house, "c", crate::chat_client::user("m1", "one")).expect(200);
    let before = rows(&house, "c");
    assert_eq!(submit(&house, "c", with_file("m1", PNG_URL)).expect(409).code(), "conflict");
    house.get(&format!("/v1/sessions/c/attachments/{PNG_ID}")).expect(404);
    house.post("/v1/sessions/c/runs", json!({ "message": "other", "run_id": "r" })).expect(202);
    assert_eq!(submit(&house, "c", with_file("m2", PNG_URL)).expect(409).code(), "run_in_progress");
    house.get(&format!("/v1/sessions/c/attachments/{PNG_ID}")).expect(200);
    assert_eq!(rows(&house, "c"), before);
}

#[test]
fn files_of_a_turn_that_a_producer_begins_are_stored_too() {
    let house = House::new();
    house.session("a");
    let upload = upload(&house, "?filename=a.png", Some("image/png"), PNG).expect(201).json();
    let list = json!([upload, { "type": "file", "mediaType": "image/png", "url": PNG_URL }, { "name": "notes.txt" }]);
    let begin = |run: &str, list: Value| {
        house.post("/v1/sessions/a/runs", json!({ "message": "Look", "run_id": run, "attachments": list }))
    };
    let unknown = PNG_ID.replace("4c4b", "0000");
    assert_eq!(begin("r0", json!([{ "attachment": unknown }])).expect(400).code(), "unknown_attachment");
    assert_eq!(begin("r0", json!([{ "url": "data:x" }])).expect(400).code(), "invalid_argument");
    assert_eq!(begin("r0", json!(vec![json!({}); 1_025])).expect(413).code(), "too_large");
    begin("r1", list).expect(202);
    let url = format!("lastword:{PNG_ID}");
    let expected = json!([
        { "type": "file", "mediaType": "image/png", "filename": "a.png", "url": url },
        { "type": "file", "mediaType": "image/png", "url": url },
        { "name": "notes.txt" },
    ]);
    assert_eq!(house.get("/v1/sessions/a").json()["pending_attachments"], expected);
}

/// What a chat sends that holds more pictures than one body may.
#[test]
fn a_long_chat_with_pictures_is_read_to_its_last_message() {
    let runners =
        lastword::run::Runners::default().with_demo(lastword::run::DemoRunner { pace: std::time::Duration::ZERO });
    let house = House::of(lastword::Options::default(), runners, |options| options.body_bytes_max = 100_000);
    let picture = format!("data:image/png;base64,{}", "A".repeat(80_000));
    let mut messages = vec![with_file("old", &picture); 20];
    messages.push(crate::chat_client::user("new", "hello"));
    house.post("/api/chat", json!({ "id": "c", "messages": messages })).expect(200);
    assert_eq!(rows(&house, "c")[0], "user: hello");
    messages.push(with_file("large", &format!("data:image/png;base64,{}", "A".repeat(100_000))));
    let refused = house.post("/api/chat", json!({ "id": "c", "messages": messages })).expect(413);
    assert_eq!(refused.code(), "too_large");
    // In pieces that end anywhere.
    let body = json!({ "id": "d", "messages": [crate::chat_client::user("m", "h€llo 😀")] }).to_string();
    let mut chunked = Vec::new();
    for piece in body.as_bytes().chunks(3) {
        chunked.extend_from_slice(format!("{:x}\r\n", piece.len()).as_bytes());
        chunked.extend_from_slice(piece);
        chunked.extend_from_slice(b"\r\n");
    }
    chunked.extend_from_slice(b"0\r\n\r\n");
    let head = "POST /api/chat HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ntransfer-encoding: chunked\r\nconnection: close\r\n\r\n";
    use std::io::{Read, Write};
    let mut stream = std::net::TcpStream::connect(house.address).unwrap();
    stream.write_all(&[head.as_bytes(), &chunked].concat()).unwrap();
    let mut answer = String::new();
    let _ = stream.read_to_string(&mut answer);
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    assert_eq!(rows(&house, "d")[0], "user: h€llo 😀");
}
