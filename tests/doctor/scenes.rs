//! Directories in which exactly one thing is wrong, each with what the doctor has to say of it, and what a repair leaves.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use lastword::doctor::{Code, Finding, Severity};
use lastword::format::read_index_lines;
use lastword::{Event, NewSession, Outcome, UserTurn};
use serde_json::{Value, json};

use crate::data::{BEGAN, Data, JOURNAL, NOW, allow, copy_of, rid, sid};
use crate::rows::{armed, assistant, lost, own_line, pending, plain_answer, plain_journal, plain_line, session, user};

pub(crate) use Code::*;
pub(crate) use Severity::{Damage, Info, Warning};

/// A finding as far as programs rely on it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Told {
    pub(crate) code: Code,
    pub(crate) severity: Severity,
    pub(crate) session: Option<String>,
    pub(crate) run: Option<String>,
    pub(crate) file: String,
    pub(crate) offset: Option<u64>,
}

impl Told {
    fn new(code: Code, severity: Severity, file: &str) -> Self {
        Told { code, severity, session: None, run: None, file: file.to_owned(), offset: None }
    }

    fn of(self, session: &str) -> Self {
        Told { session: Some(session.to_owned()), ..self }
    }

    fn at(self, offset: Option<u64>) -> Self {
        Told { offset, ..self }
    }

    fn run(self, run: &str) -> Self {
        Told { run: Some(run.to_owned()), ..self }
    }
}

impl From<&Finding> for Told {
    fn from(finding: &Finding) -> Self {
        Told {
            code: finding.code,
            severity: finding.severity,
            session: finding.session.as_ref().map(ToString::to_string),
            run: finding.run.as_ref().map(ToString::to_string),
            file: finding.file.to_string_lossy().into_owned(),
            offset: finding.offset,
        }
    }
}

/// A directory, what is wrong with it, and what of that a repair cannot mend.
pub(crate) struct Scene {
    pub(crate) data: Data,
    pub(crate) told: Vec<Told>,
    /// The codes of damage and warnings that stay.
    pub(crate) left: Vec<Code>,
}

impl Scene {
    fn new(data: Data, told: Told) -> Self {
        Scene { data, told: vec![told], left: Vec::new() }
    }

    fn cannot_be_mended(self) -> Self {
        let left = self.told.iter().filter(|told| told.severity != Info).map(|told| told.code).collect();
        Scene { left, ..self }
    }
}

fn of_journal(code: Code, severity: Severity, offset: Option<u64>) -> Told {
    Told::new(code, severity, JOURNAL).of("talk").run("run-1").at(offset)
}

fn of_sidecar(code: Code, severity: Severity) -> Told {
    Told::new(code, severity, "talk.json").of("talk")
}

/// A healthy directory whose first journal is changed; one line of it is to be told.
fn damaged(code: Code, line: usize, change: impl FnOnce(&mut Vec<Vec<u8>>)) -> Scene {
    let data = Data::healthy();
    let offset = data.offset(JOURNAL, line);
    data.edit(JOURNAL, change);
    Scene::new(data, of_journal(code, Damage, offset))
}

/// The reference program's directory with one answered question and its journal.
fn foreign_answer() -> Data {
    let data = Data::foreign(&session(&[user("where to", BEGAN), assistant("to the sea", BEGAN)]));
    data.put(JOURNAL, &plain_answer(["talk", "run-1"], &["to ", "the ", "sea"]));
    data
}

fn foreign(rows: &[Value]) -> Data {
    Data::foreign(&session(rows))
}

// Journals.

pub(crate) fn part_of_a_line_at_the_end_is_a_torn_tail() -> Scene {
    damaged(TornTail, 5, |lines| lines.push(b"{\"version\":1,\"event_id\":\"run-1:6\",\"se".to_vec()))
}

pub(crate) fn a_cut_last_line_of_the_reference_program_is_a_torn_tail() -> Scene {
    let data = foreign_answer();
    let offset = data.offset(JOURNAL, 4);
    data.edit(JOURNAL, |lines| lines.push(plain_line(["talk", "run-1"], 5, "stream_end", &json!({}))[..70].to_vec()));
    Scene::new(data, of_journal(TornTail, Damage, offset))
}

