//! What a repair makes of each thing that can be wrong: what becomes of it, what is kept, and that it is done once.

use lastword::doctor::{self, Code, Outcome, Repair};
use serde_json::json;

use crate::codes::SCENES;
use crate::data::{Data, Files, JOURNAL, copy_of, rid, said, sid, treated};
use crate::rows::{plain_line, session};
use crate::scenes::{self, Scene, mode_of};

/// Files that say nothing of their own: who held the directory, what was logged on its way to the journals, and a list
/// that is derived.
pub(crate) fn is_derived(name: &str) -> bool {
    name == "_lock" || name == "_sessions.index" || name.starts_with("_commit_log/")
}

/// Every file of before is somewhere still, byte for byte, or has grown.
pub(crate) fn assert_nothing_is_gone(before: &Files, after: &Files, why: &str) {
    for (name, bytes) in before.iter().filter(|(name, _)| !is_derived(name)) {
        let has_only_grown = after.get(name).is_some_and(|found| found.starts_with(bytes));
        assert!(has_only_grown || after.values().any(|kept| kept == bytes), "{why}: what stood in {name} is gone");
    }
}

/// The bytes that replaying the log replaces are kept alone, and not the journal around them.
const KEEPS_A_PART: &str = "other_bytes_than_those_in_the_log_are_a_duplicate_seq";

/// Repairs a directory again, which must change nothing.
pub(crate) fn assert_nothing_is_left_to_do(data: &Data, why: &str) {
    let before = data.stamps();
    let again = data.repair();
    assert!(again.actions.is_empty(), "{why}: done again: {:#?}", again.actions);
    assert!(before == data.stamps(), "{why}: the second repair changed something");
}

#[test]
fn every_scene_is_mended_as_planned_and_once_and_nothing_is_gone() {
    for (name, make) in SCENES {
        let Scene { data, told, left } = make();
        let before = data.files();
        assert_others_are_left(&data, told[0].code, name);
        let plan = assert_plan_changes_nothing(&data, name);
        let done = data.repair();
        assert_eq!(treated(&plan), treated(&done), "{name}");
        assert!(done.is_applied);
        assert_eq!(data.bad_codes(), left, "{name}");
        if *name != KEEPS_A_PART {
            assert_nothing_is_gone(&before, &data.files(), name);
        }
        assert_nothing_is_left_to_do(&data, name);
    }
}

fn assert_plan_changes_nothing(data: &Data, name: &str) -> Repair {
    let before = data.stamps();
    let plan = doctor::plan(&data.root, &data.doctor()).unwrap();
    assert!(before == data.stamps(), "{name}: planning changed something");
    assert!(!plan.is_applied && plan.actions.iter().all(|action| action.outcome.is_none()), "{name}");
    plan
}

/// A repair of one code leaves what has another.
fn assert_others_are_left(data: &Data, code: Code, name: &str) {
    let other = if code == Code::StaleTemp { Code::TornTail } else { Code::StaleTemp };
    let before = data.stamps();
    let repair = data.repair_with(&data.only(other));
    assert!(repair.actions.is_empty(), "{name}: {:?}", repair.actions);
    assert!(before == data.stamps(), "{name}: something changed");
}

/// Repairs a damaged journal: it becomes the given bytes, the old one is kept where the action says.
fn becomes(scene: Scene, expected: impl FnOnce(&[Vec<u8>]) -> Vec<u8>) {
    let (data, old) = (scene.data, scene_journal(&scene.told));
    let (lines, before) = (data.lines(&old), data.read(&old));
    let repair = data.repair();
    let [action] = &repair.actions[..] else { panic!("{:?}", repair.actions) };
    assert_eq!(action.codes, [scene.told[0].code]);
    assert_eq!((action.session.as_ref(), action.run.as_ref()), (Some(&sid("talk")), Some(&rid("run-1"))));
    assert_eq!(String::from_utf8_lossy(&data.read(&old)), String::from_utf8_lossy(&expected(&lines)));
    let Some(Outcome::Done { kept: Some(kept) }) = &action.outcome else { panic!("{action:?}") };
    assert!(kept.starts_with("_kept/talk"), "{}", kept.display());
    assert_eq!(data.read(kept.to_str().unwrap()), before);
}

fn scene_journal(told: &[scenes::Told]) -> String {
    told[0].file.clone()
}

fn without(lines: &[Vec<u8>], line: usize) -> Vec<u8> {
    [&lines[..line], &lines[line + 1..]].concat().concat()
}

#[test]
fn a_torn_tail_is_cut_off() {
    becomes(scenes::part_of_a_line_at_the_end_is_a_torn_tail(), |lines| without(lines, 5));
    becomes(scenes::a_cut_last_line_of_the_reference_program_is_a_torn_tail(), |lines| without(lines, 4));
}

