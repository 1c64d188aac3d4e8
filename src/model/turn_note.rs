//! What the record of a run notes of its turn: the client's id and metadata of the message, and the turn that it replaces.

use serde::{Deserialize, Serialize};

/// Why rows left the transcript, or never came into it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum BranchReason {
    /// The question got another answer.
    Regenerate,
    /// The question was edited.
    Edit,
    /// The new answer failed, and the old one stayed.
    Failed,
}

impl BranchReason {
    /// As it is written.
    pub fn as_str(self) -> &'static str {
        match self {
            BranchReason::Regenerate => "regenerate",
            BranchReason::Edit => "edit",
            BranchReason::Failed => "failed",
        }
    }
}

/// The turn that a run is to replace, with everything after it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReplacedTurn {
    /// The UI id of its user row.
    pub message: String,
    /// `Regenerate` or `Edit`.
    pub reason: BranchReason,
}

/// What is noted of a turn beside its pending message.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TurnNote {
    /// The client's id of the message.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message_id: Option<String>,
    /// The client's metadata of the message: a JSON object.
    #[serde(default, skip_serializing_if = "Option::is_none", with = "as_json")]
    pub metadata: Option<String>,
    /// The turn that it replaces.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replaces: Option<ReplacedTurn>,
    /// The fingerprint of that turn's user row, by which a place that was counted (`row-N`) is checked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replaced_row: Option<String>,
}

impl TurnNote {
    /// Whether there is nothing to note.
    pub fn is_empty(&self) -> bool {
        *self == TurnNote::default()
    }
}

/// JSON text is written as the value that it is, and not as a string, which could be twice as long.
mod as_json {
    use serde::{Deserialize, Deserializer, Serialize, Serializer, ser::Error};
    use serde_json::value::RawValue;

    pub(super) fn serialize<S: Serializer>(json: &Option<String>, to: S) -> Result<S::Ok, S::Error> {
        let raw: Option<&RawValue> = json.as_deref().map(serde_json::from_str).transpose().map_err(S::Error::custom)?;
        raw.serialize(to)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Option<String>, D::Error> {
        let raw = Option::<Box<RawValue>>::deserialize(from)?;
        Ok(raw.map(|raw| raw.get().to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_noted_is_read_again_and_metadata_stays_as_it_was_spelt() {
        let replaces = ReplacedTurn { message: "m \"1\"".to_owned(), reason: BranchReason::Edit };
        let note = TurnNote {
            message_id: Some("m".to_owned()),
            metadata: Some(r#"{"b":1.50,"a":"\u00e9\"","a":[ ]}"#.to_owned()),
            replaces: Some(replaces),
            replaced_row: Some("00ff".to_owned()),
        };
        let json = serde_json::to_string(&note).unwrap();
        assert!(json.contains(r#""metadata":{"b":1.50,"a":"\u00e9\"","a":[ ]},"replaces""#), "{json}");
        assert_eq!(serde_json::from_slice::<TurnNote>(json.as_bytes()).unwrap(), note);
        assert_eq!(serde_json::to_string(&TurnNote::default()).unwrap(), "{}");
        assert!(serde_json::from_str::<TurnNote>("{}").unwrap().is_empty());
    }
}
