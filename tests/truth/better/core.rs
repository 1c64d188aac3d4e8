//! An empty transcript beside a core transcript: the prompt is never dropped nor repeated, and only rows of the pending
//! turn can hold what the journal says.

use serde_json::{Value, json};

use super::rows::{
    ASKED, NOW, RUN, STREAMED, armed, assistant, marker, none, open_card, prompt, recovered, user, with,
};
use super::{Check, Told};

pub(super) const CHECKS: &[(&str, Check)] = &[
    ("e004_core_no_journal", the_prompt_is_kept_and_a_marker_armed),
    ("e006_core_dedupe_exact", an_equal_row_of_an_older_turn_is_another_row),
    ("e007_core_dedupe_substring", a_row_of_an_older_turn_that_contains_the_text_is_another_row),
    ("e008_core_substring_23_vs_24", so_it_is_whatever_the_length_of_the_text),
    ("e009_core_tool_dedupe", a_tool_of_an_older_turn_is_another_tool),
    ("e012_core_corrupt", an_unreadable_core_file_counts_as_absent),
    ("e014_core_reasoning_attached", a_prompt_that_the_core_holds_is_not_repeated),
    ("e016_core_reasoning_kept", reasoning_that_is_there_is_kept),
    ("e018_core_sealed_without_output", the_prompt_of_a_silent_run_is_kept),
    ("e019_core_repeated_text_claimed_once", a_text_said_twice_is_two_rows),
];

fn core_turn() -> [Value; 2] {
    [user("core question", 1_799_990_000), assistant("core answer", 1_799_990_005)]
}

fn core_card() -> Value {
    json!({"name": "terminal", "preview": "ls", "done": true})
}

/// A core transcript of one turn, and these rows.
fn after(turn: [Value; 2], rows: impl IntoIterator<Item = Value>) -> Value {
    turn.into_iter().chain(rows).collect()
}

fn the_prompt_is_kept_and_a_marker_armed(told: &mut Told) {
    told.repaired(0, &after(core_turn(), [prompt(), armed(NOW, RUN, 0, NOW)]), &json!([core_card()]));
}

fn an_equal_row_of_an_older_turn_is_another_row(told: &mut Told) {
    let rows = [prompt(), recovered("core  answer", STREAMED), marker("recovered", NOW)];
    told.repaired(0, &after(core_turn(), rows), &json!([core_card()]));
}

fn a_row_of_an_older_turn_that_contains_the_text_is_another_row(told: &mut Told) {
    let sentence = "This sentence is comfortably longer than twenty-four characters.";
    let turn = [user("q", 1), assistant(&format!("Intro. {sentence} Outro."), 2)];
    told.repaired(0, &after(turn, [prompt(), recovered(sentence, STREAMED), marker("recovered", NOW)]), &none());
}

fn so_it_is_whatever_the_length_of_the_text(told: &mut Told) {
    let turn = [user("q", 1), assistant(&"x".repeat(60), 2)];
    let rows = [
        prompt(),
        recovered(&"x".repeat(23), STREAMED),
        recovered(&"x".repeat(24), STREAMED + 2),
        marker("recovered", NOW),
    ];
    told.repaired(0, &after(turn, rows), &none());
}

/// Both cards belong to the recovered row, which is the fourth.
fn a_tool_of_an_older_turn_is_another_tool(told: &mut Told) {
    let rows = [prompt(), recovered("hello there", STREAMED), marker("recovered", NOW)];
    let cards = json!([core_card(), open_card("terminal", " ls ", 2, 3), open_card("terminal", "pwd", 3, 3)]);
    told.repaired(0, &after(core_turn(), rows), &cards);
}

fn an_unreadable_core_file_counts_as_absent(told: &mut Told) {
    told.repaired(0, &json!([prompt(), recovered("out", STREAMED), marker("recovered", NOW)]), &none());
    told.unchanged([1]);
}

/// The core's row, which lacks it, gets the reasoning.
fn a_prompt_that_the_core_holds_is_not_repeated(told: &mut Told) {
    keeps_core_turn_with(told, "thoughts");
}

fn reasoning_that_is_there_is_kept(told: &mut Told) {
    keeps_core_turn_with(told, "original");
}

fn keeps_core_turn_with(told: &mut Told, reasoning: &str) {
    let answer = with(assistant("core text", 1_799_996_403), json!({"reasoning": reasoning}));
    let rows = after([user("please continue the work", ASKED), answer], [marker("recovered", NOW)]);
    told.repaired(0, &rows, &none());
}

/// The run completed, so that there is nothing to wait for.
fn the_prompt_of_a_silent_run_is_kept(told: &mut Told) {
    told.repaired(0, &after(core_turn(), [prompt()]), &json!([core_card()]));
}

fn a_text_said_twice_is_two_rows(told: &mut Told) {
    let turn = [user("q", 1), assistant("same", 2)];
    let rows = [prompt(), recovered("same", STREAMED), recovered("same", STREAMED + 2), marker("recovered", NOW)];
    told.repaired(0, &after(turn, rows), &none());
}