#[test]
fn a_damaged_line_is_cut_out() {
    becomes(scenes::a_changed_letter_is_a_checksum_mismatch(), |lines| without(lines, 1));
    becomes(scenes::bytes_that_are_no_text_are_bad_utf8(), |lines| without(lines, 1));
    becomes(scenes::bytes_of_the_reference_program_that_are_no_text_are_bad_utf8(), |lines| without(lines, 1));
    becomes(scenes::a_line_that_lost_its_beginning_is_bad_json(), |lines| without(lines, 2));
    becomes(scenes::garbage_between_lines_is_bad_json(), |lines| without(lines, 2));
}

#[test]
fn zeroes_are_cut_out() {
    becomes(scenes::zeroes_in_place_of_a_line_are_a_nul_run(), |lines| without(lines, 1));
    becomes(scenes::zeroes_at_the_end_are_a_nul_run(), |lines| without(lines, 5));
}

#[test]
fn a_line_that_is_too_long_is_cut_out() {
    becomes(scenes::a_line_longer_than_any_is_too_long(), |lines| without(lines, 2));
}

#[test]
fn glued_events_get_a_line_each() {
    becomes(scenes::two_events_on_one_line_are_glued_records(), |lines| {
        let text = String::from_utf8(lines.concat()).unwrap();
        text.replace("}{", "}\n{").into_bytes()
    });
}

#[test]
fn an_event_behind_part_of_another_gets_a_line_of_its_own() {
    becomes(scenes::an_event_behind_part_of_another_is_a_glued_record(), |lines| {
        let mut lines = lines.to_vec();
        lines[1].drain(..90);
        lines.concat()
    });
}

#[test]
fn a_repeated_line_is_left_out_once() {
    becomes(scenes::the_same_line_again_is_a_duplicate_seq(), |lines| without(lines, 3));
}

#[test]
fn a_line_that_stands_there_many_times_stays_once_where_it_stood_first() {
    let data = Data::healthy();
    let healthy = data.read(JOURNAL);
    data.edit(JOURNAL, |lines| {
        let again = lines[1].clone();
        lines.splice(2..2, [again.clone(), again.clone()]);
        lines.push(again);
    });
    data.repair();
    assert_eq!(data.read(JOURNAL), healthy);
}

#[test]
fn two_events_with_one_number_both_stay() {
    let scene = scenes::another_event_with_the_same_number_is_a_duplicate_seq();
    let before = scene.data.read(JOURNAL);
    assert!(scene.data.repair().actions.is_empty());
    assert_eq!(scene.data.read(JOURNAL), before);
}

#[test]
fn what_was_cut_out_is_no_damage_any_more_but_stays_known() {
    let data = scenes::a_changed_letter_is_a_checksum_mismatch().data;
    data.repair();
    let [finding] = &data.findings()[..] else { panic!("{:?}", data.findings()) };
    assert_eq!((finding.code, finding.severity), (Code::MissingSeq, scenes::Info));
    assert!(finding.message.contains("event 2") && finding.message.contains("_kept"), "{}", finding.message);
}

#[test]
fn an_event_that_is_lost_after_a_repair_is_damage_again() {
    let data = scenes::a_changed_letter_is_a_checksum_mismatch().data;
    data.repair();
    data.edit(JOURNAL, |lines| drop(lines.remove(1)));
    let told: Vec<_> = data.findings().iter().map(|finding| (finding.code, finding.severity)).collect();
    assert_eq!(told, [(Code::MissingSeq, scenes::Damage)], "the repair before took event 2, and not event 3");
}

#[test]
fn a_glued_line_does_not_explain_an_event_that_is_gone() {
    let data = Data::healthy();
    data.edit(JOURNAL, |lines| {
        lines.remove(1);
        lines[1].pop();
    });
    assert_eq!(data.bad_codes(), [Code::GluedRecords, Code::MissingSeq]);
    data.repair();
    assert_eq!(data.bad_codes(), [Code::MissingSeq]);
}

#[test]
fn more_damage_than_can_be_told_is_counted_and_mended() {
    let data = Data::foreign(&session(&[]));
    let line = |seq| plain_line(["talk", "run-1"], seq, "token", &json!({"text": "a"}));
    data.put(JOURNAL, &(1..=1_500).flat_map(|seq| [b"garbage\n".to_vec(), line(seq)].concat()).collect::<Vec<_>>());
    let summary = data.check().summary;
    assert_eq!((summary.damage, summary.untold, summary.info), (1_500, 500, 1));
    data.repair();
    assert_eq!(data.read(JOURNAL), (1..=1_500).flat_map(line).collect::<Vec<_>>());
    assert_eq!(data.bad_codes(), []);
}

