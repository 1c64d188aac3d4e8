//! fjall: an LSM tree behind a journal, one write batch for a batch. A sync of data alone, the quicker of its two.

use fjall::{Database, Keyspace, KeyspaceCreateOptions, PersistMode};

use super::Peer;
use crate::committer;
use crate::drive::Log;
use crate::workload::{Case, Entry, Outcome, Safety};

pub const FJALL: Peer = Peer {
    name: "fjall",
    durable: Some("fjall SyncData, committer"),
    buffered: Some("fjall Buffer"),
    wanted: &[],
    open: |case| Ok(committer::drive(Box::new(Fjall::open(case)?), case)),
};

struct Fjall {
    events: Keyspace,
    database: Database,
    persist: PersistMode,
}

impl Fjall {
    fn open(case: &Case) -> Outcome<Self> {
        let database = Database::builder(case.folder.join("fjall")).open()?;
        let events = database.keyspace("events", KeyspaceCreateOptions::default)?;
        let persist = match case.safety {
            Safety::Durable => PersistMode::SyncData,
            Safety::Buffered => PersistMode::Buffer,
        };
        Ok(Fjall { events, database, persist })
    }
}

impl Log for Fjall {
    fn append(&mut self, batch: &[Entry]) -> Outcome<()> {
        if let ([entry], PersistMode::Buffer) = (batch, self.persist) {
            return Ok(self.events.insert(entry.number.to_be_bytes(), entry.line)?);
        }
        let mut written = self.database.batch().durability(Some(self.persist));
        for entry in batch {
            written.insert(&self.events, entry.number.to_be_bytes(), entry.line);
        }
        Ok(written.commit()?)
    }
}
