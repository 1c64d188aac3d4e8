//! Streams that are none, errors in the middle of an answer, and whole answers where a stream was asked for.

use serde_json::json;

use crate::house::{House, Outcome, message};
use crate::server::Reply;
use crate::words::{DONE, HEAD, data, document, fine, finish, role, sends, word};

/// A stream of nothing but this is asked for again.
async fn check_asked_again(broken: &str, closed_by: &str) {
    let house = House::new(vec![sends(&[HEAD, broken]), fine("Hello.")]).await;
    let answered = house.answer("hi").await;
    house.check(
        &answered,
        &Outcome {
            events: "attempt attempt_end attempt token done",
            closed_by,
            rows: &[("user", "hi"), ("assistant", "Hello.")],
            requests: 2,
        },
    );
}

/// Broken like this, an answer is asked for again unless a word of it was shown.
async fn check_broken(broken: &str, closed_by: &str, notice: &str) {
    check_asked_again(broken, closed_by).await;
    let house = House::new(vec![sends(&[HEAD, &word("half"), broken, &word("no more"), DONE])]).await;
    let answered = house.answer("hi").await;
    house.check(
        &answered,
        &Outcome {
            events: "attempt token apperror",
            closed_by,
            rows: &[("user", "hi"), ("assistant", "half"), ("notice", notice)],
            requests: 1,
        },
    );
}

/// Data that no reader of answers understands.
const GARBAGE: [&str; 3] = ["data: {\"choices\":[{\"del\n\n", "data: oops\n\n", "data: 7\n\n"];

#[tokio::test]
async fn a_stream_of_nothing_but_odd_data_is_broken() {
    for garbage in GARBAGE {
        check_asked_again(garbage, "broken_stream").await;
        check_asked_again(&[garbage, DONE].concat(), "broken_stream").await;
        check_asked_again(&[&role(), garbage, &finish("stop"), DONE].concat(), "broken_stream").await;
    }
}

#[tokio::test]
async fn one_odd_chunk_among_good_ones_is_counted_and_skipped() {
    for garbage in GARBAGE {
        for parts in [[garbage, &word("Hel"), &word("lo.")], [&word("Hel"), garbage, &word("lo.")]] {
            let house = House::new(vec![sends(&[HEAD, &parts.concat(), &finish("stop"), DONE])]).await;
            let answered = house.answer("hi").await;
            house.check(
                &answered,
                &Outcome {
                    events: "attempt token token done",
                    closed_by: "",
                    rows: &[("user", "hi"), ("assistant", "Hello.")],
                    requests: 1,
                },
            );
            assert_eq!(house.told(&answered.run, "done")[0].get("skipped_chunks"), Some("1"));
        }
    }
}

