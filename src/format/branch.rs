//! A branch object's bytes: `_branches/<session>/<branch>.json`, one line of JSON with a checksum.

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use super::checksum::{checksum_of, with_checksum};
use crate::model::{Branch, BranchReason, Cut, List, SessionId};

const VERSION: u32 = 1;

/// The keys of a branch object, but for its checksum.
#[derive(Serialize, Deserialize)]
struct BranchFile {
    version: u32,
    branch_id: String,
    session_id: String,
    run_id: Option<String>,
    at_row: usize,
    after: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    beside: Option<String>,
    rows: Vec<Box<RawValue>>,
    tool_calls: Vec<Box<RawValue>>,
    context_messages: Vec<Box<RawValue>>,
    #[serde(default)]
    context_at: usize,
    replaced_at: f64,
    reason: BranchReason,
}

/// Writes a branch. If one of its rows is not JSON, the list that it stands in.
pub fn encode_branch(session: &SessionId, branch: &Branch) -> Result<Vec<u8>, List> {
    let cut = &branch.cut;
    let file = BranchFile {
        version: VERSION,
        branch_id: branch.branch_id.clone(),
        session_id: session.to_string(),
        run_id: branch.run_id.clone(),
        at_row: cut.at_row,
        after: cut.after.clone(),
        beside: branch.beside.clone(),
        rows: raw(&cut.rows, List::Messages)?,
        tool_calls: raw(&cut.tool_calls, List::ToolCalls)?,
        context_messages: raw(&cut.context_messages, List::ContextMessages)?,
        context_at: cut.context_at,
        replaced_at: branch.replaced_at,
        reason: branch.reason,
    };
    let mut bytes = with_checksum(serde_json::to_vec(&file).expect("numbers, text and JSON become JSON"));
    bytes.push(b'\n');
    Ok(bytes)
}

fn raw(texts: &[String], list: List) -> Result<Vec<Box<RawValue>>, List> {
    texts.iter().map(|text| RawValue::from_string(text.clone()).map_err(|_| list)).collect()
}

/// Why stored bytes are not a branch of a session.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BadBranch {
    /// The bytes changed since they were written.
    #[error("its checksum does not fit its bytes")]
    ChecksumMismatch,
    /// The bytes are not a branch at all.
    #[error("{0}")]
    BadJson(String),
    /// A newer program wrote it.
    #[error("a newer program wrote it (version {0}; this one reads version {VERSION})")]
    Newer(u32),
    /// It is a branch of another session.
    #[error("it says that it is a branch of session {0:?}")]
    OtherSession(String),
}

/// The key that every version has.
#[derive(Deserialize)]
struct Versioned {
    version: u32,
}

/// Reads a branch of this session.
pub fn read_branch(session: &SessionId, bytes: &[u8]) -> Result<Branch, BadBranch> {
    let file = read_file(bytes)?;
    if file.session_id != session.as_str() {
        return Err(BadBranch::OtherSession(file.session_id));
    }
    let texts = |rows: Vec<Box<RawValue>>| rows.into_iter().map(|row| row.get().to_owned()).collect();
    Ok(Branch {
        branch_id: file.branch_id,
        run_id: file.run_id,
        cut: Cut {
            at_row: file.at_row,
            after: file.after,
            rows: texts(file.rows),
            tool_calls: texts(file.tool_calls),
            context_messages: texts(file.context_messages),
            context_at: file.context_at,
        },
        beside: file.beside,
        replaced_at: file.replaced_at,
        reason: file.reason,
    })
}

/// The checksum is compared first: a damaged version says nothing of the program that wrote it.
fn read_file(bytes: &[u8]) -> Result<BranchFile, BadBranch> {
    let bad_json = |error: serde_json::Error| BadBranch::BadJson(error.to_string());
    if checksum_of(bytes.trim_ascii_end()) == Some(false) {
        return Err(BadBranch::ChecksumMismatch);
    }
    match serde_json::from_slice(bytes).map_err(bad_json)? {
        Versioned { version: VERSION } => serde_json::from_slice(bytes).map_err(bad_json),
        Versioned { version } if version > VERSION => Err(BadBranch::Newer(version)),
        Versioned { version } => Err(BadBranch::BadJson(format!("there is no version {version}"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn branch() -> Branch {
        let cut = Cut {
            at_row: 4,
            after: "00".to_owned(),
            rows: vec![r#"{ "role":"user","content":"\u00e9","x":1.50 }"#.to_owned(), "{}".to_owned()],
            tool_calls: vec![r#"{"assistant_msg_idx":5}"#.to_owned()],
            context_messages: vec!["{}".to_owned()],
            context_at: 2,
        };
        Branch { beside: Some("11".to_owned()), ..Branch::new("r", cut, BranchReason::Failed, 7.5) }
    }

    #[test]
    fn what_was_written_is_read_and_no_flipped_bit_is_believed() {
        let id = SessionId::parse("s").unwrap();
        let bytes = encode_branch(&id, &branch()).unwrap();
        assert_eq!(read_branch(&id, &bytes), Ok(branch()));
        let other = read_branch(&SessionId::parse("other").unwrap(), &bytes);
        assert_eq!(other, Err(BadBranch::OtherSession("s".to_owned())));
        for bit in 0..(bytes.len() - 1) * 8 {
            let mut flipped = bytes.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            let found = read_branch(&id, &flipped);
            assert!(found.is_err() || found == Ok(branch()), "bit {bit}: {}", String::from_utf8_lossy(&flipped));
        }
    }

    #[test]
    fn bytes_that_are_not_a_branch_say_why() {
        let id = SessionId::parse("s").unwrap();
        let newer = br#"{"version":2,"turns":[]}"#.to_vec();
        assert_eq!(read_branch(&id, &with_checksum(newer)), Err(BadBranch::Newer(2)));
        for odd in ["", "{", "[]", "{}", r#"{"version":0}"#, r#"{"version":1}"#] {
            assert!(matches!(read_branch(&id, odd.as_bytes()), Err(BadBranch::BadJson(_))), "{odd}");
        }
    }

    #[test]
    fn rows_that_are_not_json_are_refused() {
        let mut odd = branch();
        odd.cut.tool_calls = vec!["{".to_owned()];
        assert_eq!(encode_branch(&SessionId::parse("s").unwrap(), &odd), Err(List::ToolCalls));
    }
}
