//! The first repair of a dead turn: not while it is young, live or locked, and then by the next read, warm or cold. What is
//! in the transcript already is not added again, and an end is an end.

use serde_json::json;

use super::rows::{
    ASKED, NOW, RUN, STREAMED, after_first_turn, armed, assistant, marker, none, prompt, recovered, recovered_prompt,
    user, with,
};
use super::{Check, Told};

pub(super) const CHECKS: &[(&str, Check)] = &[
    ("c009_cancel_without_output", a_run_that_the_user_stopped_is_final),
    ("c020_embedded_error_already_in_transcript", an_error_row_that_is_there_is_tagged),
    ("d024_started_future", a_start_in_the_far_future_counts_as_old),
    ("d050_partial_already_checkpointed", a_partial_answer_that_is_there_is_not_added_again),
    ("e003_no_core_completed", a_completed_run_needs_no_marker),
    ("d011_grace_then_warm_read", a_warm_read_repairs_once_the_grace_time_is_over),
    ("d030_stream_registered", the_next_read_repairs_once_the_stream_is_gone),
    ("d037_lock_contended_nonempty", the_next_read_repairs_once_the_lock_is_free),
];

/// The marker says so in words of ours: it is neither waiting nor does it speak of recovery.
fn a_run_that_the_user_stopped_is_final(told: &mut Told) {
    let stopped = json!({"role": "assistant", "timestamp": NOW, "_error": true, "type": "interrupted"});
    told.repaired(0, &after_first_turn([prompt(), stopped]), &none());
    let marker = told.last_row(0);
    let words = marker["content"].as_str().unwrap_or_default().to_lowercase();
    told.expect(words.contains("stopped"), format!("the marker does not say that it was stopped: {words}"));
    told.expect(!words.contains("recovered"), format!("the marker speaks of recovery: {words}"));
    for key in ["_pending_journal_recovery", "_journal_retry_stream_id", "_journal_retry_attempts"] {
        told.expect(marker.get(key).is_none(), format!("the marker has {key}: {marker}"));
    }
    told.unchanged(1..=2);
}

fn an_error_row_that_is_there_is_tagged(told: &mut Told) {
    let error = json!({
        "_error": true,
        "_recovered_from_run_journal": true,
        "_recovered_stream_id": RUN,
        "_recovered_event_id": format!("{RUN}:1"),
    });
    let rows = after_first_turn([
        user("please continue the work", ASKED),
        with(assistant("**Error:** bad key", 1_799_996_409), error),
    ]);
    told.repaired(0, &rows, &none());
}

/// The row keeps the start that it was given, odd as it is.
fn a_start_in_the_far_future_counts_as_old(told: &mut Told) {
    let prompt = recovered_prompt("please continue the work", 1_800_007_200);
    let rows = after_first_turn([prompt, recovered("out", STREAMED), marker("recovered", NOW)]);
    told.repaired(0, &rows, &none());
}

fn a_partial_answer_that_is_there_is_not_added_again(told: &mut Told) {
    let partial = assistant("Working on the thing you asked for.", 1_799_996_404);
    let rows = after_first_turn([
        user("please continue the work", ASKED),
        with(partial, json!({"_partial": true})),
        marker("recovered", NOW),
    ]);
    told.repaired(0, &rows, &none());
}

fn a_completed_run_needs_no_marker(told: &mut Told) {
    told.repaired(0, &json!([prompt(), recovered("answer", STREAMED)]), &none());
}

/// There is no journal, so that the marker waits for one; reading it again costs nothing.
fn a_warm_read_repairs_once_the_grace_time_is_over(told: &mut Told) {
    let later = NOW + 3600;
    told.unchanged([0]);
    let prompt = recovered_prompt("please continue the work", 1_799_999_995);
    told.repaired(1, &after_first_turn([prompt, armed(later, RUN, 0, later)]), &none());
    told.unchanged([3]);
}

fn the_next_read_repairs_once_the_stream_is_gone(told: &mut Told) {
    told.unchanged([1]);
    told.repaired(3, &after_first_turn([prompt(), recovered("out", STREAMED), marker("recovered", NOW)]), &none());
    told.unchanged([5]);
}

fn the_next_read_repairs_once_the_lock_is_free(told: &mut Told) {
    told.touched_nothing([0, 2]);
    told.unchanged([1]);
    told.repaired(3, &after_first_turn([prompt(), recovered("out", STREAMED), marker("recovered", NOW)]), &none());
    told.unchanged([5]);
}
