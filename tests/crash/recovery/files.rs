//! Files on the simulated disk, durable and as another program would put them there, and what is in them later.

use std::path::{Path, PathBuf};

use lastword::storage::sim::SimDisk;
use lastword::storage::{Access, Disk};
use serde_json::{Value, json};

use crate::machine::{DATA, NOW};

pub(super) const RUN: &str = "r1";
/// The beginning of a line.
pub(super) const TORN: &str = "{\"version\":1,\"event_id\":\"r1:99\",\"seq\":99,\"ru";
pub(super) const PROMPT: &str = "Where to?";

pub(super) fn sidecar() -> PathBuf {
    Path::new(DATA).join("s.json")
}

pub(super) fn journal() -> PathBuf {
    Path::new(DATA).join(format!("_run_journal/s/{RUN}.jsonl"))
}

/// The bytes of a file; nothing if there is none.
pub(super) fn bytes_of(disk: &SimDisk, path: &Path) -> Option<Vec<u8>> {
    let file = disk.open(path, Access::Read).ok()?;
    let mut bytes = vec![0; file.stat().unwrap().len as usize];
    file.read_at(&mut bytes, 0).unwrap();
    Some(bytes)
}

/// The names of files in the data directory that somebody was still writing.
pub(super) fn temp_files(disk: &SimDisk) -> Vec<String> {
    let names = disk.read_dir(Path::new(DATA)).unwrap();
    names.into_iter().map(|entry| entry.name).filter(|name| name.starts_with("_tmp-")).collect()
}

fn ensure_folder(disk: &SimDisk, path: &Path) {
    let Some(above) = path.parent() else { return };
    ensure_folder(disk, above);
    if disk.stat(path).is_err() {
        disk.create_dir(path).unwrap();
    }
    disk.sync_dir(above).unwrap();
}

/// Adds bytes to a file, which is created with the folders above it if it is not there.
fn add(disk: &SimDisk, path: &Path, bytes: &[u8]) {
    let folder = path.parent().unwrap();
    ensure_folder(disk, folder);
    let access = if disk.stat(path).is_ok() { Access::Write } else { Access::CreateNew };
    let file = disk.open(path, access).unwrap();
    let end = file.stat().unwrap().len;
    assert_eq!(file.write_at(bytes, end).unwrap(), bytes.len());
    file.sync().unwrap();
    disk.sync_dir(folder).unwrap();
}

/// A session of the reference program whose turn waits for the run.
pub(super) fn put_waiting_session(disk: &SimDisk) {
    let session = json!({
        "session_id": "s", "title": "A talk", "created_at": 1.0, "updated_at": 2.0, "active_stream_id": RUN,
        "pending_user_message": PROMPT, "pending_attachments": [], "pending_started_at": NOW,
        "pending_user_source": null, "message_count": 0, "messages": [], "tool_calls": [],
    });
    put_sidecar(disk, &serde_json::to_vec_pretty(&session).unwrap());
}

pub(super) fn put_sidecar(disk: &SimDisk, bytes: &[u8]) {
    add(disk, &sidecar(), bytes);
}

pub(super) fn add_to_journal(disk: &SimDisk, text: &str) {
    add(disk, &journal(), text.as_bytes());
}

/// A line as the reference program writes it.
pub(super) fn line(seq: u64, name: &str, payload: &Value) -> String {
    line_of(RUN, seq, name, payload)
}

/// A line of another run.
pub(super) fn line_of(run: &str, seq: u64, name: &str, payload: &Value) -> String {
    let state = match name {
        "done" => "\"completed\"",
        "cancel" => "\"interrupted-by-user\"",
        "apperror" => "\"errored\"",
        _ => "null",
    };
    let (is_end, at) = (state != "null", NOW + seq as i64);
    format!(
        "{{\"version\":1,\"event_id\":\"{run}:{seq}\",\"seq\":{seq},\"run_id\":\"{run}\",\"session_id\":\"s\",\
         \"event\":\"{name}\",\"type\":\"{name}\",\"created_at\":{at}.000000,\"terminal\":{is_end},\
         \"terminal_state\":{state},\"payload\":{payload}}}\n"
    )
}

/// The same line as we write it: with its checksum.
pub(super) fn checked(line: &str) -> String {
    let body = line.strip_suffix("}\n").expect("a whole line");
    format!("{body},\"crc\":\"{:08x}\"}}\n", crc32c::crc32c(body.as_bytes()))
}
