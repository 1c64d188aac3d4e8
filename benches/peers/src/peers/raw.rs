//! Files and system calls, without any store.

use std::fs::File;
use std::io::Write;

use super::Peer;
use crate::committer;
use crate::drive::{Log, Stream, Way};
use crate::workload::{Case, Entry, Outcome, Safety, line};

/// Each stream's file in turn.
pub const ONE_THREAD: Peer = Peer {
    name: "raw-loop",
    durable: Some("raw write + fdatasync, one thread"),
    buffered: Some("raw write"),
    wanted: &[(64, 20.0)],
    open: |case| Ok(Way::InLine(Box::new(Files { files: files(case)?, safety: case.safety }))),
};

/// Each stream's file by its own thread.
pub const OWN_THREADS: Peer = Peer {
    name: "raw-threads",
    durable: Some("raw write + fdatasync, a thread each"),
    buffered: None,
    wanted: &[(256, 5.0)],
    open: |case| Ok(Way::Threads(files(case)?.into_iter().map(stream).collect())),
};

/// One file for all streams: what a committer could reach if it had nothing else to do. No stream can be read from it
/// without reading them all.
pub const SHARED_FILE: Peer = Peer {
    name: "raw-shared",
    durable: Some("raw, one file for all, committer"),
    buffered: None,
    wanted: &[],
    open: |case| {
        let file = File::create_new(case.folder.join("shared"))?;
        Ok(committer::drive(Box::new(SharedFile { file, bytes: Vec::new() }), case))
    },
};

fn files(case: &Case) -> Outcome<Vec<File>> {
    (0..case.streams).map(|stream| Ok(File::create_new(case.folder.join(stream.to_string()))?)).collect()
}

fn stream(mut file: File) -> Stream {
    Box::new(move || {
        file.write_all(line())?;
        Ok(file.sync_data()?)
    })
}

struct Files {
    files: Vec<File>,
    safety: Safety,
}

impl Log for Files {
    fn append(&mut self, batch: &[Entry]) -> Outcome<()> {
        for entry in batch {
            let file = &mut self.files[entry.stream];
            file.write_all(entry.line)?;
            if self.safety == Safety::Durable {
                file.sync_data()?;
            }
        }
        Ok(())
    }
}

struct SharedFile {
    file: File,
    bytes: Vec<u8>,
}

impl Log for SharedFile {
    fn append(&mut self, batch: &[Entry]) -> Outcome<()> {
        self.bytes.clear();
        batch.iter().for_each(|entry| self.bytes.extend_from_slice(entry.line));
        self.file.write_all(&self.bytes)?;
        Ok(self.file.sync_data()?)
    }
}
