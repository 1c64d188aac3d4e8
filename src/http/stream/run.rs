//! The stream of one run: as server-sent events, or as the lines of its journal.

use std::time::Duration;

use bytes::Bytes;
use serde_json::json;
use tokio::sync::watch;

use super::feed::{Feed, LAST_WORDS, Piece, broken_off, closed, joined};
use super::follower::{Follower, Next};
use super::frame::{Frame, notice};
use crate::http::time::within;
use crate::model::{RunId, RunState};

/// How long a reader is told to wait that has seen the end and comes again all the same.
const RETRY_AFTER_END_MS: u64 = 24 * 60 * 60 * 1000;

/// What a reader says it has seen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::http) enum Cursor {
    /// Everything up to this event; 0 for nothing.
    After(u64),
    /// Something that is no place in this run, and why.
    Unusable(&'static str),
}

impl Cursor {
    /// Reads the cursor of somebody who follows a run: `seq` or `run:seq`.
    pub(in crate::http) fn of_run(text: &str, run: &RunId) -> Self {
        let text = text.trim();
        let (named, seq) = text.rsplit_once(':').map_or((None, text), |(named, seq)| (Some(named), seq));
        if named.is_some_and(|named| named != run.as_str()) {
            return Cursor::Unusable("foreign");
        }
        let is_number = !seq.is_empty() && seq.bytes().all(|byte| byte.is_ascii_digit());
        match seq.parse() {
            Ok(seq) if is_number => Cursor::After(seq),
            Err(_) if is_number => Cursor::After(u64::MAX),
            _ => Cursor::Unusable("unknown"),
        }
    }
}

/// Tells a reader that its cursor means nothing here.
pub(super) fn snapshot(reason: &str, run: Option<&RunId>, last_seq: Option<u64>) -> Bytes {
    notice("snapshot", &json!({ "reason": reason, "run_id": run.map(RunId::as_str), "last_seq": last_seq }))
}

/// Tells a reader that a run has ended.
pub(super) fn end(run: &RunId, last_seq: u64, ended: RunState) -> Bytes {
    notice("end", &json!({ "run_id": run.as_str(), "last_seq": last_seq, "state": ended.as_str() }))
}

pub(super) fn gap(run: &RunId, after_seq: u64) -> Bytes {
    notice("gap", &json!({ "run_id": run.as_str(), "after_seq": after_seq }))
}

pub(super) fn events(frames: &[Frame]) -> Bytes {
    joined(frames.iter().map(|frame| &frame.sse))
}

/// A run's events and notices, until it has ended.
#[derive(Debug)]
pub(in crate::http) struct RunFeed {
    follower: Follower,
    /// Said first.
    unusable: Option<&'static str>,
    is_over: bool,
}

impl RunFeed {
    /// The events behind a reader's cursor. The follower begins there.
    pub(in crate::http) fn new(follower: Follower, cursor: Cursor) -> Self {
        let unusable = if let Cursor::Unusable(reason) = cursor { Some(reason) } else { None };
        RunFeed { follower, unusable, is_over: false }
    }

    fn start_over(&mut self, last_seq: u64) -> Bytes {
        self.follower.hub().note_snapshot();
        self.follower.start_over();
        snapshot("ahead", Some(&self.follower.tail().run), Some(last_seq))
    }
}

impl Feed for RunFeed {
    async fn next(&mut self) -> Option<Piece> {
        let run = self.follower.tail().run.clone();
        if let Some(reason) = self.unusable.take() {
            self.follower.hub().note_snapshot();
            return Some(Ok(snapshot(reason, Some(&run), None)));
        }
        if self.is_over {
            return None;
        }
        let said = match self.follower.next().await {
            Next::Frames(frames) => events(&frames),
            Next::Gap { after_seq } => gap(&run, after_seq),
            Next::Ahead { last_seq } => self.start_over(last_seq),
            Next::End(ended) => {
                self.is_over = true;
                goodbye(ended, end(&run, self.follower.last_seq(), ended))
            }
            // The reader comes back for the rest.
            Next::CaughtUp | Next::Failed => return None,
        };
        Some(Ok(said))
    }
}

/// A run that has ended for good is not to be asked for again.
fn goodbye(ended: RunState, end: Bytes) -> Bytes {
    match ended {
        RunState::Ended(_) => Bytes::from([format!("retry: {RETRY_AFTER_END_MS}\n").as_bytes(), &end].concat()),
        _ => end,
    }
}

/// A run's journal as lines.
#[derive(Debug)]
pub(in crate::http) struct LinesFeed {
    first: Option<Next>,
    follower: Follower,
}

impl LinesFeed {
    /// Goes on behind what was looked at already.
    pub(in crate::http) fn new(first: Option<Next>, follower: Follower) -> Self {
        LinesFeed { first, follower }
    }
}

impl Feed for LinesFeed {
    async fn next(&mut self) -> Option<Piece> {
        loop {
            let next = match self.first.take() {
                Some(first) => first,
                None => self.follower.next().await,
            };
            match next {
                Next::Frames(frames) => return Some(Ok(lines(&frames))),
                Next::Gap { .. } => {}
                Next::Ahead { .. } | Next::CaughtUp | Next::End(_) => return None,
                Next::Failed => return Some(broken_off()),
            }
        }
    }
}

fn lines(frames: &[Frame]) -> Bytes {
    let mut all = Vec::with_capacity(frames.iter().map(|frame| frame.line().len() + 1).sum());
    for frame in frames {
        all.extend_from_slice(frame.line());
        all.push(b'\n');
    }
    Bytes::from(all)
}

/// Waits for a first event for at most `limit`, or until the server closes. Gives what there is then.
pub(in crate::http) async fn first_within(
    follower: &mut Follower,
    limit: Duration,
    closing: &mut watch::Receiver<bool>,
) -> Next {
    let first = tokio::select! {
        first = within(limit, follower.next()) => first,
        // Runs that the server has just ended say so.
        () = closed(closing) => within(LAST_WORDS, follower.next()).await,
    };
    follower.stop_waiting();
    match first {
        Some(first) => first,
        None => follower.next().await,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cursor_is_a_number_or_an_id_of_this_run() {
        let run = RunId::parse("r1").unwrap();
        for (text, cursor) in [
            ("7", Cursor::After(7)),
            ("0", Cursor::After(0)),
            (" r1:7 ", Cursor::After(7)),
            ("r1:99999999999999999999999", Cursor::After(u64::MAX)),
            ("r2:7", Cursor::Unusable("foreign")),
            (":7", Cursor::Unusable("foreign")),
            ("r1:", Cursor::Unusable("unknown")),
            ("", Cursor::Unusable("unknown")),
            ("-1", Cursor::Unusable("unknown")),
            ("+1", Cursor::Unusable("unknown")),
            ("x", Cursor::Unusable("unknown")),
        ] {
            assert_eq!(Cursor::of_run(text, &run), cursor, "{text:?}");
        }
    }
}
