//! The lines of a finite answer, one at a time, in bounded memory.

use super::ClientError;
use super::transport::Answer;
use crate::limits::LINE_BYTES_MAX;

/// The lines of a run's journal that were there when they were asked for.
pub struct EventLines {
    answer: Answer,
    pending: Vec<u8>,
    /// How far what is pending was taken.
    taken: usize,
    /// How far what is pending was searched for the end of a line.
    searched: usize,
    is_at_end: bool,
}

impl std::fmt::Debug for EventLines {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("EventLines").field("is_at_end", &self.is_at_end).finish_non_exhaustive()
    }
}

impl EventLines {
    pub(super) fn new(answer: Answer) -> Self {
        EventLines { answer, pending: Vec::new(), taken: 0, searched: 0, is_at_end: false }
    }

    /// The next line, without its line feed.
    pub async fn next(&mut self) -> Result<Option<String>, ClientError> {
        loop {
            if let Some(line) = self.take_line()? {
                return Ok(Some(line));
            }
            if self.is_at_end {
                return Ok(None);
            }
            self.pending.drain(..self.taken);
            (self.taken, self.searched) = (0, self.pending.len());
            match self.answer.piece().await? {
                Some(piece) => self.pending.extend_from_slice(&piece),
                None => self.is_at_end = true,
            }
        }
    }

    fn take_line(&mut self) -> Result<Option<String>, ClientError> {
        let end = memchr::memchr(b'\n', &self.pending[self.searched..]).map(|at| self.searched + at);
        let Some(end) = end else {
            self.searched = self.pending.len();
            return self.check_rest();
        };
        let line = std::str::from_utf8(&self.pending[self.taken..end]).map(str::to_owned);
        (self.taken, self.searched) = (end + 1, end + 1);
        line.map(Some).map_err(|_| self.answer.asked().bad_answer("a line is not UTF-8"))
    }

    /// What has no line feed yet must not be too long, and behind the end it must not be there at all.
    fn check_rest(&self) -> Result<Option<String>, ClientError> {
        match self.pending.len() - self.taken {
            0 => Ok(None),
            _ if self.is_at_end => Err(self.answer.asked().broken_off("it ended in the middle of a line")),
            long if long > LINE_BYTES_MAX => Err(self.answer.asked().bad_answer("a line is too long")),
            _ => Ok(None),
        }
    }
}
