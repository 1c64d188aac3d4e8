//! What the server sends is what the description says: answers to every operation, of sessions that it made and of those that
//! the reference program wrote. `reality.py` asks and compares.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value;

use super::served::Served;
use super::{home, installed, run};

/// The session of every recorded scenario.
const RECORDED: &str = "5e55a0c0ffee";

/// Files under a folder, by their path in it.
fn files(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(next) = folders.pop() {
        for entry in fs::read_dir(next).into_iter().flatten().map(|entry| entry.unwrap().path()) {
            if entry.is_dir() { folders.push(entry) } else { found.push(entry) }
        }
    }
    found.into_iter().map(|file| file.strip_prefix(folder).unwrap().to_owned()).collect()
}

/// Lays the sessions of all recorded scenarios into one data directory, each under an id of its own. How many those are.
fn lay_out(data: &Path) -> usize {
    let truth = Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures/truth");
    let scenarios = fs::read_dir(truth).unwrap().map(|entry| entry.unwrap().path().join("before/sessions"));
    let scenarios: Vec<PathBuf> = scenarios.filter(|sessions| sessions.is_dir()).collect();
    for (nth, sessions) in scenarios.iter().enumerate() {
        let id = format!("{nth:012x}");
        for file in files(sessions).iter().filter(|file| !file.starts_with("_index.json")) {
            let place = data.join(file.to_str().unwrap().replace(RECORDED, &id));
            fs::create_dir_all(place.parent().unwrap()).unwrap();
            fs::write(place, with_id(&fs::read(sessions.join(file)).unwrap(), &id)).unwrap();
        }
    }
    scenarios.len()
}

/// The bytes with another id of the same length.
fn with_id(bytes: &[u8], id: &str) -> Vec<u8> {
    let mut bytes = bytes.to_vec();
    let places: Vec<usize> = memchr::memmem::find_iter(&bytes, RECORDED).collect();
    places.into_iter().for_each(|at| bytes[at..at + id.len()].copy_from_slice(id.as_bytes()));
    bytes
}

#[test]
fn what_the_server_sends_is_what_its_description_says_whoever_wrote_the_session() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    let scenarios = lay_out(&data);
    let served = Served::start_in(folder, &["--pace-ms", "0"]);
    let mut python = installed(".ci/venv/bin/python");
    python.arg(home().join("reality.py")).arg(format!("http://{}", served.address)).arg(&data);
    let told: Value = serde_json::from_str(&run(&mut python)).unwrap();
    // What lies in a scenario and cannot be read is the exception.
    let (read, odd) = (told["sessions"].as_u64().unwrap(), told["odd"].as_u64().unwrap());
    assert!(scenarios > 100 && read as usize > scenarios - 10, "{scenarios} scenarios, {told}");
    assert_eq!(odd, 1, "the transcript of one scenario (g015) is not a list, and of no other: {told}");
    assert_eq!(told["left"].to_string(), "[]", "operations of which no answer was compared");
}