#[tokio::test]
async fn an_answer_without_odd_chunks_counts_none() {
    let house = House::new(vec![fine("Hello.")]).await;
    let answered = house.answer("hi").await;
    assert_eq!(house.told(&answered.run, "done")[0].to_json(), r#"{"finish_reason":"stop"}"#);
}

#[tokio::test]
async fn odd_chunks_beyond_a_bound_break_the_stream() {
    for (odd, is_broken) in [(16, false), (17, true)] {
        let rest = [&word("half"), &GARBAGE[1].repeat(odd), &word("rest"), &finish("stop"), DONE].concat();
        let house = House::new(vec![sends(&[HEAD, &rest])]).await;
        let answered = house.answer("hi").await;
        assert_eq!(answered.end.has_failed_as("broken_stream"), is_broken, "{odd}: {answered:?}");
        let said = if is_broken { "half" } else { "halfrest" };
        assert_eq!(house.rows()[1], ("assistant".to_owned(), said.to_owned()));
        let last = if is_broken { "apperror" } else { "done" };
        assert_eq!(house.told(&answered.run, last)[0].get("skipped_chunks"), Some(odd.to_string().as_str()));
    }
}

#[tokio::test]
async fn an_answer_that_ends_with_an_error_as_its_reason_has_failed() {
    let errors = [
        finish("error"),
        finish("ERROR"),
        data(&json!({"choices": [{"index": 0, "delta": {"content": ""}, "finish_reason": "error",
                                  "error": {"code": 502, "message": "Overloaded"}}]})),
        data(&json!({"choices": [{"error": {"message": "Overloaded"}}]})),
    ];
    for error in errors {
        check_broken(&error, "backend_error", "backend_error").await;
    }
}

#[tokio::test]
async fn what_came_with_an_error_as_the_reason_is_kept() {
    let last = data(&json!({"choices": [{"delta": {"content": " way"}, "finish_reason": "error",
                                         "error": {"message": "The model is on fire"}}]}));
    let house = House::new(vec![sends(&[HEAD, &word("half"), &last, DONE])]).await;
    let answered = house.answer("hi").await;
    assert!(message(&answered).contains("The model is on fire"), "{answered:?}");
    assert_eq!(house.rows()[1], ("assistant".to_owned(), "half way".to_owned()));
}

#[tokio::test]
async fn an_error_in_the_middle_of_a_stream_ends_the_answer() {
    let errors = [
        data(&json!({"error": {"message": "Overloaded", "type": "server_error", "code": 503}})),
        data(&json!({"error": "Overloaded"})),
        data(&json!({"choices": [], "error": {"message": "Overloaded"}})),
    ];
    for error in errors {
        check_broken(&error, "backend_error", "backend_error").await;
    }
}

#[tokio::test]
async fn an_error_is_one_by_its_name_or_its_shape_alone() {
    let errors = [
        "event: error\ndata: {\"message\":\"Overloaded\"}\n\n".to_owned(),
        "event: error\ndata: Overloaded\n\n".to_owned(),
        data(&json!({"object": "error", "message": "Overloaded", "code": 503})),
        data(&json!({"detail": "Overloaded", "type": "server_error"})),
    ];
    for error in errors {
        check_broken(&error, "backend_error", "backend_error").await;
    }
}

#[tokio::test]
async fn words_that_are_nested_without_end_harm_nobody() {
    let deep = format!("{}\"x\"{}", "[".repeat(500_000), "]".repeat(500_000));
    let nested = format!("data: {{\"choices\":[{{\"delta\":{{\"content\":{deep}}}}}]}}\n\n");
    let house = House::new(vec![sends(&[HEAD, &nested, &word("Hello."), &finish("stop"), DONE])]).await;
    let answered = house.answer("hi").await;
    house.check(
        &answered,
        &Outcome {
            events: "attempt token done",
            closed_by: "",
            rows: &[("user", "hi"), ("assistant", "Hello.")],
            requests: 1,
        },
    );
}

#[tokio::test]
async fn a_character_that_was_cut_between_two_chunks_is_whole_again() {
    let half = |unit: &str| format!("data: {{\"choices\":[{{\"delta\":{{\"content\":\"{unit}\"}}}}]}}\n\n");
    let parts = [HEAD, &half("sea \\ud83c"), &half("\\udf0a!"), &finish("stop"), DONE];
    let house = House::new(vec![sends(&parts)]).await;
    let answered = house.answer("hi").await;
    house.check(
        &answered,
        &Outcome {
            events: "attempt token token done",
            closed_by: "",
            rows: &[("user", "hi"), ("assistant", "sea \u{1f30a}!")],
            requests: 1,
        },
    );
}

#[tokio::test]
async fn the_words_of_an_error_in_a_stream_are_passed_on() {
    let error = data(&json!({"error": {"message": "The model is on fire"}}));
    let house = House::new(vec![sends(&[HEAD, &word("half"), &error])]).await;
    let answered = house.answer("hi").await;
    assert!(message(&answered).contains("The model is on fire"), "{answered:?}");
}

#[tokio::test]
async fn a_page_for_people_is_no_answer() {
    let page = || document("200 OK", "content-type: text/html\r\n", "<html><body>\n\n<h1>Sign in</h1></body></html>\n");
    let house = House::new(vec![page(), page(), page()]).await;
    let answered = house.answer("hi").await;
    house.check(
        &answered,
        &Outcome {
            events: "attempt attempt_end attempt attempt_end attempt apperror",
            closed_by: "cut_off cut_off cut_off",
            rows: &[("user", "hi"), ("notice", "cut_off")],
            requests: 3,
        },
    );
}

fn whole(kind: &str, body: &str) -> Reply {
    document("200 OK", &format!("content-type: {kind}\r\n"), body)
}

#[tokio::test]
async fn an_answer_as_one_document_is_an_answer() {
    let body = json!({
        "model": "test-model-7",
        "choices": [{"message": {"role": "assistant", "content": "Hello.", "reasoning_content": "Hm."},
                     "finish_reason": "stop"}],
        "usage": {"total_tokens": 7},
    });
    for kind in ["application/json", "Application/JSON; charset=utf-8"] {
        let house = House::new(vec![whole(kind, &body.to_string())]).await;
        let answered = house.answer("hi").await;
        house.check(
            &answered,
            &Outcome {
                events: "attempt reasoning token usage done",
                closed_by: "",
                rows: &[("user", "hi"), ("assistant", "Hello.")],
                requests: 1,
            },
        );
        assert_eq!(house.transcript().message(1).unwrap().reasoning().unwrap(), "Hm.");
    }
}

#[tokio::test]
async fn an_error_as_one_document_is_an_error_although_its_status_is_fine() {
    let error = || whole("application/json", r#"{"error":{"message":"Overloaded"}}"#);
    let house = House::new(vec![error(), fine("Hello.")]).await;
    let answered = house.answer("hi").await;
    house.check(
        &answered,
        &Outcome {
            events: "attempt attempt_end attempt token done",
            closed_by: "backend_error",
            rows: &[("user", "hi"), ("assistant", "Hello.")],
            requests: 2,
        },
    );
}

#[tokio::test]
async fn what_servers_add_or_leave_out_breaks_nothing() {
    let odd = [
        "\u{feff}event: message\nid: 1\nretry: 5\n",
        &data(&json!({"choices": null, "object": "chat.completion.chunk", "error": null})),
        &data(&json!({"choices": [{"delta": null, "finish_reason": null, "logprobs": {}}], "usage": null})),
        &data(&json!({"choices": [{"delta": {"role": null, "content": null, "tool_calls": null}}]})),
        &data(&json!({})),
        "data:\n\ndata: \n\n",
        &word("Hel").replace('\n', "\r\n"),
        &word("lo.").replace("data: ", "data:"),
        &finish("stop"),
        DONE,
    ];
    let house = House::new(vec![sends(&[HEAD, &odd.concat()])]).await;
    let answered = house.answer("hi").await;
    house.check(
        &answered,
        &Outcome {
            events: "attempt token token done",
            closed_by: "",
            rows: &[("user", "hi"), ("assistant", "Hello.")],
            requests: 1,
        },
    );
}
