//! redb: a copy-on-write B-tree, one transaction a batch. Its buffered commits stay in the process.

use redb::{Database, Durability, TableDefinition};

use super::Peer;
use crate::committer;
use crate::drive::Log;
use crate::workload::{Case, Entry, Outcome, Safety};

pub const REDB: Peer = Peer {
    name: "redb",
    durable: Some("redb Immediate, committer"),
    buffered: Some("redb None (lost with the process)"),
    wanted: &[],
    open: |case| Ok(committer::drive(Box::new(Redb::open(case)?), case)),
};

const EVENTS: TableDefinition<'_, u64, &[u8]> = TableDefinition::new("events");

struct Redb {
    database: Database,
    durability: Durability,
}

impl Redb {
    fn open(case: &Case) -> Outcome<Self> {
        let durability = match case.safety {
            Safety::Durable => Durability::Immediate,
            Safety::Buffered => Durability::None,
        };
        Ok(Redb { database: Database::create(case.folder.join("events.redb"))?, durability })
    }
}

impl Log for Redb {
    fn append(&mut self, batch: &[Entry]) -> Outcome<()> {
        let mut transaction = self.database.begin_write()?;
        transaction.set_durability(self.durability)?;
        let mut table = transaction.open_table(EVENTS)?;
        for entry in batch {
            table.insert(entry.number, entry.line)?;
        }
        drop(table);
        Ok(transaction.commit()?)
    }
}