#[test]
fn a_note_of_a_run_that_cannot_be_read_is_kept_before_another_is_written() {
    let data = scenes::interrupted();
    data.put("_run_journal/talk/_run-1.run", b"{\"version\":1,");
    data.edit(JOURNAL, |lines| lines.push(b"garbage\n{\"version\":1".to_vec()));
    data.repair();
    assert!(data.has_kept(b"{\"version\":1,"), "{:?}", data.files().keys());
}

#[test]
fn a_last_line_that_lacks_only_its_line_feed_is_whole() {
    let data = Data::healthy();
    data.edit(JOURNAL, |lines| assert_eq!(lines[4].pop(), Some(b'\n')));
    assert_eq!(data.findings(), []);
    data.edit(JOURNAL, |lines| lines.insert(1, b"garbage\n".to_vec()));
    let lines = data.lines(JOURNAL);
    data.repair();
    assert_eq!(data.read(JOURNAL), without(&lines, 1));
}

#[test]
fn a_folder_in_place_of_a_journal_is_told_and_left() {
    let data = Data::healthy();
    data.remove(JOURNAL);
    crate::data::make_folder(&data.path(JOURNAL));
    assert_eq!(data.bad_codes(), [Code::BadJson]);
    let repair = data.repair();
    assert!(repair.actions.is_empty() && repair.left_alone().count() == 1, "{repair:?}");
}

#[test]
fn numbers_that_damage_took_are_not_given_again() {
    let data = scenes::interrupted();
    data.edit(JOURNAL, |lines| lines.push(b"{\"version\":1,\"event_id\":\"run-1:2\"".to_vec()));
    data.repair();
    let store = data.store();
    let run = store.adopt_run(&sid("talk"), &rid("run-1")).unwrap();
    run.append(lastword::Event::token(" and back")).unwrap();
    assert_eq!(run.last_seq(), 3, "another program may have shown event 2");
}

#[test]
fn damage_of_every_kind_in_one_journal_is_mended_in_one_go() {
    let data = Data::healthy();
    let healthy = data.lines(JOURNAL);
    data.edit(JOURNAL, |lines| {
        lines.insert(1, b"garbage\n".to_vec());
        lines.insert(3, vec![0; 64]);
        lines.insert(3, b"\xff\xfe\n".to_vec());
        lines.insert(3, lines[2].clone());
        lines.push(b"{\"version\":1".to_vec());
    });
    let repair = data.repair();
    assert_eq!(repair.actions.len(), 1, "{:?}", repair.actions);
    assert_eq!(data.read(JOURNAL), healthy.concat());
    assert_eq!(data.findings(), []);
}

#[test]
fn the_log_is_put_into_the_journals() {
    let data = scenes::a_journal_that_lacks_logged_events_has_a_log_that_was_not_replayed().data;
    data.repair();
    assert_eq!(data.lines(JOURNAL).len(), 4);
    assert_eq!(data.findings(), []);
}

#[test]
fn what_was_acknowledged_wins_over_other_bytes_which_are_kept() {
    let data = scenes::other_bytes_than_those_in_the_log_are_a_duplicate_seq().data;
    data.repair();
    assert!(String::from_utf8(data.read(JOURNAL)).unwrap().contains("\"the \""));
    assert!(data.kept().values().any(|kept| String::from_utf8_lossy(kept).contains("THE ")));
}

#[test]
fn an_identity_gets_the_name_that_the_log_has() {
    let data = scenes::a_journal_that_lacks_logged_events_has_a_log_that_was_not_replayed().data;
    let name = data.sidecar("_lastword.json")["store"].clone();
    data.put("_lastword.json", b"{\"sto");
    data.repair();
    assert_eq!(data.sidecar("_lastword.json")["store"], name);
    assert!(data.has_kept(b"{\"sto"));
    assert_eq!(data.lines(JOURNAL).len(), 4, "the log was not replayed");
}

#[test]
fn a_foreign_log_is_kept() {
    let data = scenes::a_log_of_another_store_is_a_foreign_log().data;
    let log = data.read("_commit_log/segment-0000");
    data.repair();
    assert!(data.has_kept(&log));
    assert!(data.kept().keys().all(|name| name.starts_with("_kept/_commit_log/")));
}

#[test]
fn a_leftover_goes_to_the_trash() {
    let data = scenes::a_file_of_a_deleted_session_is_a_leftover().data;
    let bytes = data.read("talk.json");
    data.repair();
    let files = data.files();
    assert!(!files.contains_key("talk.json"));
    assert!(files.iter().any(|(name, found)| name.starts_with("_trash/talk.") && *found == bytes));
}

