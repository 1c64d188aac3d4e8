//! Saves and outside changes: nothing longer is replaced by accident or lost, and no cache hides a change.

use lastword::{List, SaveIntent, SaveOptions};
use serde_json::{Value, json};

use super::rows::{after_first_turn, assistant, first_turn, session, user};
use super::{Check, Told};
use crate::ops::kept_rows;

pub(super) const CHECKS: &[(&str, Check)] = &[
    ("g021_save_guard_empty_snapshot", an_empty_snapshot_over_a_filled_sidecar_is_refused),
    ("g022_bak_rules", every_version_that_a_stated_cut_replaces_is_kept),
    ("g043_freshness_disk_ahead", every_outside_change_is_seen_by_the_next_read),
];

fn an_empty_snapshot_over_a_filled_sidecar_is_refused(told: &mut Told) {
    told.refused(0, &["refused"]);
    told.unchanged([2]);
    told.session_is(2, &json!({"messages": first_turn(), "active_stream_id": null, "pending_user_message": null}));
}

/// Growing and renaming keep nothing. A cut states that it is one; the last step sets no rows at all, which could be an
/// accident and is refused, until it is stated too.
fn every_version_that_a_stated_cut_replaces_is_kept(told: &mut Told) {
    told.refused(4, &["refused"]);
    for (step, kept) in [(0, Value::Null), (1, json!(7)), (2, json!(4)), (3, json!(4))] {
        let found = told.answer(step).as_ref().map_or(json!("refused"), |answer| answer["bak_messages"].clone());
        told.expect_equal(&format!("step {step}: rows of the version that was kept last"), found, kept);
    }
    told.list_is(3, "index", &json!([{"title": "same length", "message_count": 3, "user_message_count": 3}]));
    let cut = SaveOptions { intent: SaveIntent::Shrink, ..SaveOptions::default() };
    let clear = |rows: &mut lastword::Session| rows.truncate(List::Messages, 0).unwrap();
    let cleared = told.stage().store().update(&session(), cut, clear).map(|session| session.len(List::Messages));
    told.expect(matches!(cleared, Ok(0)), format!("a stated clearing: {cleared:?}"));
    let kept = kept_rows(told.stage(), &session());
    told.expect_equal("rows of the versions that were kept", kept, vec![7, 4, 3]);
}

fn every_outside_change_is_seen_by_the_next_read(told: &mut Told) {
    let external = user("external", 9);
    told.unchanged([0]);
    told.session_is(2, &json!({"messages": after_first_turn([external.clone()])}));
    let answer = assistant("first answer", 1_799_990_005);
    told.session_is(4, &json!({"messages": [user("edited", 1_799_990_000), answer, external]}));
    told.session_is(6, &json!({"messages": [user("first question", 1_799_990_000)]}));
    told.touched_nothing([2, 4, 6, 8]);
    told.refused(8, &["not_found"]);
}
