//! Refusals: which are passing, how long to wait, what is never shown; and a server that is not there.

use std::fs;

use lastword::run::ApiKey;

use crate::house::{Answered, House, Outcome, PATIENT, files_under, message, text};
use crate::server::{Reply, Server, Step};
use crate::words::{HEAD, data, document, fine, send, sends};

const KEY: &str = "sk-test-0123456789-never-to-be-seen";

/// A refusal that passes: the next attempt completes the run. Gives the pause between them.
async fn check_passing(refusal: Reply, kind: &str) -> (f64, Answered) {
    let house = House::new(vec![refusal, fine("Hello.")]).await;
    let answered = house.answer("hi").await;
    house.check(
        &answered,
        &Outcome {
            events: "attempt attempt_end attempt token done",
            closed_by: "refused",
            rows: &[("user", "hi"), ("assistant", "Hello.")],
            requests: 2,
        },
    );
    let failed = &house.told(&answered.run, "attempt_end")[0];
    assert_eq!(text(failed, "type"), kind);
    (failed.get("retry_in_seconds").unwrap().parse().unwrap(), answered)
}

/// A refusal that another request would only repeat.
async fn check_final(house: &House, kind: &str, status: &str) -> Answered {
    let answered = house.answer("hi").await;
    house.check(
        &answered,
        &Outcome {
            events: "attempt apperror",
            closed_by: "refused",
            rows: &[("user", "hi"), ("notice", kind)],
            requests: 1,
        },
    );
    let last = &house.told(&answered.run, "apperror")[0];
    assert_eq!((last.get("status"), last.get("retryable")), (Some(status), Some("false")));
    answered
}

#[tokio::test]
async fn an_error_of_the_server_is_asked_again() {
    for status in ["500 Internal Server Error", "502 Bad Gateway", "503 Service Unavailable", "529 Overloaded"] {
        check_passing(document(status, "", "<h1>Oops</h1>"), "backend_error").await;
    }
}

/// The pause that a header asks for is waited out, and hardly more.
async fn check_asked_pause(headers: &str, asked: f64) {
    let body = r#"{"error":{"message":"Slow down","type":"requests","code":"rate_limit_exceeded"}}"#;
    let (pause, answered) = check_passing(document("429 Too Many Requests", headers, body), "rate_limited").await;
    assert!((asked..asked + 0.1).contains(&pause), "{pause} s");
    assert!(answered.seconds >= asked, "{} s", answered.seconds);
}

#[tokio::test]
async fn a_server_that_asks_for_a_pause_gets_it() {
    let seconds = check_asked_pause("retry-after: 1\r\n", 1.0);
    let milliseconds = check_asked_pause("retry-after-ms: 300\r\nretry-after: 60\r\n", 0.3);
    tokio::join!(seconds, milliseconds);
}

#[tokio::test]
async fn a_server_that_asks_for_too_long_a_pause_is_not_asked_again() {
    let house = House::new(vec![document("429 Too Many Requests", "retry-after: 3600\r\n", "{}")]).await;
    let answered = house.answer("hi").await;
    house.check(
        &answered,
        &Outcome {
            events: "attempt apperror",
            closed_by: "refused",
            rows: &[("user", "hi"), ("notice", "rate_limited")],
            requests: 1,
        },
    );
    assert!(message(&answered).contains("3600 s"), "{answered:?}");
}

#[tokio::test]
async fn a_quota_that_is_used_up_is_not_asked_for_again() {
    let body = r#"{"error":{"message":"You exceeded your quota","code":"insufficient_quota"}}"#;
    let house = House::new(vec![document("429 Too Many Requests", "", body)]).await;
    let answered = check_final(&house, "rate_limited", "429").await;
    assert!(message(&answered).contains("You exceeded your quota"), "{answered:?}");
}

#[tokio::test]
async fn the_words_of_a_refusal_that_never_end_are_not_waited_for() {
    let endless = "HTTP/1.1 503 Service Unavailable\r\ncontent-length: 1000\r\n\r\nToo busy";
    let (_, answered) = check_passing(vec![send(&[endless]), Step::Hang], "backend_error").await;
    assert!(answered.seconds < 20.0, "{} s", answered.seconds);
}

fn with_key(server: Server) -> House {
    House::at(server, PATIENT, |runner, folder| {
        let path = folder.join("key");
        fs::write(&path, format!("{KEY}\n")).unwrap();
        runner.key = ApiKey::File(path);
    })
}

