//! SQLite: a write-ahead log of its own, one transaction a batch, a prepared statement.
//! Rows go to the end of one table without any other index, which is the quickest it can do.

use rusqlite::{Connection, params};

use super::Peer;
use crate::committer;
use crate::drive::Log;
use crate::workload::{Case, Entry, Outcome, Safety};

pub const SQLITE: Peer = Peer {
    name: "sqlite",
    durable: Some("SQLite WAL FULL, committer"),
    buffered: Some("SQLite WAL NORMAL"),
    wanted: &[(64, 2.0)],
    open: |case| Ok(committer::drive(Box::new(Sqlite::open(case)?), case)),
};

const INSERT: &str = "INSERT INTO events (number, stream, line) VALUES (?1, ?2, ?3)";

struct Sqlite {
    connection: Connection,
}

impl Sqlite {
    fn open(case: &Case) -> Outcome<Self> {
        let connection = Connection::open(case.folder.join("events.db"))?;
        connection.pragma_update(None, "locking_mode", "EXCLUSIVE")?;
        connection.pragma_update(None, "journal_mode", "WAL")?;
        connection.pragma_update(None, "synchronous", synchronous(case.safety))?;
        connection.execute("CREATE TABLE events (number INTEGER PRIMARY KEY, stream INTEGER, line BLOB)", [])?;
        Ok(Sqlite { connection })
    }
}

fn synchronous(safety: Safety) -> &'static str {
    match safety {
        Safety::Durable => "FULL",
        Safety::Buffered => "NORMAL",
    }
}

impl Log for Sqlite {
    fn append(&mut self, batch: &[Entry]) -> Outcome<()> {
        let transaction = self.connection.transaction()?;
        let mut insert = transaction.prepare_cached(INSERT)?;
        for entry in batch {
            insert.execute(params![entry.number as i64, entry.stream as i64, entry.line])?;
        }
        drop(insert);
        Ok(transaction.commit()?)
    }
}