pub(crate) fn a_changed_letter_is_a_checksum_mismatch() -> Scene {
    damaged(ChecksumMismatch, 1, |lines| {
        let at = lines[1].windows(4).position(|word| word == b"the ").unwrap();
        lines[1][at] ^= 1;
    })
}

pub(crate) fn bytes_that_are_no_text_are_bad_utf8() -> Scene {
    damaged(BadUtf8, 1, |lines| {
        let at = lines[1].windows(4).position(|word| word == b"the ").unwrap();
        lines[1][at] = 0xff;
    })
}

pub(crate) fn bytes_of_the_reference_program_that_are_no_text_are_bad_utf8() -> Scene {
    let data = foreign_answer();
    let offset = data.offset(JOURNAL, 1);
    data.edit(JOURNAL, |lines| {
        let at = lines[1].windows(4).position(|word| word == b"the ").unwrap();
        lines[1][at] = 0xc3;
    });
    Scene::new(data, of_journal(BadUtf8, Damage, offset))
}

pub(crate) fn a_line_that_lost_its_beginning_is_bad_json() -> Scene {
    damaged(BadJson, 2, |lines| drop(lines[2].drain(..30)))
}

pub(crate) fn garbage_between_lines_is_bad_json() -> Scene {
    damaged(BadJson, 2, |lines| lines.insert(2, b"core dumped\n".to_vec()))
}

pub(crate) fn a_note_of_a_run_that_is_no_json_is_bad_json() -> Scene {
    let data = Data::healthy();
    data.put("_run_journal/talk/_run-1.run", b"{\"version\":1,");
    let told = Told::new(BadJson, Warning, "_run_journal/talk/_run-1.run").of("talk").run("run-1").at(Some(0));
    Scene::new(data, told).cannot_be_mended()
}

pub(crate) fn an_identity_that_is_no_json_is_bad_json() -> Scene {
    let data = Data::healthy();
    data.put("_lastword.json", b"\0\0\0\0\0\0");
    Scene::new(data, Told::new(BadJson, Damage, "_lastword.json").at(Some(0)))
}

pub(crate) fn zeroes_in_place_of_a_line_are_a_nul_run() -> Scene {
    damaged(NulRun, 1, |lines| {
        let len = lines[1].len();
        lines[1][..len - 1].fill(0);
    })
}

pub(crate) fn zeroes_at_the_end_are_a_nul_run() -> Scene {
    damaged(NulRun, 5, |lines| lines.push(vec![0; 4096]))
}

pub(crate) fn two_events_on_one_line_are_glued_records() -> Scene {
    damaged(GluedRecords, 1, |lines| assert_eq!(lines[1].pop(), Some(b'\n')))
}

pub(crate) fn an_event_behind_part_of_another_is_a_glued_record() -> Scene {
    damaged(GluedRecords, 1, |lines| lines[1].truncate(90))
}

pub(crate) fn a_line_longer_than_any_is_too_long() -> Scene {
    let mut line = vec![b'x'; lastword::limits::LINE_BYTES_MAX + 1];
    line.push(b'\n');
    damaged(LineTooLong, 2, |lines| lines.insert(2, line))
}

pub(crate) fn the_same_line_again_is_a_duplicate_seq() -> Scene {
    let data = Data::healthy();
    let offset = data.offset(JOURNAL, 3);
    data.edit(JOURNAL, |lines| lines.insert(3, lines[1].clone()));
    Scene::new(data, of_journal(DuplicateSeq, Warning, offset))
}

pub(crate) fn another_event_with_the_same_number_is_a_duplicate_seq() -> Scene {
    let other = own_line(["talk", "run-1"], 2, &Event::token("another"));
    damaged(DuplicateSeq, 3, |lines| lines.insert(3, other)).cannot_be_mended()
}