/// The server was given the key, and nobody else sees it.
fn check_unseen_key(house: &House, answered: &Answered) {
    assert_eq!(house.server.seen()[0].header("authorization"), Some(format!("Bearer {KEY}").as_str()));
    assert!(!message(answered).contains(KEY), "{answered:?}");
    let files = files_under(&house.data());
    assert!(files.len() > 1, "{files:?}");
    for file in files {
        let bytes = fs::read(&file).unwrap();
        assert!(!bytes.windows(KEY.len()).any(|part| part == KEY.as_bytes()), "{}", file.display());
    }
}

#[tokio::test]
async fn a_key_that_is_refused_is_shown_nowhere_even_if_the_server_repeats_it() {
    let body = format!(r#"{{"error":{{"message":"Incorrect API key provided: {KEY}","code":"invalid_api_key"}}}}"#);
    for body in [body, format!("No such key: {KEY}"), format!("{}{KEY}", "x".repeat(480))] {
        let house = with_key(Server::start(vec![document("401 Unauthorized", "", &body)]).await);
        let answered = check_final(&house, "unauthorized", "401").await;
        check_unseen_key(&house, &answered);
        assert!(!message(&answered).contains("sk-test"), "not even a part: {answered:?}");
    }
}

#[tokio::test]
async fn a_key_that_is_repeated_in_a_stream_is_shown_nowhere() {
    let error =
        data(&serde_json::json!({"error": {"message": format!("{KEY} is blocked"), "code": "invalid_api_key"}}));
    let house = with_key(Server::start(vec![sends(&[HEAD, &error])]).await);
    let answered = house.answer("hi").await;
    house.check(
        &answered,
        &Outcome {
            events: "attempt apperror",
            closed_by: "backend_error",
            rows: &[("user", "hi"), ("notice", "backend_error")],
            requests: 1,
        },
    );
    check_unseen_key(&house, &answered);
}

#[tokio::test]
async fn headers_that_are_secrets_are_shown_nowhere_either() {
    let server = Server::start(vec![document("403 Forbidden", "", &format!("Who is {KEY}?"))]).await;
    let house = House::at(server, PATIENT, |runner, _| {
        runner.headers = vec![("api-key".to_owned(), KEY.to_owned())];
        assert!(!format!("{runner:?}").contains(KEY), "{runner:?}");
    });
    let answered = check_final(&house, "unauthorized", "403").await;
    assert_eq!(house.server.seen()[0].header("api-key"), Some(KEY));
    assert!(!message(&answered).contains(KEY) && message(&answered).contains("Who is"), "{answered:?}");
}

#[tokio::test]
async fn a_header_whose_variable_is_not_set_is_named_and_nobody_is_asked() {
    let server = Server::start(vec![fine("no")]).await;
    let house = House::at(server, PATIENT, |runner, _| {
        runner.headers_env = vec![("api-key".to_owned(), "LASTWORD_TEST_NO_SUCH_VARIABLE".to_owned())];
    });
    let answered = house.answer("hi").await;
    assert!(message(&answered).contains("LASTWORD_TEST_NO_SUCH_VARIABLE"), "{answered:?}");
    assert!(house.server.seen().is_empty());
}

#[tokio::test]
async fn nobody_is_followed_elsewhere() {
    let elsewhere = Server::start(vec![fine("Over here.")]).await;
    for status in ["302 Found", "307 Temporary Redirect"] {
        let location = format!("location: {}/chat/completions\r\n", elsewhere.base_url());
        let house = with_key(Server::start(vec![document(status, &location, ""), fine("no")]).await);
        check_final(&house, "rejected", &status[..3]).await;
    }
    assert!(elsewhere.seen().is_empty(), "{:?}", elsewhere.seen());
}

#[tokio::test]
async fn a_server_that_is_not_there_is_looked_for_again_and_then_it_is_said() {
    let house = House::at(Server::nobody().await, PATIENT, |_, _| {});
    let answered = house.answer("hi").await;
    house.check(
        &answered,
        &Outcome {
            events: "attempt attempt_end attempt attempt_end attempt apperror",
            closed_by: "connection connection connection",
            rows: &[("user", "hi"), ("notice", "connection")],
            requests: 0,
        },
    );
    assert!(message(&answered).contains("could not be reached"), "{answered:?}");
}
