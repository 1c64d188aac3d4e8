//! Following the list of sessions.

use std::collections::VecDeque;

use super::follow::{FollowOptions, Line};
use super::{Client, ClientError};
use crate::format::sse::Sent;
use crate::model::{Object, SessionId};

/// What a follower of the list is told.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum ListTold {
    /// A session is new or was changed: its summary, a JSON object.
    Changed(String),
    /// A session was deleted.
    Deleted(SessionId),
    /// Load the list: what happened before is not told.
    Snapshot,
}

/// The changes of the list as they come. Ends only with an error.
#[derive(Debug)]
pub struct FollowList {
    line: Line,
    place: ListPlace,
    has_connected: bool,
    told: VecDeque<ListTold>,
    /// What went wrong behind all that is to be told.
    failure: Option<ClientError>,
}

impl Client {
    /// Follows the list of sessions from now on.
    pub fn follow_list(&self, options: FollowOptions) -> FollowList {
        let line = Line::new(self, self.place(&["v1", "events"]), "follow the list of sessions".to_owned(), options);
        FollowList { line, place: ListPlace::default(), has_connected: false, told: VecDeque::new(), failure: None }
    }
}

impl FollowList {
    /// The next change. Whoever stops waiting misses nothing.
    pub async fn next(&mut self) -> Result<ListTold, ClientError> {
        loop {
            if let Some(told) = self.told.pop_front() {
                return Ok(told);
            }
            if let Some(failure) = self.failure.take() {
                return Err(failure);
            }
            if let Err(error) = self.advance().await {
                self.failure = self.line.endure(error, self.has_connected).err();
            }
        }
    }

    async fn advance(&mut self) -> Result<(), ClientError> {
        if !self.line.is_open() {
            self.line.open(self.place.id.as_deref(), false).await?;
            // Without a place to go on from, nobody knows what happened meanwhile.
            if std::mem::replace(&mut self.has_connected, true) && self.place.id.is_none() {
                self.told.push_back(ListTold::Snapshot);
            }
        }
        for sent in self.line.listen().await? {
            match self.place.take(sent) {
                Ok(Some(told)) => {
                    self.line.is_good();
                    self.told.push_back(told);
                }
                Ok(None) => {}
                Err(reason) => return Err(self.line.garbled(&reason)),
            }
        }
        self.place.begin_at(self.line.last_id());
        Ok(())
    }
}

/// The last change that was told: its id is a token, which is another one after a restart, and a number.
#[derive(Debug, Default)]
struct ListPlace {
    id: Option<String>,
}

impl ListPlace {
    fn begin_at(&mut self, id: &str) {
        if self.id.is_none() && !id.is_empty() {
            self.id = Some(id.to_owned());
        }
    }

    fn take(&mut self, sent: Sent) -> Result<Option<ListTold>, String> {
        if sent.has_own_id && !self.moves_to(&sent.id) {
            return Ok(None);
        }
        let object = || Object::parse(&sent.data).ok_or_else(|| format!("{:?} holds no object", sent.name));
        match sent.name.as_str() {
            "changed" => object().map(|_| Some(ListTold::Changed(sent.data))),
            "deleted" => {
                let session = object()?.text("session_id").and_then(|id| SessionId::parse(&id).ok());
                session.map(|session| Some(ListTold::Deleted(session))).ok_or_else(|| "nothing was deleted".to_owned())
            }
            "snapshot" => {
                self.id = Some(sent.id).filter(|_| sent.has_own_id);
                Ok(Some(ListTold::Snapshot))
            }
            _ => Ok(None),
        }
    }

    /// Whether the id is another place than one that was passed.
    fn moves_to(&mut self, id: &str) -> bool {
        let is_passed = self.id.as_deref().is_some_and(|last| match (parts(last), parts(id)) {
            (Some((token, last)), Some((same, number))) => token == same && number <= last,
            _ => last == id,
        });
        if !is_passed && !id.is_empty() {
            self.id = Some(id.to_owned());
        }
        !is_passed
    }
}

fn parts(id: &str) -> Option<(&str, u64)> {
    let (token, number) = id.rsplit_once('-')?;
    Some((token, number.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sent(id: &str, name: &str, data: &str) -> Sent {
        Sent { id: id.to_owned(), has_own_id: !id.is_empty(), name: name.to_owned(), data: data.to_owned() }
    }

    #[test]
    fn a_change_is_told_once_and_a_restart_begins_to_count_anew() {
        let mut place = ListPlace::default();
        let mut tell = |id: &str| place.take(sent(id, "changed", "{}")).unwrap().is_some();
        assert_eq!(["a-1", "a-2", "a-1", "a-2", "b-1", "b-1"].map(&mut tell), [true, true, false, false, true, false]);
        assert_eq!(place.id.as_deref(), Some("b-1"));
    }

    #[test]
    fn a_snapshot_leaves_no_place_to_go_on_from_but_its_own() {
        let mut place = ListPlace { id: Some("a-7".to_owned()) };
        assert_eq!(place.take(sent("", "snapshot", "{}")), Ok(Some(ListTold::Snapshot)));
        assert_eq!(place.id, None);
        place.begin_at("b-0");
        assert_eq!(place.id.as_deref(), Some("b-0"));
    }

    #[test]
    fn what_is_not_understood_is_said_and_what_is_unknown_is_passed() {
        let deleted = ListPlace::default().take(sent("a-1", "deleted", r#"{"session_id":"s"}"#));
        assert_eq!(deleted, Ok(Some(ListTold::Deleted(SessionId::parse("s").unwrap()))));
        assert!(ListPlace::default().take(sent("a-1", "deleted", "{}")).is_err());
        assert!(ListPlace::default().take(sent("a-1", "changed", "no")).is_err());
        assert_eq!(ListPlace::default().take(sent("", "weather", "no")), Ok(None));
    }
}