/// A store that died with events in its log, one of which stands otherwise in the journal.
pub(crate) fn other_bytes_than_those_in_the_log_are_a_duplicate_seq() -> Scene {
    let data = unclosed();
    let offset = data.offset(JOURNAL, 1);
    let other = own_line(["talk", "run-1"], 2, &Event::token("THE "));
    data.edit(JOURNAL, |lines| lines[1] = other);
    Scene::new(data, of_journal(DuplicateSeq, Damage, offset))
}

pub(crate) fn a_line_that_is_gone_is_a_missing_seq() -> Scene {
    damaged(MissingSeq, 1, |lines| drop(lines.remove(1))).cannot_be_mended()
}

pub(crate) fn a_journal_with_the_ids_of_another_run_has_foreign_ids() -> Scene {
    let data = foreign_answer();
    data.put(JOURNAL, &plain_answer(["other", "run-9"], &["to ", "the ", "sea"]));
    Scene::new(data, of_journal(ForeignId, Warning, Some(0))).cannot_be_mended()
}

pub(crate) fn a_sidecar_with_the_id_of_another_session_has_a_foreign_id() -> Scene {
    let mut sidecar = session(&[user("where to", BEGAN)]);
    sidecar["session_id"] = json!("another");
    Scene::new(Data::foreign(&sidecar), of_sidecar(ForeignId, Info))
}

// Sessions and their turns.

pub(crate) fn a_journal_without_a_session_is_an_orphan() -> Scene {
    let data = Data::healthy();
    data.remove("calm.json");
    let told = Told::new(OrphanJournal, Damage, "_run_journal/calm/run-c.jsonl").of("calm").run("run-c");
    Scene::new(data, told)
}

pub(crate) fn an_empty_journal_without_a_session_is_an_orphan_that_nobody_misses() -> Scene {
    let data = Data::healthy();
    let file = "_run_journal/ghost/run-g.jsonl";
    data.put(file, b"");
    let told = |code| Told::new(code, Info, file).of("ghost").run("run-g");
    Scene { data, told: vec![told(UnsealedDeadRun), told(OrphanJournal)], left: Vec::new() }
}

pub(crate) fn a_journal_without_an_end_is_an_unsealed_dead_run() -> Scene {
    let data = foreign_answer();
    data.edit(JOURNAL, |lines| lines.truncate(3));
    Scene::new(data, of_journal(UnsealedDeadRun, Info, None))
}

pub(crate) fn a_marker_that_hopes_is_an_armed_marker() -> Scene {
    let data = foreign(&[user("where to", BEGAN), armed("run-1", 3, BEGAN)]);
    Scene::new(data, of_sidecar(ArmedMarker, Info).run("run-1"))
}

pub(crate) fn a_marker_whose_answer_is_there_gave_up_although_it_is_readable() -> Scene {
    let data = foreign(&[user("where to", BEGAN), lost(Some("run-1"), BEGAN + 60)]);
    data.put(JOURNAL, &plain_answer(["talk", "run-1"], &["to ", "the ", "sea"]));
    Scene::new(data, of_sidecar(GaveUpButReadable, Warning).run("run-1"))
}

pub(crate) fn a_message_that_nobody_answers_is_a_pending_turn() -> Scene {
    let data = Data::foreign(&pending(&[user("hi", BEGAN), assistant("hello", BEGAN)], "where to", "run-1"));
    Scene::new(data, of_sidecar(PendingTurn, Info).run("run-1"))
}

pub(crate) fn a_cut_sidecar_is_unreadable() -> Scene {
    let data = Data::healthy();
    let lines = data.lines("talk.json");
    let last = lines.iter().rposition(|line| line.windows(6).any(|word| word == b"\"role\"")).unwrap();
    let offset = data.offset("talk.json", last);
    data.edit("talk.json", |lines| {
        lines.truncate(last + 1);
        lines[last].truncate(40);
    });
    Scene::new(data, of_sidecar(SidecarUnreadable, Damage).at(offset))
}

pub(crate) fn a_sidecar_of_which_only_the_backup_is_left_is_unreadable() -> Scene {
    let data = Data::new();
    data.put("talk.json.bak", session(&[user("where to", BEGAN)]).to_string().as_bytes());
    Scene::new(data, of_sidecar(SidecarUnreadable, Damage))
}

