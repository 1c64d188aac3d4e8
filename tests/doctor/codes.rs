//! What the doctor tells: each code with its severity and its place, and nothing of what is healthy.

use std::collections::BTreeSet;

use lastword::doctor::{Code, check};

use crate::data::{Data, JOURNAL};
use crate::scenes::{self, Scene, Told};

/// A scene and its name.
pub(crate) type Named = (&'static str, fn() -> Scene);

macro_rules! told_exactly {
    ($($scene:ident)+) => {
        $(#[test] fn $scene() { tells_exactly(scenes::$scene()); })+

        /// All scenes.
        pub(crate) const SCENES: &[Named] = &[$((stringify!($scene), scenes::$scene)),+];
    };
}

told_exactly! {
    part_of_a_line_at_the_end_is_a_torn_tail
    a_cut_last_line_of_the_reference_program_is_a_torn_tail
    a_changed_letter_is_a_checksum_mismatch
    bytes_that_are_no_text_are_bad_utf8
    bytes_of_the_reference_program_that_are_no_text_are_bad_utf8
    a_line_that_lost_its_beginning_is_bad_json
    garbage_between_lines_is_bad_json
    a_note_of_a_run_that_is_no_json_is_bad_json
    an_identity_that_is_no_json_is_bad_json
    zeroes_in_place_of_a_line_are_a_nul_run
    zeroes_at_the_end_are_a_nul_run
    two_events_on_one_line_are_glued_records
    an_event_behind_part_of_another_is_a_glued_record
    a_line_longer_than_any_is_too_long
    the_same_line_again_is_a_duplicate_seq
    another_event_with_the_same_number_is_a_duplicate_seq
    other_bytes_than_those_in_the_log_are_a_duplicate_seq
    a_line_that_is_gone_is_a_missing_seq
    a_journal_with_the_ids_of_another_run_has_foreign_ids
    a_sidecar_with_the_id_of_another_session_has_a_foreign_id
    a_journal_without_a_session_is_an_orphan
    an_empty_journal_without_a_session_is_an_orphan_that_nobody_misses
    a_journal_without_an_end_is_an_unsealed_dead_run
    a_marker_that_hopes_is_an_armed_marker
    a_marker_whose_answer_is_there_gave_up_although_it_is_readable
    a_message_that_nobody_answers_is_a_pending_turn
    a_cut_sidecar_is_unreadable
    a_sidecar_of_which_only_the_backup_is_left_is_unreadable
    a_wrong_message_count_is_a_row_index_mismatch
    a_tool_card_that_points_at_a_question_is_a_row_index_mismatch
    a_wrong_list_of_the_reference_program_is_index_drift
    a_list_of_the_reference_program_that_is_no_list_is_index_drift
    an_index_that_does_not_know_a_session_is_index_drift
    an_index_that_says_something_else_is_index_drift
    a_file_that_nobody_finished_is_a_stale_temp
    a_file_that_nobody_finished_beside_a_journal_is_a_stale_temp
    a_file_of_a_deleted_session_is_a_leftover
    an_identity_of_a_newer_program_is_a_newer_format
    a_log_of_a_newer_program_is_a_newer_format
    a_file_that_everybody_may_read_has_open_permissions
    a_journal_that_everybody_may_change_has_open_permissions
    a_store_that_was_not_closed_has_a_log_that_was_not_replayed
    a_journal_that_lacks_logged_events_has_a_log_that_was_not_replayed
    a_damaged_log_is_a_checksum_mismatch
    a_log_of_another_store_is_a_foreign_log
}

fn tells_exactly(scene: Scene) {
    let before = scene.data.stamps();
    let report = scene.data.check();
    let told: Vec<Told> = report.findings.iter().map(Told::from).collect();
    assert_eq!(told, scene.told, "{:#?}", report.findings);
    for finding in &report.findings {
        assert!(!finding.repair.is_empty() && !finding.message.is_empty(), "{finding:?}");
    }
    assert!(before == scene.data.stamps(), "looking changed something");
    assert_eq!(report.is_bad(), scene.told.iter().any(|told| told.severity != scenes::Info));
}

#[test]
fn every_code_is_told_of_some_directory() {
    let told: BTreeSet<Code> = SCENES.iter().flat_map(|(_, make)| make().told).map(|told| told.code).collect();
    let untold: Vec<&Code> = Code::ALL.iter().filter(|code| !told.contains(code)).collect();
    assert!(untold.is_empty(), "no scene has {untold:?}");
    assert_eq!(Code::ALL.len(), 24);
}

#[test]
fn nothing_is_told_of_a_directory_that_was_closed() {
    let report = Data::healthy().check();
    assert_eq!(report.findings, []);
    let summary = report.summary;
    assert_eq!((summary.sessions, summary.journals, summary.events), (3, 3, 12));
    assert_eq!((summary.damage, summary.warning, summary.info, summary.untold), (0, 0, 0, 0));
    assert!(!summary.is_live && !report.is_bad());
}

#[test]
fn nothing_is_told_of_a_directory_that_was_just_made() {
    let empty = Data::new();
    assert_eq!(empty.findings(), []);
    drop(empty.store());
    assert_eq!(empty.findings(), []);
}

#[test]
fn nothing_is_told_of_what_strangers_left() {
    let data = Data::healthy();
    for name in [".DS_Store", "._talk.json", "notes.txt", "_run_journal/talk/readme.md", "_run_journal/.keep"] {
        data.put(name, b"\0stranger");
    }
    assert_eq!(data.findings(), []);
}

#[test]
fn every_thread_tells_the_same() {
    let data = Data::healthy();
    data.edit("_run_journal/talk/run-2.jsonl", |lines| lines[0][0] = b'?');
    data.edit("_run_journal/calm/run-c.jsonl", |lines| lines[0][0] = b'?');
    let told = |threads| {
        let options = lastword::doctor::DoctorOptions { threads, ..data.doctor() };
        check(&data.root, &options).unwrap().findings
    };
    assert_eq!(told(1).len(), 2);
    assert_eq!(told(1), told(4));
}

/// Changes the second line of a journal. Everything that is told then is told of that line.
fn tells_of_second_line(codes: &[Code], change: impl FnOnce(&mut Vec<Vec<u8>>)) {
    let data = Data::healthy();
    let offset = data.offset(JOURNAL, 1);
    data.edit(JOURNAL, change);
    let told: Vec<(Code, Option<u64>)> = data.findings().iter().map(|finding| (finding.code, finding.offset)).collect();
    assert_eq!(told, codes.iter().map(|code| (*code, offset)).collect::<Vec<_>>());
}

#[test]
fn the_place_is_the_first_byte_of_the_line_wherever_on_it_the_damage_is() {
    tells_of_second_line(&[Code::BadJson], |lines| lines.insert(1, b"   garbage\n".to_vec()));
    tells_of_second_line(&[Code::NulRun], |lines| lines.insert(1, b"  \0\0\0\n".to_vec()));
    tells_of_second_line(&[Code::GluedRecords, Code::BadJson], |lines| {
        lines[1].pop();
        lines[1].extend_from_slice(b" garbage\n");
    });
    tells_of_second_line(&[Code::GluedRecords, Code::DuplicateSeq], |lines| {
        let first = lines[0].clone();
        lines[1].pop();
        lines[1].extend(first);
    });
    tells_of_second_line(&[Code::GluedRecords, Code::MissingSeq], |lines| {
        let fourth = lines[3].clone();
        lines.drain(2..4);
        lines[1].pop();
        lines[1].extend(fourth);
    });
}
