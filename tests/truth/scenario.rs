//! A recorded scenario as it lies on disk: what was there before, and the steps with their arguments and results.
//! Knows nothing of the store.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value;

pub(crate) struct Scenario {
    pub(crate) name: String,
    pub(crate) folder: PathBuf,
    /// What must hold here instead of what the reference program did.
    pub(crate) better: Option<String>,
    pub(crate) server_start_time: f64,
    pub(crate) steps: Vec<Step>,
}

/// One step: an operation, the time at which it was done, its arguments, and what came of it.
#[derive(Clone)]
pub(crate) struct Step(Value);

impl Scenario {
    /// All scenarios of a folder, in the order of their names.
    pub(crate) fn all_in(folder: &Path) -> Vec<Scenario> {
        let entries = fs::read_dir(folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
        let mut folders: Vec<PathBuf> = entries.map(|entry| entry.unwrap().path()).collect();
        folders.retain(|folder| folder.join("steps.json").is_file());
        folders.sort();
        folders.iter().map(|folder| Scenario::read(folder)).collect()
    }

    fn read(folder: &Path) -> Scenario {
        let bytes = fs::read(folder.join("steps.json")).unwrap();
        let recorded: Value = serde_json::from_slice(&bytes).unwrap();
        let name = folder.file_name().unwrap().to_string_lossy().into_owned();
        let steps = recorded["steps"].as_array().unwrap_or_else(|| panic!("{name} has no steps"));
        Scenario {
            better: recorded["better"].as_str().map(str::to_owned),
            server_start_time: recorded["server_start_time"].as_f64().unwrap_or(0.0),
            steps: steps.iter().cloned().map(Step).collect(),
            folder: folder.to_owned(),
            name,
        }
    }

    /// The sidecar of a session as it is before the first step.
    pub(crate) fn sidecar_before(&self, session: &str) -> Option<Vec<u8>> {
        fs::read(self.folder.join(format!("before/sessions/{session}.json"))).ok()
    }
}

impl Step {
    pub(crate) fn op(&self) -> &str {
        self.text("op")
    }

    /// The frozen clock, in seconds.
    pub(crate) fn now(&self) -> f64 {
        self.number("now").unwrap_or(0.0)
    }

    /// An argument; nothing if it is missing or null.
    pub(crate) fn value(&self, key: &str) -> Option<&Value> {
        self.0.get(key).filter(|value| !value.is_null())
    }

    pub(crate) fn text(&self, key: &str) -> &str {
        self.0[key].as_str().unwrap_or_default()
    }

    pub(crate) fn number(&self, key: &str) -> Option<f64> {
        self.0[key].as_f64()
    }

    pub(crate) fn count(&self, key: &str) -> Option<u64> {
        self.0[key].as_u64()
    }

    pub(crate) fn is_set(&self, key: &str) -> bool {
        self.0[key] == true
    }

    pub(crate) fn bytes(&self, key: &str) -> Vec<u8> {
        base64_bytes(self.text(key)).unwrap_or_else(|| panic!("`{key}` is not base64"))
    }

    /// What the reference program answered.
    pub(crate) fn recorded_result(&self) -> Option<&Value> {
        self.0.get("result")
    }

    /// The error that the reference program answered with.
    pub(crate) fn recorded_error(&self) -> Option<&str> {
        self.0["error"].as_str()
    }

    /// The files that the reference program touched.
    pub(crate) fn recorded_files(&self) -> Option<&Value> {
        self.0.get("files")
    }
}

/// Decodes base64 with the standard alphabet.
fn base64_bytes(text: &str) -> Option<Vec<u8>> {
    let mut bytes = Vec::with_capacity(text.len() / 4 * 3);
    let (mut pool, mut bits) = (0_u32, 0);
    for digit in text.bytes().filter(|byte| !byte.is_ascii_whitespace() && *byte != b'=') {
        pool = (pool << 6) | sextet(digit)?;
        bits += 6;
        if bits >= 8 {
            bits -= 8;
            bytes.push((pool >> bits) as u8);
            pool &= (1 << bits) - 1;
        }
    }
    Some(bytes)
}

fn sextet(digit: u8) -> Option<u32> {
    let value = match digit {
        b'A'..=b'Z' => digit - b'A',
        b'a'..=b'z' => digit - b'a' + 26,
        b'0'..=b'9' => digit - b'0' + 52,
        b'+' => 62,
        b'/' => 63,
        _ => return None,
    };
    Some(u32::from(value))
}

#[test]
fn base64_is_read_with_and_without_padding() {
    assert_eq!(base64_bytes("bGFzdA==").unwrap(), b"last");
    assert_eq!(base64_bytes("d29y\nZCE").unwrap(), b"word!");
    assert_eq!(base64_bytes("+/8=").unwrap(), [0xfb, 0xff]);
    assert!(base64_bytes("a-b").is_none());
}
