//! The stream of the list: which sessions change and which go. It remembers the last changes, so that a reader who was
//! away for a moment misses nothing; who was away for longer is told to load the list.

use std::collections::VecDeque;
use std::sync::Arc;

use bytes::Bytes;
use parking_lot::Mutex;
use serde_json::json;
use tokio::sync::watch;

use super::feed::{Feed, Piece, joined};
use super::frame::notice;
use crate::entropy::{SystemEntropy, uuid4};
use crate::store::Change;

/// Changes that are remembered.
const CHANGES_MAX: usize = 1_024;
/// Changes that are handed on at a time.
const HANDED_MAX: usize = 64;

/// The last changes of the list.
#[derive(Debug)]
pub(in crate::http) struct ListTail {
    /// Tells the changes of this process from those of others.
    era: String,
    changes: Mutex<Changes>,
    changed: watch::Sender<u64>,
}

#[derive(Debug, Default)]
struct Changes {
    frames: VecDeque<Bytes>,
    /// The number of the last of them.
    last: u64,
}

impl Default for ListTail {
    fn default() -> Self {
        let era = uuid4(&SystemEntropy)[..8].to_owned();
        ListTail { era, changes: Mutex::default(), changed: watch::Sender::new(0) }
    }
}

impl ListTail {
    /// Takes note of a change. Called with locks of the store held.
    pub(super) fn hear(&self, change: &Change) {
        let (name, data) = match change {
            Change::Listed(summary, state) => ("changed", summary.to_listed_json(*state)),
            Change::Deleted(session) => ("deleted", json!({ "session_id": session.as_str() }).to_string()),
            Change::Begun { .. } | Change::Resumed(..) | Change::Continued { .. } => return,
        };
        let mut changes = self.changes.lock();
        changes.last += 1;
        let id = format!("{}-{}", self.era, changes.last);
        changes.frames.push_back(Bytes::from(format!("id: {id}\nevent: {name}\ndata: {data}\n\n")));
        if changes.frames.len() > CHANGES_MAX {
            changes.frames.pop_front();
        }
        let last = changes.last;
        drop(changes);
        self.changed.send_replace(last);
    }

    /// The number of a change, as a reader names it.
    fn number(&self, id: &str) -> Option<u64> {
        id.trim().strip_prefix(&self.era)?.strip_prefix('-')?.parse().ok()
    }

    /// The changes behind a number, the number of the last of them; nothing if some of them are forgotten.
    fn behind(&self, number: u64) -> Option<(Vec<Bytes>, u64)> {
        let changes = self.changes.lock();
        let missing = usize::try_from(changes.last.checked_sub(number)?).ok()?;
        let first = changes.frames.len().checked_sub(missing)?;
        let frames: Vec<Bytes> = changes.frames.range(first..).take(HANDED_MAX).cloned().collect();
        let last = number + frames.len() as u64;
        Some((frames, last))
    }
}

/// The list's changes, as a feed.
#[derive(Debug)]
pub(in crate::http) struct ListFeed {
    tail: Arc<ListTail>,
    news: watch::Receiver<u64>,
    /// The last change that the reader has; none if it is to load the list.
    seen: Option<u64>,
}

impl ListFeed {
    /// The changes behind the one that a reader has seen last.
    pub(in crate::http) fn new(tail: &Arc<ListTail>, seen: Option<&str>) -> Self {
        let seen = seen.and_then(|id| tail.number(id));
        ListFeed { news: tail.changed.subscribe(), tail: tail.clone(), seen }
    }

    fn snapshot(&mut self) -> Bytes {
        self.seen = Some(self.tail.changes.lock().last);
        notice("snapshot", &json!({ "reason": "load_the_list" }))
    }
}

impl Feed for ListFeed {
    async fn next(&mut self) -> Option<Piece> {
        loop {
            self.news.mark_unchanged();
            match self.seen.and_then(|seen| self.tail.behind(seen)) {
                None => return Some(Ok(self.snapshot())),
                Some((frames, last)) if !frames.is_empty() => {
                    self.seen = Some(last);
                    return Some(Ok(joined(frames.iter())));
                }
                // The tail is held, and so is whoever tells.
                Some(_) => drop(self.news.changed().await),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http::tests::DEADLINE;
    use crate::http::time::within;
    use crate::model::SessionId;

    /// Sessions `from` to `to` are deleted.
    fn change(tail: &ListTail, from: u64, to: u64) {
        (from..=to).for_each(|nth| tail.hear(&Change::Deleted(SessionId::parse(&format!("s{nth}")).unwrap())));
    }

    /// What a reader is sent until it has the change of this number: the numbers of all changes.
    async fn sent_until(feed: &mut ListFeed, last: u64) -> Vec<u64> {
        let mut numbers = Vec::new();
        while numbers.last() != Some(&last) {
            let piece =
                within(DEADLINE, feed.next()).await.unwrap_or_else(|| panic!("{last} does not come: {numbers:?}"));
            let text = String::from_utf8(piece.unwrap().unwrap().to_vec()).unwrap();
            let ids = text.lines().filter_map(|line| line.strip_prefix("id: "));
            numbers.extend(ids.map(|id| feed.tail.number(id).unwrap()));
        }
        numbers
    }

    #[tokio::test]
    async fn of_many_changes_at_once_a_reader_misses_none() {
        let tail = Arc::new(ListTail::default());
        let (all, some) = (CHANGES_MAX as u64, 3 * HANDED_MAX as u64 + 1);
        let mut feed = ListFeed::new(&tail, Some(&format!("{}-0", tail.era)));
        for (from, to) in [(1, some), (some + 1, some + 1), (some + 2, some + all)] {
            change(&tail, from, to);
            assert_eq!(sent_until(&mut feed, to).await, (from..=to).collect::<Vec<_>>());
        }
    }

    #[tokio::test]
    async fn a_reader_loads_the_list_if_a_change_that_it_lacks_is_forgotten_and_only_then() {
        let tail = Arc::new(ListTail::default());
        let last = CHANGES_MAX as u64 + 5;
        change(&tail, 1, last);
        assert_eq!(tail.behind(5).unwrap().1, 5 + HANDED_MAX as u64);
        assert!(tail.behind(4).is_none() && tail.behind(last + 1).is_none());
        assert_eq!(tail.behind(last).unwrap(), (vec![], last));
        let mut feed = ListFeed::new(&tail, Some(&format!("{}-4", tail.era)));
        let told = within(DEADLINE, feed.next()).await.unwrap().unwrap().unwrap();
        assert!(told.starts_with(b"event: snapshot"), "{told:?}");
        // What comes after that is not missed.
        change(&tail, last + 1, last + 2);
        assert_eq!(sent_until(&mut feed, last + 2).await, [last + 1, last + 2]);
    }
}
