//! Events on standard input: whole lines of what has arrived, without waiting for more.

use std::io::{self, BufRead};

use lastword::Event;
use lastword::limits::LINE_BYTES_MAX;

use super::failure::Failure;

/// Standard input, as far as it was read.
#[derive(Debug, Default)]
pub(super) struct Input {
    /// The beginning of a line.
    pending: Vec<u8>,
    lines_read: usize,
}

/// What came of some bytes.
#[derive(Debug, Default)]
pub(super) struct Taken {
    /// Events that are to be appended together, and acknowledged before the next ones are.
    pub(super) batches: Vec<Vec<Event>>,
    /// Why the line behind them, and so all that follows, is not taken.
    pub(super) refusal: Option<Failure>,
}

impl Input {
    /// Takes what has arrived.
    pub(super) fn take(&mut self, arrived: &[u8]) -> Taken {
        let Some(end) = arrived.iter().rposition(|byte| *byte == b'\n') else {
            self.pending.extend_from_slice(arrived);
            return self.refuse_overlong(Taken::default());
        };
        self.pending.extend_from_slice(&arrived[..=end]);
        let taken = self.take_pending();
        self.pending.extend_from_slice(&arrived[end + 1..]);
        self.refuse_overlong(taken)
    }

    /// Takes what is left at the end.
    pub(super) fn finish(&mut self) -> Taken {
        self.take_pending()
    }

    fn take_pending(&mut self) -> Taken {
        let (lines, mut taken) = (std::mem::take(&mut self.pending), Taken::default());
        let mut events = Vec::new();
        for line in lines.split_inclusive(|byte| *byte == b'\n') {
            self.lines_read += 1;
            if line.trim_ascii().is_empty() {
                continue;
            }
            match parse(line) {
                // What comes before the end is acknowledged first, so that a failure of the end does not hide it.
                Ok(end) if end.terminal_state().is_some() => {
                    taken.batches.push(std::mem::take(&mut events));
                    taken.batches.push(vec![end]);
                }
                Ok(event) => events.push(event),
                Err(reason) => {
                    taken.refusal = Some(self.refuse(&reason));
                    break;
                }
            }
        }
        taken.batches.push(events);
        taken.batches.retain(|batch| !batch.is_empty());
        taken
    }

    fn refuse_overlong(&mut self, taken: Taken) -> Taken {
        if taken.refusal.is_some() || self.pending.len() <= LINE_BYTES_MAX {
            return taken;
        }
        self.lines_read += 1;
        let refusal = self.refuse(&format!("it is longer than {LINE_BYTES_MAX} bytes: send it in parts"));
        Taken { refusal: Some(refusal), ..taken }
    }

    fn refuse(&self, reason: &str) -> Failure {
        Failure::Usage(format!("line {} of the input was not appended: {reason}", self.lines_read))
    }
}

fn parse(line: &[u8]) -> Result<Event, String> {
    let text = std::str::from_utf8(line).map_err(|cause| cause.to_string())?;
    Event::parse(text).map_err(|cause| cause.to_string())
}

/// Reads what is there, and waits only if nothing is. Nothing at the end.
pub(super) fn read_some(input: &mut impl BufRead) -> Result<Option<Vec<u8>>, Failure> {
    loop {
        match input.fill_buf() {
            Ok([]) => return Ok(None),
            Ok(arrived) => {
                let arrived = arrived.to_vec();
                input.consume(arrived.len());
                return Ok(Some(arrived));
            }
            Err(cause) if cause.kind() == io::ErrorKind::Interrupted => {}
            Err(cause) => return Err(Failure::Storage(format!("could not read standard input: {cause}"))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(taken: &Taken) -> Vec<Vec<&str>> {
        taken.batches.iter().map(|batch| batch.iter().map(Event::name).collect()).collect()
    }

    #[test]
    fn lines_are_taken_when_they_are_whole_and_an_end_stands_alone() {
        let mut input = Input::default();
        assert!(input.take(b"{\"event\":\"to").batches.is_empty());
        let taken = input.take(b"ken\",\"payload\":{}}\n\n{\"event\":\"x\"}\n{\"event\":\"done\"}\n{\"event\":\"str");
        assert_eq!(names(&taken), [vec!["token", "x"], vec!["done"]]);
        assert!(input.take(b"eam_end\"}").batches.is_empty());
        assert_eq!(names(&input.finish()), [vec!["stream_end"]]);
        assert!(input.finish().batches.is_empty());
    }

    #[test]
    fn what_stands_before_a_bad_line_is_taken_and_the_line_is_named() {
        let taken = Input::default().take(b"{\"event\":\"a\"}\nno\n{\"event\":\"b\"}\n");
        assert_eq!(names(&taken), [vec!["a"]]);
        let Some(Failure::Usage(message)) = taken.refusal else { panic!("the line is refused") };
        assert!(message.starts_with("line 2 of the input was not appended"), "{message}");
    }

    #[test]
    fn a_line_without_end_is_refused_before_it_fills_the_memory() {
        let mut input = Input::default();
        let piece = vec![b'x'; 1 << 20];
        let refused = (0..20).find(|_| input.take(&piece).refusal.is_some());
        assert_eq!(refused, Some(16));
    }
}
