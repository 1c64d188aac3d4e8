//! A committer for peers that have none: a thread that takes all that is queued, appends it as one batch and
//! acknowledges all of it.

use std::sync::Arc;
use std::thread::{self, JoinHandle};

use crate::drive::{Acknowledged, Log, Submit, Way};
use crate::mailbox::Mailbox;
use crate::workload::{Case, Entry, Numbers, Outcome, Safety};

/// The way to drive a log: with a committer if many streams want to be durable, else by the thread that appends.
pub fn drive(log: Box<dyn Log>, case: &Case) -> Way {
    match case.safety {
        Safety::Durable if case.streams > 1 => committed(log),
        Safety::Durable | Safety::Buffered => Way::InLine(log),
    }
}

fn committed(log: Box<dyn Log>) -> Way {
    let (queued, acknowledged) = (Arc::new(Mailbox::new()), Arc::new(Mailbox::new()));
    let thread = thread::spawn({
        let (queued, acknowledged) = (queued.clone(), acknowledged.clone());
        move || commit_all(log, &queued, &acknowledged)
    });
    let committer = Committer { queued, numbers: Numbers::default(), thread: Some(thread) };
    Way::EventLoop(Box::new(committer), acknowledged)
}

fn commit_all(mut log: Box<dyn Log>, queued: &Mailbox<Entry>, acknowledged: &Mailbox<Acknowledged>) {
    let mut batch = Vec::new();
    loop {
        queued.take_all(&mut batch);
        if batch.is_empty() {
            return;
        }
        match log.append(&batch) {
            Ok(()) => acknowledged.put_all(batch.iter().map(|entry| Ok(entry.stream))),
            Err(error) => return acknowledged.put(Err(error.to_string())),
        }
    }
}

/// The side that queues. Its end is the end of the thread.
struct Committer {
    queued: Arc<Mailbox<Entry>>,
    numbers: Numbers,
    thread: Option<JoinHandle<()>>,
}

impl Submit for Committer {
    fn submit(&mut self, streams: &[usize]) -> Outcome<()> {
        self.queued.put_all(streams.iter().map(|stream| self.numbers.next(*stream)));
        Ok(())
    }
}

impl Drop for Committer {
    fn drop(&mut self) {
        self.queued.close();
        if let Some(thread) = self.thread.take() {
            thread.join().expect("the committer does not panic");
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::drive::measure;
    use crate::workload::Pace;

    /// Refuses the batch after so many.
    struct Breaks(usize);

    impl Log for Breaks {
        fn append(&mut self, _: &[Entry]) -> Outcome<()> {
            self.0 = self.0.checked_sub(1).ok_or("no space")?;
            Ok(())
        }
    }

    #[test]
    fn a_failed_commit_ends_the_measurement() {
        let case = Case { safety: Safety::Durable, streams: 8, at_once: 1, folder: "unused".into() };
        let pace = Pace { warm_up: Duration::ZERO, measured: Duration::from_secs(60) };
        let failed = measure(drive(Box::new(Breaks(3)), &case), &case, pace).expect_err("it breaks");
        assert_eq!(failed.to_string(), "no space");
    }
}
