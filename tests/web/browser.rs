//! A real browser, and curl: streams that go on by themselves, and the page.

use crate::house::House;

#[test]
fn an_event_source_sees_every_event_once_across_a_crash() {
    House::open().play("event_source", &[]);
}

#[test]
fn curl_with_the_last_event_id_sees_every_event_once_across_a_crash() {
    House::open().play("curl", &[]);
}

#[test]
fn the_page_shows_every_word_once_across_a_crash() {
    House::open().play("page_crash", &[]);
}

#[test]
fn the_page_shows_every_word_once_across_a_cut() {
    House::open().play("page_cut", &[]);
    House::with_tokens("a-token-of-the-test").play("page_cut", &["a-token-of-the-test"]);
}

#[test]
fn the_page_stops_answers_and_shows_what_others_wrote_as_text() {
    House::open().play("page_use", &[]);
}

#[test]
fn the_page_logs_in_with_a_token_and_says_what_is_wrong_with_others() {
    let (token, reading) = ("a-token-of-the-test", "a-reading-token-of-the-test");
    House::with_tokens(&format!("{token}\n{reading} read-only")).play("page_login", &[token, reading]);
}

#[test]
fn the_page_takes_in_long_answers_without_blocking() {
    House::open().play("page_speed", &[]);
}

#[test]
fn the_page_tells_errors_apart_and_keeps_drafts_with_their_session() {
    House::open().play("page_errors", &[]);
}

#[test]
fn the_page_shows_what_other_programs_wrote_and_one_odd_row_or_event_costs_no_other() {
    House::open().play("page_odd", &[]);
}

#[test]
fn a_request_that_is_slow_or_refused_says_so_in_its_session_and_keeps_the_words() {
    House::open().play("page_slow", &[]);
}

#[test]
fn the_page_shows_what_an_answer_is_doing() {
    House::open().play("page_states", &[]);
}

#[test]
fn the_page_works_under_a_path_of_a_proxy_or_of_its_own() {
    House::open().play("page_path", &[]);
    House::under("/chat").play("page_path", &[]);
}
