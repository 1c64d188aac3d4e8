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
    House::with_token("a-token-of-the-test").play("page_cut", &["a-token-of-the-test"]);
}

#[test]
fn the_page_stops_answers_and_shows_what_others_wrote_as_text() {
    House::open().play("page_use", &[]);
}

#[test]
fn the_page_asks_for_the_token_and_streams_with_it() {
    House::with_token("a-token-of-the-test").play("page_token", &["a-token-of-the-test"]);
}