pub(crate) fn a_wrong_message_count_is_a_row_index_mismatch() -> Scene {
    let mut sidecar = session(&[user("where to", BEGAN)]);
    sidecar["message_count"] = json!(7);
    Scene::new(Data::foreign(&sidecar), of_sidecar(RowIndexMismatch, Warning))
}

pub(crate) fn a_tool_card_that_points_at_a_question_is_a_row_index_mismatch() -> Scene {
    let mut sidecar = session(&[user("where to", BEGAN), assistant("to the sea", BEGAN)]);
    sidecar["messages"][1]["_run_id"] = json!("run-1");
    sidecar["tool_calls"] = json!([{"name": "map", "tid": "journal-1", "assistant_msg_idx": 0, "_run_id": "run-1"}]);
    Scene::new(Data::foreign(&sidecar), of_sidecar(RowIndexMismatch, Warning))
}

// The directory itself.

pub(crate) fn a_wrong_list_of_the_reference_program_is_index_drift() -> Scene {
    let data = foreign(&[user("where to", BEGAN)]);
    data.put("_index.json", json!([{"session_id": "talk", "message_count": 9}]).to_string().as_bytes());
    Scene::new(data, Told::new(IndexDrift, Warning, "_index.json").of("talk"))
}

pub(crate) fn a_list_of_the_reference_program_that_is_no_list_is_index_drift() -> Scene {
    let data = foreign(&[user("where to", BEGAN)]);
    data.put("_index.json", b"[{\"session_id\":");
    Scene::new(data, Told::new(IndexDrift, Warning, "_index.json").at(Some(0)))
}

pub(crate) fn an_index_that_does_not_know_a_session_is_index_drift() -> Scene {
    let data = Data::healthy();
    let bytes = data.read("talk.json");
    data.remove("talk.json");
    data.put("talk.json", &bytes);
    Scene::new(data, Told::new(IndexDrift, Info, "_sessions.index"))
}

pub(crate) fn an_index_that_says_something_else_is_index_drift() -> Scene {
    let data = Data::healthy();
    let index = data.read("_sessions.index");
    let line = read_index_lines(&index).filter(|line| line.session == "talk").last().unwrap();
    let summary = line.summary_of(&sid("talk"), &lastword::Revision::new(line.revision)).unwrap();
    let mut lie: Value = serde_json::from_str(&summary.to_json()).unwrap();
    lie["title"] = json!("a lie");
    let text = format!("talk {} {} {lie}", line.revision, BEGAN);
    let forged = format!("\n1 {:08x} {text}\n", crc32c(text.as_bytes()));
    data.put("_sessions.index", &[index.clone(), forged.into_bytes()].concat());
    Scene::new(data, Told::new(IndexDrift, Warning, "_sessions.index").of("talk"))
}

/// CRC-32C, bit by bit.
fn crc32c(bytes: &[u8]) -> u32 {
    let shift = |crc: u32, _| if crc & 1 == 1 { crc >> 1 ^ 0x82f6_3b78 } else { crc >> 1 };
    !bytes.iter().fold(!0, |crc, byte| (0..8).fold(crc ^ u32::from(*byte), shift))
}

pub(crate) fn a_file_that_nobody_finished_is_a_stale_temp() -> Scene {
    let data = Data::healthy();
    let file = "_tmp-0123456789abcdef0123456789abcdef";
    data.put(file, b"{\"session_id\":");
    Scene::new(data, Told::new(StaleTemp, Info, file))
}

pub(crate) fn a_file_that_nobody_finished_beside_a_journal_is_a_stale_temp() -> Scene {
    let data = Data::healthy();
    let file = "_run_journal/talk/run-1.jsonl.tmp.17";
    data.put(file, b"{\"version\":");
    Scene::new(data, Told::new(StaleTemp, Info, file).of("talk"))
}

