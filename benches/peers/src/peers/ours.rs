//! Ours, as an embedder uses it: a run for each stream, and one thread that drives all their tickets.

use std::sync::Arc;

use lastword::entropy::SystemEntropy;
use lastword::{Event, NewSession, Options, Run, RunId, SessionId, Store, UserTurn};

use super::Peer;
use crate::drive::{Acknowledged, Log, Submit, Way};
use crate::mailbox::Mailbox;
use crate::workload::{Case, Entry, ID_CHARS, Outcome, Safety, TOKEN};

pub const LASTWORD: Peer =
    Peer { name: "lastword", durable: Some("lastword"), buffered: Some("lastword"), wanted: &[], open };

fn open(case: &Case) -> Outcome<Way> {
    let store = Store::open(case.folder.join("data"), Options::default())?;
    let runs = (0..case.streams).map(|_| begin_run(&store)).collect::<Outcome<Vec<Run>>>()?;
    Ok(match case.safety {
        Safety::Durable if case.streams > 1 => tickets(store, runs),
        safety => Way::InLine(Box::new(InLine { runs, safety, _store: store })),
    })
}

fn begin_run(store: &Store) -> Outcome<Run> {
    let (session, run) = (SessionId::fresh(&SystemEntropy), RunId::fresh(&SystemEntropy));
    let session = SessionId::parse(&session.as_str()[..ID_CHARS])?;
    let run = RunId::parse(&run.as_str()[..ID_CHARS])?;
    store.create(NewSession::titled("A bench").with_id(session.clone()))?;
    Ok(store.begin_run(&session, UserTurn::text("How fast?").with_run(run))?)
}

fn tickets(store: Store, runs: Vec<Run>) -> Way {
    let acknowledged = Arc::new(Mailbox::new());
    let tickets = Tickets { runs, acknowledged: acknowledged.clone(), _store: store };
    Way::EventLoop(Box::new(tickets), acknowledged)
}

/// Fields are dropped in this order: the runs before their store.
struct Tickets {
    runs: Vec<Run>,
    acknowledged: Arc<Mailbox<Acknowledged>>,
    _store: Store,
}

impl Submit for Tickets {
    /// A callback only leaves a note, so that one that comes at once does not append from within an append.
    fn submit(&mut self, streams: &[usize]) -> Outcome<()> {
        for &stream in streams {
            let acknowledged = self.acknowledged.clone();
            let appended = self.runs[stream].append_durable(Event::token(TOKEN))?;
            appended.on_durable(move |durable| {
                acknowledged.put(durable.map(|_| stream).map_err(|error| error.to_string()));
            });
        }
        Ok(())
    }
}

struct InLine {
    runs: Vec<Run>,
    safety: Safety,
    _store: Store,
}

impl Log for InLine {
    fn append(&mut self, batch: &[Entry]) -> Outcome<()> {
        for entry in batch {
            let (run, event) = (&self.runs[entry.stream], Event::token(TOKEN));
            match self.safety {
                Safety::Durable => drop(run.append_durable(event)?.wait()?),
                Safety::Buffered => drop(run.append(event)?),
            }
        }
        Ok(())
    }
}
