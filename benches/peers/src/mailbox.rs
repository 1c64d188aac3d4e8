//! A queue with one reader who takes all that is there. Knows nothing of logs or streams.

use std::mem;
use std::sync::{Condvar, Mutex, MutexGuard};

/// Anybody may put something in; one thread takes it out, in bulk.
#[derive(Debug)]
pub struct Mailbox<T> {
    inside: Mutex<Inside<T>>,
    filled: Condvar,
}

#[derive(Debug)]
struct Inside<T> {
    letters: Vec<T>,
    is_closed: bool,
}

impl<T> Mailbox<T> {
    pub fn new() -> Self {
        Mailbox { inside: Mutex::new(Inside { letters: Vec::new(), is_closed: false }), filled: Condvar::new() }
    }

    pub fn put(&self, letter: T) {
        self.put_all([letter]);
    }

    /// The reader sleeps only while there is nothing, so that only the first letter need wake it.
    pub fn put_all(&self, letters: impl IntoIterator<Item = T>) {
        let mut inside = self.lock();
        let was_empty = inside.letters.is_empty();
        inside.letters.extend(letters);
        drop(inside);
        if was_empty {
            self.filled.notify_one();
        }
    }

    /// Waits until there is something and puts it in the place of what `taken` held. Nothing means that it was closed.
    pub fn take_all(&self, taken: &mut Vec<T>) {
        taken.clear();
        let inside = self.lock();
        let waited = self.filled.wait_while(inside, |inside| inside.letters.is_empty() && !inside.is_closed);
        let mut inside = waited.expect("nobody panics with the lock held");
        mem::swap(&mut inside.letters, taken);
    }

    /// Nothing more will come.
    pub fn close(&self) {
        self.lock().is_closed = true;
        self.filled.notify_one();
    }

    fn lock(&self) -> MutexGuard<'_, Inside<T>> {
        self.inside.lock().expect("nobody panics with the lock held")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_put_in_is_taken_once_and_in_order() {
        let (mailbox, mut taken) = (Mailbox::new(), vec![7]);
        mailbox.put(1);
        mailbox.put_all([2, 3]);
        mailbox.take_all(&mut taken);
        assert_eq!(taken, [1, 2, 3]);
        mailbox.close();
        mailbox.take_all(&mut taken);
        assert_eq!(taken, [0; 0]);
    }
}