pub(crate) fn a_file_of_a_deleted_session_is_a_leftover() -> Scene {
    let data = Data::healthy();
    let bytes = data.read("talk.json");
    {
        let store = data.store();
        store.delete(&sid("talk")).unwrap();
        store.list().unwrap();
    }
    data.put("talk.json", &bytes);
    Scene::new(data, of_sidecar(DeletedLeftover, Warning))
}

pub(crate) fn an_identity_of_a_newer_program_is_a_newer_format() -> Scene {
    let data = Data::healthy();
    data.edit_sidecar("_lastword.json", |identity| identity["format"] = json!(2));
    Scene::new(data, Told::new(NewerFormat, Warning, "_lastword.json")).cannot_be_mended()
}

pub(crate) fn a_log_of_a_newer_program_is_a_newer_format() -> Scene {
    let data = unclosed();
    let file = "_commit_log/segment-0000";
    let mut segment = data.read(file);
    segment[8] = 2;
    let crc = crc32c(&[&segment[8..12], &segment[16..128]].concat());
    segment[12..16].copy_from_slice(&crc.to_le_bytes());
    data.put(file, &segment);
    Scene::new(data, Told::new(NewerFormat, Warning, file)).cannot_be_mended()
}

pub(crate) fn a_file_that_everybody_may_read_has_open_permissions() -> Scene {
    let data = Data::healthy();
    allow(&data.path("talk.json"), 0o644);
    Scene::new(data, Told::new(OpenPermissions, Info, "talk.json"))
}

pub(crate) fn a_journal_that_everybody_may_change_has_open_permissions() -> Scene {
    let data = Data::healthy();
    allow(&data.path(JOURNAL), 0o666);
    Scene::new(data, Told::new(OpenPermissions, Warning, JOURNAL).of("talk"))
}

/// A store that was not closed: everything that was appended is in the log and in the journals.
fn unclosed() -> Data {
    let data = Data::new();
    let store = data.store();
    store.create(NewSession::titled("talk").with_id(sid("talk"))).unwrap();
    let run = store.begin_run(&sid("talk"), UserTurn::text("where to").with_run(rid("run-1"))).unwrap();
    for word in ["to ", "the ", "sea"] {
        run.append_durable(Event::token(word)).unwrap().wait().unwrap();
    }
    run.finish(Outcome::Completed).unwrap();
    copy_of(&data)
}

pub(crate) fn a_store_that_was_not_closed_has_a_log_that_was_not_replayed() -> Scene {
    Scene::new(unclosed(), Told::new(LogNotReplayed, Info, "_commit_log/segment-0000"))
}

pub(crate) fn a_journal_that_lacks_logged_events_has_a_log_that_was_not_replayed() -> Scene {
    let data = unclosed();
    let offset = data.offset(JOURNAL, 2);
    data.edit(JOURNAL, |lines| lines.truncate(2));
    Scene::new(data, of_journal(LogNotReplayed, Warning, offset))
}

pub(crate) fn a_damaged_log_is_a_checksum_mismatch() -> Scene {
    let data = unclosed();
    let file = "_commit_log/segment-0000";
    let mut segment = data.read(file);
    segment[128 + 60] ^= 1;
    data.put(file, &segment);
    let told = vec![Told::new(ChecksumMismatch, Damage, file).at(Some(128)), Told::new(LogNotReplayed, Info, file)];
    Scene { data, told, left: Vec::new() }
}

pub(crate) fn a_log_of_another_store_is_a_foreign_log() -> Scene {
    let data = Data::healthy();
    let file = "_commit_log/segment-0000";
    data.put(file, &unclosed().read(file));
    Scene::new(data, Told::new(ForeignLog, Warning, file))
}

/// What only its owner may touch.
pub(crate) fn mode_of(data: &Data, name: &str) -> u32 {
    fs::metadata(data.path(name)).unwrap().permissions().mode() & 0o777
}

/// An unsealed journal whose turn is pending, as the reference program leaves it when it dies.
pub(crate) fn interrupted() -> Data {
    let data = Data::foreign(&pending(&[], "where to", "run-1"));
    data.put(JOURNAL, &plain_journal(["talk", "run-1"], &[("token", json!({"text": "to the sea"}))]));
    data.set_clock(NOW);
    data
}
