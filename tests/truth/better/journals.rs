//! Journals: every whole line counts, once, and damage is reported with its place; a journal that is written has one end,
//! no glued record, and no number and no run id a second time.

use std::fs;

use serde_json::{Value, json};

use super::rows::{NOW, RUN, SESSION, STREAMED, after_first_turn, marker, none, prompt, recovered, run, session};
use super::{Check, Told};

pub(super) const CHECKS: &[(&str, Check)] = &[
    ("b006_torn_last_line_multibyte", a_tail_torn_inside_a_character_costs_its_own_line),
    ("b011_unicode_line_separator_raw", a_line_separator_inside_a_token_ends_no_line),
    ("b013_next_line_char_raw", other_line_ends_of_unicode_end_no_line),
    ("b015_bom", a_byte_order_mark_hides_nothing),
    ("b016_nan_and_duplicate_keys", a_line_that_is_not_json_is_damage),
    ("b018_duplicate_lines", an_event_that_stands_twice_counts_once),
    ("b020_glued_lines", two_records_on_a_line_are_both_read),
    ("b022_invalid_utf8_middle", a_line_that_is_not_utf8_costs_itself),
    ("h001_append_sequence", nothing_follows_the_end_of_a_run_but_one_stream_end),
    ("h002_reopen_torn_tail", an_append_behind_a_torn_tail_of_another_program_loses_nothing_and_repeats_no_number),
    ("h003_reopen_no_newline", a_whole_last_line_without_its_line_feed_is_completed_and_counts),
    ("h009_delete_run_journal", a_deleted_run_id_is_refused_by_name),
];

/// The one read repaired the turn with this text.
fn recovers(told: &mut Told, text: &str, at: i64) {
    let rows = after_first_turn([prompt(), recovered(text, at), marker("recovered", NOW)]);
    told.repaired(0, &rows, &none());
}

fn a_tail_torn_inside_a_character_costs_its_own_line(told: &mut Told) {
    recovers(told, "kept", STREAMED);
    told.journal_holds(&[1], &[("torn_tail", 265)]);
}

fn a_line_separator_inside_a_token_ends_no_line(told: &mut Told) {
    recovers(told, "one a\u{2028}b two", STREAMED);
    told.journal_holds(&[1, 2, 3], &[]);
}

fn other_line_ends_of_unicode_end_no_line(told: &mut Told) {
    recovers(told, "x\u{85}yp\u{2029}qgood", STREAMED);
    told.journal_holds(&[1, 2, 3], &[]);
}

fn a_byte_order_mark_hides_nothing(told: &mut Told) {
    recovers(told, "hidden seen", STREAMED);
    told.journal_holds(&[1, 2], &[]);
}

/// Of two equal keys the last counts. The lines have no time: that of the repair stands for it.
fn a_line_that_is_not_json_is_damage(told: &mut Told) {
    recovers(told, "second", NOW);
    told.journal_holds(&[2], &[("bad_json", 0)]);
}

fn an_event_that_stands_twice_counts_once(told: &mut Told) {
    recovers(told, "dup end", STREAMED);
    told.journal_holds(&[1, 2], &[]);
}

fn two_records_on_a_line_are_both_read(told: &mut Told) {
    recovers(told, "one twothree four", STREAMED);
    told.journal_holds(&[1, 2, 3, 4], &[("glued_records", 264)]);
}

fn a_line_that_is_not_utf8_costs_itself(told: &mut Told) {
    recovers(told, "one two", STREAMED);
    told.journal_holds(&[1, 2], &[("bad_utf8", 264)]);
}

/// The step appended an event with this number, name and payload.
fn appended(told: &mut Told, step: usize, seq: u64, name: &str, payload: Value) {
    let event = told.answer(step).clone().unwrap_or_default();
    let found = (event["seq"].as_u64(), event["event_id"].as_str(), event["event"].as_str(), &event["payload"]);
    let id = format!("{RUN}:{seq}");
    told.expect_equal(&format!("step {step}"), found, (Some(seq), Some(id.as_str()), Some(name), &payload));
}

/// The step gave a summary with these keys.
fn summarized(told: &mut Told, step: usize, expected: Value) {
    let found = told.answer(step).clone().unwrap_or_default();
    for (key, value) in expected.as_object().into_iter().flatten() {
        told.expect_equal(&format!("step {step}: {key}"), &found[key], value);
    }
}

fn nothing_follows_the_end_of_a_run_but_one_stream_end(told: &mut Told) {
    appended(told, 0, 1, "token", json!({"text": "a"}));
    appended(told, 1, 2, "reasoning", json!({"text": "\u{e9}\u{2028}"}));
    appended(told, 2, 3, "tool", json!({"name": "t", "args": {"x": 1}}));
    appended(told, 3, 4, "metering", json!({"f": 1.5, "n": null}));
    appended(told, 4, 5, "token", Value::Null);
    appended(told, 5, 6, "done", json!({}));
    appended(told, 8, 7, "stream_end", json!("x"));
    for step in [6, 7].into_iter().chain(9..=16) {
        told.refused(step, &["sealed", "invalid_argument"]);
    }
    told.journal_holds(&[1, 2, 3, 4, 5, 6, 7], &[]);
    let end = json!({"last_seq": 7, "terminal": true, "terminal_event": "done", "terminal_state": "completed"});
    summarized(told, 17, end);
}

/// The torn bytes are put aside before they are cut off, and the number that they may have had is left out.
fn an_append_behind_a_torn_tail_of_another_program_loses_nothing_and_repeats_no_number(told: &mut Told) {
    appended(told, 0, 3, "token", json!({"text": "after"}));
    appended(told, 1, 4, "token", json!({"text": "next"}));
    told.list_is(2, "events", &json!([{"seq": 1}, {"seq": 3}, {"seq": 4}]));
    told.list_is(2, "malformed", &json!([]));
    summarized(told, 3, json!({"last_seq": 4, "event_count": 3, "terminal": false}));
    let kept = fs::read_dir(told.stage().root().join("sessions/_kept").join(SESSION)).unwrap();
    let torn: Vec<Vec<u8>> = kept.map(|entry| fs::read(entry.unwrap().path()).unwrap()).collect();
    told.expect_equal("kept bytes", torn, vec![b"{\"version\":1,\"event_id\":\"a1b2c3d4e5f60718293a4b5c6".to_vec()]);
}

fn a_whole_last_line_without_its_line_feed_is_completed_and_counts(told: &mut Told) {
    appended(told, 0, 3, "token", json!({"text": "after"}));
    told.list_is(1, "events", &json!([{"seq": 1}, {"seq": 2}, {"seq": 3}]));
    told.list_is(1, "malformed", &json!([]));
}

fn a_deleted_run_id_is_refused_by_name(told: &mut Told) {
    appended(told, 0, 1, "token", json!({"t": 1}));
    for step in 1..=4 {
        told.refused(step, &["bad_id"]);
    }
    told.expect_equal("a session without runs has none deleted", told.answer(5).clone().ok(), Some(json!(false)));
    told.expect_equal("the run is deleted", told.answer(6).clone().ok(), Some(json!(true)));
    told.refused(7, &["exists"]);
    told.journal_holds(&[], &[]);
    let again = told.stage().store().remove_run(&session(), &run()).map_err(|error| error.code());
    told.expect_equal("deleting it again", again, Err("not_found"));
}