#[test]
fn a_leftover_replaces_nothing_that_is_in_the_trash_already() {
    let data = Data::healthy();
    let parts = ["talk.json", "talk.json.bak", JOURNAL];
    data.put("talk.json.bak", b"{\"messages\":[]}");
    let before = data.files();
    data.store().delete(&sid("talk")).unwrap();
    let again = ["{\"title\":\"again\"}", "{\"title\":\"a backup\"}", "{\"late\":1}\n"];
    parts.iter().zip(again).for_each(|(name, text)| data.put(name, text.as_bytes()));
    assert_eq!(data.bad_codes(), [Code::DeletedLeftover; 3]);
    data.repair();
    assert_eq!(data.bad_codes(), []);
    let trash: Vec<Vec<u8>> =
        data.files().into_iter().filter(|(name, _)| name.starts_with("_trash/talk.")).map(|(_, bytes)| bytes).collect();
    for bytes in parts.iter().map(|name| &before[*name][..]).chain(again.map(str::as_bytes)) {
        assert!(trash.iter().any(|found| found == bytes), "{}", String::from_utf8_lossy(bytes));
    }
    drop(data.store());
}

#[test]
fn a_backup_of_a_deleted_session_goes_to_the_trash_alone() {
    let data = Data::healthy();
    data.store().delete(&sid("talk")).unwrap();
    data.put("talk.json.bak", b"{}");
    assert_eq!(data.bad_codes(), [Code::DeletedLeftover]);
    data.repair();
    assert_eq!(data.bad_codes(), []);
    assert_nothing_is_left_to_do(&data, "a backup");
}

#[test]
fn an_unfinished_file_goes_to_the_kept_ones() {
    for scene in [
        scenes::a_file_that_nobody_finished_is_a_stale_temp(),
        scenes::a_file_that_nobody_finished_beside_a_journal_is_a_stale_temp(),
    ] {
        let file = scene.told[0].file.clone();
        let bytes = scene.data.read(&file);
        let repair = scene.data.repair();
        let Some(Outcome::Done { kept: Some(kept) }) = &repair.actions[0].outcome else { panic!("{repair:?}") };
        assert!(kept.starts_with("_kept/_temp"));
        assert_eq!(scene.data.read(kept.to_str().unwrap()), bytes);
        assert!(!scene.data.path(&file).exists());
        assert_eq!(scene.data.findings(), []);
    }
}

#[test]
fn what_others_may_open_is_the_owners_alone_afterwards() {
    for scene in [
        scenes::a_file_that_everybody_may_read_has_open_permissions(),
        scenes::a_journal_that_everybody_may_change_has_open_permissions(),
    ] {
        scene.data.repair();
        assert_eq!(mode_of(&scene.data, &scene.told[0].file), 0o600);
        assert_eq!(scene.data.findings(), []);
    }
}

#[test]
fn a_wrong_list_is_made_anew_and_the_old_one_kept() {
    for (scene, file) in [
        (scenes::a_wrong_list_of_the_reference_program_is_index_drift(), "_index.json"),
        (scenes::an_index_that_says_something_else_is_index_drift(), "_sessions.index"),
    ] {
        let bytes = scene.data.read(file);
        scene.data.repair();
        assert!(scene.data.has_kept(&bytes), "{file}");
        assert_eq!(scene.data.findings(), []);
        let titles: Vec<String> =
            scene.data.reader().list().unwrap().iter().map(|listed| listed.summary.as_ref().unwrap().title()).collect();
        assert!(!titles.iter().any(|title| title == "a lie"), "{titles:?}");
    }
}

#[test]
fn a_pending_turn_gets_what_the_next_read_would_give_it() {
    let (data, read) = (scenes::interrupted(), copy_of(&scenes::interrupted()));
    assert_eq!(treated(&data.repair()), [Code::PendingTurn]);
    let told: Vec<Code> = data.findings().iter().map(|finding| finding.code).collect();
    assert_eq!(told, [Code::UnsealedDeadRun]);
    let (repaired, served) = (data.reader().get_session(&sid("talk")), read.store().get_session(&sid("talk")));
    assert_eq!(said(&repaired.unwrap()), said(&served.unwrap()));
}

#[test]
fn a_directory_of_a_newer_program_is_not_written() {
    let data = scenes::an_identity_of_a_newer_program_is_a_newer_format().data;
    data.edit(JOURNAL, |lines| lines[1][0] = b'?');
    let before = data.files();
    let error = doctor::repair(&data.root, &data.doctor()).unwrap_err();
    assert!(error.to_string().contains("newer") || error.to_string().contains("format"), "{error}");
    let unlocked = |files: Files| files.into_iter().filter(|(name, _)| name != "_lock").collect::<Files>();
    assert!(unlocked(before) == unlocked(data.files()));
}
