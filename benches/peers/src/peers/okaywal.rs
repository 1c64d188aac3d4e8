//! okaywal: a write-ahead log on preallocated, recycled segments. It forgets what it has checkpointed, and here nothing
//! keeps it, so that it does less than the others. Always synced, hence only in the durable rows.

use okaywal::{Configuration, LogVoid, WriteAheadLog};

use super::Peer;
use crate::committer;
use crate::drive::{Log, Stream, Way};
use crate::workload::{Case, Entry, Outcome, line};

/// A thread for each stream, an entry for each event: its own group commit.
pub const GROUP_COMMIT: Peer = Peer {
    name: "okaywal",
    durable: Some("okaywal, its group commit"),
    buffered: None,
    wanted: &[(64, 2.0)],
    open: |case| {
        let log = open(case)?;
        Ok(Way::Threads((0..case.streams).map(|_| stream(log.clone())).collect()))
    },
};

/// One entry for a batch, a chunk of it for each event.
pub const COMMITTER: Peer = Peer {
    name: "okaywal-batch",
    durable: Some("okaywal, committer"),
    buffered: None,
    wanted: &[],
    open: |case| Ok(committer::drive(Box::new(OkayWal { log: open(case)? }), case)),
};

fn open(case: &Case) -> Outcome<WriteAheadLog> {
    Ok(Configuration::default_for(case.folder.join("okaywal")).open(LogVoid)?)
}

fn stream(log: WriteAheadLog) -> Stream {
    Box::new(move || {
        let mut entry = log.begin_entry()?;
        entry.write_chunk(line())?;
        entry.commit()?;
        Ok(())
    })
}

struct OkayWal {
    log: WriteAheadLog,
}

impl Log for OkayWal {
    fn append(&mut self, batch: &[Entry]) -> Outcome<()> {
        let mut written = self.log.begin_entry()?;
        for entry in batch {
            written.write_chunk(entry.line)?;
        }
        written.commit()?;
        Ok(())
    }
}
