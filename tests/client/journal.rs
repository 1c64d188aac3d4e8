//! A run as a server has it, in memory: events with numbers, told from behind any of them, appended as the contract says.

use std::sync::Arc;

use lastword::{RunId, SessionId};
use parking_lot::Mutex;
use serde_json::{Value, json};

use crate::server::{Reply, Seen, Step, json as answer, send, stream};

pub(crate) fn session() -> SessionId {
    SessionId::parse("s").unwrap()
}

pub(crate) fn run() -> RunId {
    RunId::parse("r").unwrap()
}

/// An event as it is sent.
pub(crate) fn frame(seq: u64) -> String {
    format!("id: r:{seq}\nevent: token\ndata: {}\n\n", line(seq))
}

pub(crate) fn line(seq: u64) -> String {
    format!("{{\"event\":\"token\",\"seq\":{seq},\"payload\":{{\"text\":\"Gr\u{fc}\u{df}e {seq}\"}}}}")
}

pub(crate) fn end(last_seq: u64) -> String {
    format!("event: end\ndata: {{\"run_id\":\"r\",\"last_seq\":{last_seq},\"state\":\"completed\"}}\n\n")
}

/// The bytes behind the head that tell a run of so many events, from behind the place that was asked for.
pub(crate) fn told(seen: &Seen, last: u64) -> String {
    let after = seen.header("last-event-id").map_or(0, |id| id.strip_prefix("r:").unwrap().parse().unwrap());
    (after + 1..=last).map(frame).collect::<String>() + &end(last)
}

pub(crate) fn tell(seen: &Seen, last: u64) -> Reply {
    vec![stream(), send(&told(seen, last))]
}

/// What happens to an append.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fate {
    Done,
    /// It is done, and the answer does not arrive.
    DoneUnheard,
    /// The connection breaks before anything is done.
    Lost,
    /// The first event is appended, and then the server dies.
    BegunOnly,
    Refused(u16),
}

/// A run that is appended to.
#[derive(Debug, Clone, Default)]
pub(crate) struct Journal {
    lines: Arc<Mutex<Vec<Value>>>,
}

impl Journal {
    pub(crate) fn lines(&self) -> Vec<Value> {
        self.lines.lock().clone()
    }

    /// Answers a request to append.
    pub(crate) fn take(&self, seen: &Seen, fate: Fate) -> Reply {
        match fate {
            Fate::Done => self.append(seen, usize::MAX),
            Fate::DoneUnheard => {
                self.append(seen, usize::MAX);
                vec![send("HTTP/1.1 200 OK\r\nContent-Le"), Step::Reset]
            }
            Fate::BegunOnly => {
                self.append(seen, 1);
                vec![Step::Reset]
            }
            Fate::Lost => Vec::new(),
            Fate::Refused(status) => crate::server::refuse(status, "io_error"),
        }
    }

    fn append(&self, seen: &Seen, most: usize) -> Reply {
        let mut lines = self.lines.lock();
        let new: Vec<Value> = seen.body.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        let expected = seen.line().split("expect_seq=").nth(1).map_or(lines.len() + 1, |seq| seq.parse().unwrap());
        let there = lines.get(expected - 1..).unwrap_or_default();
        let same = there.len().min(new.len());
        if expected > lines.len() + 1 || there[..same] != new[..same] {
            let last_seq = lines.len();
            let error = json!({"error": {"code": "seq_conflict", "message": "taken", "last_seq": last_seq}});
            return answer(409, &error.to_string());
        }
        lines.extend(new.into_iter().skip(same).take(most));
        answer(200, &json!({ "last_seq": lines.len() }).to_string())
    }
}
