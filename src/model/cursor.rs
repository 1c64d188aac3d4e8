//! A reader's place in a session: the id of the last event it has seen.

/// A resume cursor as a client sends it, `run:seq`. Either half may be missing or unusable.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Cursor {
    /// The run, if one was named.
    pub run: Option<String>,
    /// The number of the last event seen in it.
    pub seq: Option<u64>,
}

impl Cursor {
    /// Reads what a client sent. The last colon divides, so that a run id may hold others; a negative number is 0.
    pub fn parse(raw: &str) -> Self {
        let raw = raw.trim();
        let (run, seq) = raw.rsplit_once(':').unwrap_or(("", raw));
        let run = (!run.is_empty()).then(|| run.to_owned());
        Cursor { run, seq: parse_seq(seq) }
    }
}

fn parse_seq(text: &str) -> Option<u64> {
    let number: i128 = text.trim().parse().ok()?;
    Some(u64::try_from(number.max(0)).unwrap_or(u64::MAX))
}
