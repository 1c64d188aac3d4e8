//! raft-engine: one shared log for many Raft groups, of which each is a stream. One log batch for a batch, uncompressed.

use protobuf::well_known_types::BytesValue;
use raft_engine::{Config, Engine, LogBatch, MessageExt, ReadableSize};

use super::Peer;
use crate::committer;
use crate::drive::Log;
use crate::workload::{Case, Entry, Outcome, Safety};

pub const RAFT_ENGINE: Peer = Peer {
    name: "raft-engine",
    durable: Some("raft-engine, committer"),
    buffered: Some("raft-engine, not synced"),
    wanted: &[],
    open: |case| Ok(committer::drive(Box::new(RaftEngine::open(case)?), case)),
};

const INDEX_BYTES: usize = size_of::<u64>();

/// The index in its stream, and the line.
struct Indexed;

impl MessageExt for Indexed {
    type Entry = BytesValue;

    fn index(entry: &BytesValue) -> u64 {
        u64::from_le_bytes(*entry.value.first_chunk::<INDEX_BYTES>().expect("an index before the line"))
    }
}

struct RaftEngine {
    engine: Engine,
    batch: LogBatch,
    indexes: Vec<u64>,
    is_synced: bool,
}

impl RaftEngine {
    fn open(case: &Case) -> Outcome<Self> {
        let config = Config {
            dir: case.folder.join("raft").to_string_lossy().into_owned(),
            batch_compression_threshold: ReadableSize(0),
            ..Config::default()
        };
        let (engine, batch, indexes) = (Engine::open(config)?, LogBatch::default(), vec![0; case.streams]);
        Ok(RaftEngine { engine, batch, indexes, is_synced: case.safety == Safety::Durable })
    }

    fn add(&mut self, entry: &Entry) -> Outcome<()> {
        let index = &mut self.indexes[entry.stream];
        *index += 1;
        let mut indexed = BytesValue::new();
        indexed.value.extend_from_slice(&index.to_le_bytes());
        indexed.value.extend_from_slice(entry.line);
        Ok(self.batch.add_entries::<Indexed>(entry.stream as u64 + 1, &[indexed])?)
    }
}

impl Log for RaftEngine {
    fn append(&mut self, batch: &[Entry]) -> Outcome<()> {
        batch.iter().try_for_each(|entry| self.add(entry))?;
        self.engine.write(&mut self.batch, self.is_synced)?;
        Ok(())
    }
}
