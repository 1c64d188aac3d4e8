//! The retry of one armed marker: it is looked before it is given up, a search spends nothing, rows and cards of the same
//! turn count as there, and a journal that grows is followed to its end.

use serde_json::{Value, json};

use super::rows::{
    ARMED, ASKED, NOW, RUN, STREAMED, after_first_turn, armed, assistant, first_turn, marker, none, open_card, prompt,
    recovered, user,
};
use super::{Check, Told};

pub(super) const CHECKS: &[(&str, Check)] = &[
    ("f007_attempts_12_with_output", the_journal_is_read_before_the_marker_is_given_up),
    ("f009_age_over_24h", the_journal_is_read_before_the_marker_is_given_up),
    ("f040_bad_meta", attempts_that_are_no_number_are_none),
    ("f041_bad_meta", a_first_sight_that_is_no_time_is_now),
    ("f045_bad_meta", attempts_that_are_no_whole_number_are_none),
    ("f057_scan_read_uses_budget", a_search_spends_nothing),
    ("f059_torn_multibyte_tail_13_reads", a_torn_tail_costs_its_own_line),
    ("f021_output_already_above_marker", output_that_is_there_decides_the_marker),
    ("f030_tool_completed_preview_changed", a_card_is_known_by_its_run_and_number),
    ("f053_journal_grows_after_promotion", what_the_journal_gets_later_extends_the_row),
    ("f054_same_short_text_in_old_turn", an_equal_text_of_an_older_turn_swallows_nothing),
    ("f058_retry_while_turn_is_live", a_live_turn_is_not_rewritten),
];

/// The first turn, the question whose answer was interrupted, and these rows.
fn after_q2<const N: usize>(rows: [Value; N]) -> Value {
    first_turn().into_iter().chain([user("q2", 3)]).chain(rows).collect()
}

fn the_journal_is_read_before_the_marker_is_given_up(told: &mut Told) {
    told.retried(0, &after_q2([recovered("found", STREAMED), marker("recovered", ARMED)]), &none());
}

/// The journal is sealed and silent: each read costs an attempt.
fn counts_from_one(told: &mut Told, first_seen: i64) {
    told.retried(0, &after_q2([armed(ARMED, RUN, 1, first_seen)]), &none());
    told.retried(1, &after_q2([armed(ARMED, RUN, 2, first_seen)]), &none());
}

fn attempts_that_are_no_number_are_none(told: &mut Told) {
    counts_from_one(told, ARMED);
}

fn a_first_sight_that_is_no_time_is_now(told: &mut Told) {
    counts_from_one(told, NOW);
}

fn attempts_that_are_no_whole_number_are_none(told: &mut Told) {
    counts_from_one(told, ARMED);
}

fn a_search_spends_nothing(told: &mut Told) {
    told.unchanged(0..=1);
    for step in 0..=1 {
        told.list_is(step, "cached_after", &none());
    }
}

fn a_torn_tail_costs_its_own_line(told: &mut Told) {
    let prompt = user("please continue the work", ASKED);
    let rows = after_first_turn([prompt, recovered("kept", STREAMED), marker("recovered", ARMED)]);
    told.retried(0, &rows, &none());
    told.unchanged(1..=12);
}

fn output_that_is_there_decides_the_marker(told: &mut Told) {
    let rows = after_q2([recovered("late output", 4), marker("recovered", ARMED)]);
    told.retried(0, &rows, &none());
    told.unchanged([1]);
}

fn a_card_is_known_by_its_run_and_number(told: &mut Told) {
    let card = json!({
        "name": "terminal",
        "preview": "RESULT",
        "snippet": "RESULT",
        "tid": "journal-1",
        "assistant_msg_idx": 1,
        "args": {},
        "done": true,
        "_recovered_stream_id": RUN,
    });
    let rows = after_q2([recovered("", 4), marker("recovered", ARMED)]);
    told.retried(0, &rows, &json!([card]));
}

/// The row is what one look at the whole journal would have given.
fn what_the_journal_gets_later_extends_the_row(told: &mut Told) {
    let rows = |text: &str| after_first_turn([prompt(), recovered(text, STREAMED), marker("recovered", NOW)]);
    told.repaired(0, &rows("first half"), &none());
    told.repaired(2, &rows("first half second half"), &none());
    told.unchanged([4]);
}

fn an_equal_text_of_an_older_turn_swallows_nothing(told: &mut Told) {
    let rows = json!([
        user("q1", 1),
        assistant("Done.", 2),
        user("q2", 3),
        recovered("Done.", STREAMED),
        marker("recovered", ARMED),
    ]);
    told.retried(0, &rows, &json!([open_card("terminal", "make", 2, 3)]));
}

/// Its stream is live and it holds the session's lock: the older marker waits, although its journal is there.
fn a_live_turn_is_not_rewritten(told: &mut Told) {
    told.touched_nothing([0, 1, 3]);
    told.unchanged([2]);
    let waiting = armed(ARMED, RUN, 0, ARMED);
    told.session_is(2, &json!({"messages": after_q2([waiting, user("next", 9)])}));
}
