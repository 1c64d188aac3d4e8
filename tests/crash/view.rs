//! What somebody finds who opens a store, in a form that can be compared.

use std::collections::BTreeMap;

use lastword::format::Damage;
use lastword::{ReadOptions, RunId, Session, SessionId, Store, StoreError};

use crate::ledger::{Ledger, run_id, session_id};

/// What is found of each session; nothing if it is not there.
pub(crate) type View = BTreeMap<String, SessionSeen>;

/// What is found of a session.
#[derive(Debug, Clone, PartialEq, Default)]
pub(crate) struct SessionSeen {
    /// Nothing if there is no session.
    pub(crate) document: Option<DocumentSeen>,
    /// The runs that are listed.
    pub(crate) listed: Vec<RunId>,
    /// What the runs hold that the ledger knows.
    pub(crate) runs: BTreeMap<String, RunSeen>,
}

/// What is found of a session's document.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct DocumentSeen {
    pub(crate) title: String,
    pub(crate) rows: Vec<String>,
    pub(crate) pending: Option<String>,
}

/// What is found of a run.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct RunSeen {
    /// Number and text of each token.
    pub(crate) tokens: Vec<(u64, String)>,
    /// Number and name of each other event.
    pub(crate) others: Vec<(u64, String)>,
    pub(crate) damage: Vec<Damage>,
}

impl DocumentSeen {
    fn of(session: &Session) -> Self {
        DocumentSeen {
            title: session.title().to_string(),
            rows: session.messages().map(|row| row.content().into_owned()).collect(),
            pending: session.pending_turn().map(|turn| turn.message.to_string()),
        }
    }
}

/// Looks at everything that the ledger knows, without resolving anything.
pub(crate) fn view(store: &Store, ledger: &Ledger) -> Result<View, String> {
    let mut view = View::new();
    for (name, told) in &ledger.sessions {
        let id = session_id(name);
        let document = match store.get_session_for_scan(&id) {
            Ok(session) => Some(DocumentSeen::of(&session)),
            Err(StoreError::NotFound { .. }) => None,
            Err(error) => return Err(format!("session {name}: {error:?}")),
        };
        let listed = store.runs(&id).map_err(|error| format!("runs of {name}: {error:?}"))?;
        let runs: Result<_, String> =
            told.runs.keys().map(|run| Ok((run.clone(), run_seen(store, &id, &run_id(run))?))).collect();
        view.insert(name.clone(), SessionSeen { document, listed, runs: runs? });
    }
    Ok(view)
}

fn run_seen(store: &Store, session: &SessionId, run: &RunId) -> Result<RunSeen, String> {
    let found = store.read_events(session, run, ReadOptions::default()).map_err(|error| format!("{run}: {error:?}"))?;
    let mut seen = RunSeen { tokens: Vec::new(), others: Vec::new(), damage: found.damage };
    for event in &found.events {
        let seq = event.seq.ok_or_else(|| format!("run {run} has an event without a number: {event:?}"))?;
        if event.name == "token" {
            let payload: serde_json::Value = serde_json::from_str(event.payload()).unwrap();
            seen.tokens.push((seq, payload["text"].as_str().unwrap().to_owned()));
        } else {
            seen.others.push((seq, event.name.to_string()));
        }
    }
    Ok(seen)
}
