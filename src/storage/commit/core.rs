//! The group commit itself: take what was gathered, log it, fsync once. Knows no threads and no waiting. Fails only when
//! an fsync of the log or of a journal does; where the log cannot be written, the journals are synced in place.

use std::sync::Arc;

use super::log::{Log, Refusal};
use super::queue::Gathered;
use super::stream::Stream;
use crate::format::commit::Logged;
use crate::storage::error::StorageError;

/// The state that one step leaves to the next.
#[derive(Debug)]
pub(super) struct Core {
    pub(super) log: Log,
    batch: u64,
    /// Lines that were read back.
    lines: Vec<u8>,
}

impl Core {
    /// Batches are numbered on from those that were found.
    pub(super) fn new(log: Log, last_batch: u64) -> Self {
        Core { log, batch: last_batch, lines: Vec::new() }
    }

    /// Makes everything gathered durable, with one sync where the log has room.
    ///
    /// A crash before the sync has returned leaves the batch in the log in part; nothing of it was acknowledged, and
    /// each record in it holds only what is in its journal's file.
    pub(super) fn commit(&mut self, gathered: &Gathered) -> Result<(), StorageError> {
        self.batch += 1;
        match self.log_and_sync(gathered) {
            Err(Refusal::Unavailable) => self.commit_with_less_room(gathered),
            Err(Refusal::Failed(error)) => Err(error),
            Ok(()) => Ok(()),
        }
    }

    /// The log cannot take the batch: what it names is made durable in place, so that it can go on, and all appenders wait
    /// for that. If it cannot even then, the disk is full or no file can be opened, and these lines are made durable in
    /// place too.
    fn commit_with_less_room(&mut self, gathered: &Gathered) -> Result<(), StorageError> {
        self.sweep()?;
        match self.log_and_sync(gathered) {
            Err(Refusal::Unavailable) => gathered.streams().try_for_each(|stream| {
                stream.take_note();
                stream.secure()
            }),
            Err(Refusal::Failed(error)) => Err(error),
            Ok(()) => Ok(()),
        }
    }

    fn log_and_sync(&mut self, gathered: &Gathered) -> Result<(), Refusal> {
        self.log_all(gathered)?;
        self.log.sync()
    }

    fn log_all(&mut self, gathered: &Gathered) -> Result<(), Refusal> {
        for entry in &gathered.entries {
            let lines = &gathered.lines[entry.start..entry.end];
            self.log_back(&entry.stream, entry.offset)?;
            if entry.stream.covered() < entry.offset + lines.len() as u64 {
                self.log_lines(&entry.stream, entry.offset, lines)?;
            }
        }
        for stream in &gathered.noted {
            stream.take_note();
            self.log_back(stream, stream.written())?;
        }
        Ok(())
    }

    /// Logs what a journal holds up to this place and no appender handed in. What cannot be read back is synced in place.
    fn log_back(&mut self, stream: &Arc<Stream>, to: u64) -> Result<(), Refusal> {
        let from = stream.covered();
        if from >= to {
            return Ok(());
        }
        if to - from > self.log.lines_max(stream) {
            return self.log_reference(stream, from, to);
        }
        let mut lines = std::mem::take(&mut self.lines);
        let logged = match stream.read_back(from, to, &mut lines) {
            Ok(true) => self.log_lines(stream, from, &lines),
            Ok(false) | Err(_) => stream.secure().map_err(Refusal::from),
        };
        self.lines = lines;
        logged
    }

    fn log_lines(&mut self, stream: &Arc<Stream>, offset: u64, lines: &[u8]) -> Result<(), Refusal> {
        let end = offset + lines.len() as u64;
        if lines.len() as u64 > self.log.lines_max(stream) {
            return self.log_reference(stream, offset, end);
        }
        self.log.take(stream, self.batch, offset, Logged::Lines(lines))?;
        stream.note_logged(end);
        Ok(())
    }

    /// Too much to be written twice: it is synced where it is, and the log says so.
    fn log_reference(&mut self, stream: &Arc<Stream>, from: u64, to: u64) -> Result<(), Refusal> {
        stream.secure()?;
        self.log.take(stream, self.batch, from, Logged::Reference(to - from))?;
        stream.note_logged(to);
        Ok(())
    }

    /// Makes durable in place what the log names, and the log free.
    pub(super) fn sweep(&mut self) -> Result<(), StorageError> {
        self.log.named().iter().try_for_each(|stream| stream.secure())?;
        if let Err(Refusal::Failed(error)) = self.log.sync() {
            return Err(error);
        }
        self.log.release();
        Ok(())
    }

    /// Makes everything durable in place, and retires the log. One that could not be retired is replayed in vain.
    pub(super) fn close(&mut self, all: &[Arc<Stream>]) -> Result<(), StorageError> {
        all.iter().try_for_each(|stream| stream.secure())?;
        self.sweep()?;
        if self.log.has_records() { self.log.retire().map(drop) } else { Ok(()) }
    }
}
