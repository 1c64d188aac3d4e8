//! Several armed markers, and markers with newer rows behind them: one read handles all, each in its own turn's place.

use serde_json::json;

use super::rows::{
    ARMED, ASKED, NOW, OTHER_RUN, RUN, STREAMED, after_first_turn, armed, assistant, marker, none, open_card,
    recovered, recovered_of, recovered_prompt, user,
};
use super::{Check, Told};

pub(super) const CHECKS: &[(&str, Check)] = &[
    ("f016_two_pending_markers", one_read_resolves_every_marker),
    ("f017_two_pending_markers_only_older_has_output", a_missing_journal_holds_up_no_other_marker),
    ("f018_newest_gives_up_then_older_resolves", each_marker_has_its_own_budget),
    ("f019_user_row_after_marker", indexes_follow_rows_inserted_above_the_marker),
    ("f020_normal_answer_after_marker", a_marker_is_found_behind_normal_answers),
    ("f062_pending_turn_on_top_of_armed_marker", one_read_repairs_the_turn_and_the_older_marker),
];

fn one_read_resolves_every_marker(told: &mut Told) {
    let rows = json!([
        user("q1", 1),
        recovered_of(OTHER_RUN, "answer one", STREAMED),
        marker("recovered", ARMED),
        user("q2", 3),
        recovered("answer two", STREAMED),
        marker("recovered", ARMED),
    ]);
    told.retried(0, &rows, &none());
    told.unchanged(1..=2);
}

fn a_missing_journal_holds_up_no_other_marker(told: &mut Told) {
    let rows = json!([
        user("q1", 1),
        recovered_of(OTHER_RUN, "answer one", STREAMED),
        marker("recovered", ARMED),
        user("q2", 3),
        armed(ARMED, RUN, 0, ARMED),
    ]);
    told.retried(0, &rows, &none());
    told.unchanged([1]);
}

/// The newest had one attempt left and finds nothing.
fn each_marker_has_its_own_budget(told: &mut Told) {
    let rows = json!([
        user("q1", 1),
        recovered_of(OTHER_RUN, "answer one", STREAMED),
        marker("recovered", ARMED),
        user("q2", 3),
        marker("lost", ARMED),
    ]);
    told.retried(0, &rows, &none());
    told.unchanged(1..=2);
}

fn indexes_follow_rows_inserted_above_the_marker(told: &mut Told) {
    let rows = after_first_turn([
        user("q2", 3),
        recovered("before tool", STREAMED),
        marker("recovered", ARMED),
        user("newer question", 9),
    ]);
    told.retried(0, &rows, &json!([open_card("terminal", "ls", 2, 3)]));
}

/// It is far too old, and it is looked before it is given up.
fn a_marker_is_found_behind_normal_answers(told: &mut Told) {
    let rows = after_first_turn([
        user("q2", 3),
        recovered("late", STREAMED),
        marker("recovered", ARMED),
        user("q3", 9),
        assistant("fine", 10),
    ]);
    told.retried(0, &rows, &none());
    told.unchanged([1]);
}

fn one_read_repairs_the_turn_and_the_older_marker(told: &mut Told) {
    let rows = after_first_turn([
        user("q2", 3),
        recovered_of(OTHER_RUN, "old output", STREAMED),
        marker("recovered", ARMED),
        recovered_prompt("second try", ASKED),
        recovered("new output", STREAMED),
        marker("recovered", NOW),
    ]);
    told.repaired(0, &rows, &none());
    told.unchanged([1]);
}
