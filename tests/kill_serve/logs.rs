//! Nothing that anybody said and nothing secret is in the log, whatever is logged; the ids of requests are.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use crate::data::Data;
use crate::host::Host;

/// A word that is nowhere else.
const WORD: &str = "Zwetschgendatschi";

/// Sends a request as it is written, and gives the answer.
fn send(address: &str, head: &str, body: &str) -> String {
    let mut stream = TcpStream::connect(address).expect("the server listens");
    stream.set_read_timeout(Some(Duration::from_secs(10))).expect("a time limit can be set");
    let length = body.len();
    let request = format!("{head} HTTP/1.1\r\nhost: {address}\r\nconnection: close\r\ncontent-length: {length}\r\n");
    let request = match head.contains("\r\n") {
        true => {
            let (line, headers) = head.split_once("\r\n").expect("it has headers");
            format!(
                "{line} HTTP/1.1\r\nhost: {address}\r\n{headers}\r\nconnection: close\r\ncontent-length: {length}\r\n"
            )
        }
        false => request,
    };
    stream.write_all(format!("{request}\r\n{body}").as_bytes()).expect("the server takes it");
    let mut answer = String::new();
    // A request that is no request is answered by a closed connection.
    let _ = stream.read_to_string(&mut answer);
    answer
}

fn request_id(answer: &str) -> Option<&str> {
    answer.lines().find_map(|line| line.strip_prefix("x-request-id: ")).map(str::trim)
}

/// Everything that a caller can say, right and wrong.
fn say_everything(address: &str) -> Vec<String> {
    let json = |head: &str| format!("{head}\r\ncontent-type: application/json");
    let turn = format!(r#"{{"message":"{WORD}","run_id":"r1"}}"#);
    let token = format!(r#"{{"event":"token","payload":{{"text":"{WORD}"}}}}"#);
    let failure = format!(r#"{{"event":"apperror","payload":{{"type":"{WORD}","message":"{WORD}"}}}}"#);
    let demo = format!(r#"{{"message":"{WORD}","run_id":"r2","runner":"demo"}}"#);
    let requests = [
        (json("POST /v1/sessions"), format!(r#"{{"session_id":"s","title":"{WORD}"}}"#)),
        (json("POST /v1/sessions"), format!(r#"{{"session_id":"s","title":"{WORD}"}}"#)),
        (json("POST /v1/sessions"), format!(r#"{{"session_id":"{WORD}/","{WORD}":"{WORD}"}}"#)),
        (json("POST /v1/sessions/s/runs"), turn.clone()),
        (json("POST /v1/sessions/s/runs"), turn),
        ("POST /v1/sessions/s/runs/r1/events".to_owned(), format!("{token}\n{token}\n")),
        ("POST /v1/sessions/s/runs/r1/events?expect_seq=9".to_owned(), token.clone()),
        ("POST /v1/sessions/s/runs/r1/events".to_owned(), format!("{token}\n{{\"{WORD}")),
        (format!("POST /v1/sessions/s/runs/r1/events?durability={WORD}"), token.clone()),
        ("POST /v1/sessions/s/runs/r1/events".to_owned(), failure),
        ("POST /v1/sessions/s/runs/r1/events".to_owned(), token),
        ("GET /v1/sessions/s/runs/r1/events\r\naccept: text/event-stream".to_owned(), String::new()),
        ("GET /v1/sessions/s/runs/r1/events".to_owned(), String::new()),
        (format!("GET /v1/sessions/s/runs/r1/events?after={WORD}"), String::new()),
        (json("POST /v1/sessions/s/runs"), demo),
        ("GET /v1/sessions/s/runs/r2/events\r\naccept: text/event-stream".to_owned(), String::new()),
        (format!("GET /v1/sessions?q={WORD}"), String::new()),
        (format!("GET /v1/sessions/{WORD}"), String::new()),
        (format!("GET /{WORD}?{WORD}={WORD}"), String::new()),
        (format!("GET /v1/sessions\r\nauthorization: Bearer {WORD}\r\ncookie: {WORD}={WORD}"), String::new()),
        (format!("GET /v1/sessions\r\norigin: http://{WORD}.example"), String::new()),
        (format!("GET /v1/events/{WORD}?ticket={WORD}\r\ncookie: lastword={WORD}"), String::new()),
        ("POST /login\r\ncontent-type: application/x-www-form-urlencoded".to_owned(), format!("token={WORD}")),
        ("POST /login\r\ncontent-type: application/x-www-form-urlencoded".to_owned(), format!("{WORD}={WORD}")),
        (json("POST /v1/tickets"), format!(r#"{{"path":"/v1/{WORD}"}}"#)),
        (json("POST /v1/tickets"), format!(r#"{{"path":"{WORD}"}}"#)),
        (json("POST /v1/tickets"), format!(r#"{{"{WORD}":"{WORD}"}}"#)),
        (
            format!("PATCH /v1/sessions/s\r\nif-match: \"{WORD}\"\r\ncontent-type: application/json"),
            format!(r#"{{"title":"{WORD}"}}"#),
        ),
        (json("PATCH /v1/sessions/s"), format!("{{\"{WORD}")),
        (
            json("POST /api/chat"),
            format!(r#"{{"id":"s","messages":[{{"role":"user","parts":[{{"type":"text","text":"{WORD}"}}]}}]}}"#),
        ),
        ("GET /v1/check".to_owned(), String::new()),
        (format!("BREW /{WORD}"), WORD.to_owned()),
        (format!("GET /v1/sessions\r\nx-request-id: {WORD} and more"), String::new()),
        (format!("GET /v1/sessions\r\n{WORD} is no header"), String::new()),
    ];
    requests.iter().map(|(head, body)| send(address, head, body)).collect()
}

fn check(log: &str, form: &str) {
    let args = ["--log", log, "--log-form", form, "--pace-ms", "1"];
    let mut host = Host::on(Data::nowhere(), &args);
    host.revive();
    let answers = say_everything(&host.address());
    assert!(answers.iter().any(|answer| answer.contains(WORD)), "what was said is kept");
    let ended = host.stop();
    let ids: Vec<&str> = answers.iter().filter_map(|answer| request_id(answer)).collect();
    assert!(ids.len() > 20, "{ids:?}");
    for id in ids {
        assert!(ended.stderr.contains(id), "request {id} is not in the log:\n{}", ended.stderr);
    }
    let telling: Vec<&str> =
        ended.stderr.lines().filter(|line| line.to_lowercase().contains(&WORD.to_lowercase())).collect();
    assert!(telling.is_empty(), "{telling:#?}");
    if form == "json" {
        for line in ended.stderr.lines() {
            assert!(serde_json::from_str::<serde_json::Value>(line).is_ok_and(|line| line.is_object()), "{line}");
        }
    }
}

#[test]
fn nothing_that_was_said_is_in_the_log() {
    check("debug", "json");
}

#[test]
fn nothing_that_was_said_is_in_the_most_talkative_log_either() {
    check("trace", "text");
}
