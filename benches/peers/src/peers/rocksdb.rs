//! RocksDB: an LSM tree behind a write-ahead log, one write batch for a batch, uncompressed.

use rocksdb::{DB, DBCompressionType, Options, WriteBatch, WriteOptions};

use super::Peer;
use crate::committer;
use crate::drive::Log;
use crate::workload::{Case, Entry, Outcome, Safety};

pub const ROCKSDB: Peer = Peer {
    name: "rocksdb",
    durable: Some("RocksDB sync, committer"),
    buffered: Some("RocksDB, not synced"),
    wanted: &[(64, 2.0)],
    open: |case| Ok(committer::drive(Box::new(RocksDb::open(case)?), case)),
};

struct RocksDb {
    database: DB,
    write: WriteOptions,
}

impl RocksDb {
    fn open(case: &Case) -> Outcome<Self> {
        let mut options = Options::default();
        options.create_if_missing(true);
        options.set_compression_type(DBCompressionType::None);
        let mut write = WriteOptions::default();
        write.set_sync(case.safety == Safety::Durable);
        Ok(RocksDb { database: DB::open(&options, case.folder.join("rocksdb"))?, write })
    }
}

impl Log for RocksDb {
    fn append(&mut self, batch: &[Entry]) -> Outcome<()> {
        let mut written = WriteBatch::default();
        for entry in batch {
            written.put(entry.number.to_be_bytes(), entry.line);
        }
        Ok(self.database.write_opt(written, &self.write)?)
    }
}
