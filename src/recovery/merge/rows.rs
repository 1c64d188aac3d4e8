//! Which rows of a turn the folded rows are.

use std::collections::{HashMap, VecDeque};

use super::contain::Sought;
use crate::model::fold::FoldedRow;
use crate::model::{Row, Session, normal_form};
use crate::recovery::turn::Turn;

/// A row of the turn that a folded row may turn out to be.
struct KnownRow {
    at: usize,
    normal: String,
    is_claimed: bool,
}

#[derive(Default)]
pub(super) struct KnownRows {
    rows: Vec<KnownRow>,
    /// Rows that say with which event they begin. Lines of another run may have the same numbers.
    by_seq: HashMap<u64, VecDeque<usize>>,
    /// All others.
    by_text: HashMap<String, VecDeque<usize>>,
    /// Those of them that came from this run, or are a saved part of an answer: their text may be the beginning of a
    /// longer one.
    growing: VecDeque<usize>,
    /// Those that came from this run, by the second of their first event.
    by_time: HashMap<i64, VecDeque<usize>>,
}

/// What two rows without an event's number are compared by. One without text is known by its reasoning.
fn text_key(normal: &str, reasoning: &str) -> String {
    if normal.is_empty() { format!("\0{}", normal_form(reasoning)) } else { normal.to_owned() }
}

impl KnownRows {
    pub(super) fn of(session: &Session, turn: &Turn, run: &str) -> Self {
        let mut known = KnownRows::default();
        for at in turn.rows.clone() {
            let row = session.message(at).unwrap_or_default();
            let is_own = row.run().as_deref() == Some(run);
            if row.role() == "assistant" && !row.is_error() && (is_own || row.run().is_none()) {
                known.add(at, &row, is_own);
            }
        }
        known
    }

    fn add(&mut self, at: usize, row: &Row, is_own: bool) {
        let nth = self.rows.len();
        let normal = normal_form(&row.content());
        let seq = row.fields().get("_recovered_seq").and_then(|seq| seq.parse().ok());
        if let Some(seq) = seq.filter(|_| is_own) {
            self.by_seq.entry(seq).or_default().push_back(nth);
        } else if is_own || !normal.is_empty() {
            let key = text_key(&normal, &row.reasoning().unwrap_or_default());
            self.by_text.entry(key).or_default().push_back(nth);
            if !normal.is_empty() && (is_own || row.fields().is_true("_partial")) {
                self.growing.push_back(nth);
            }
            if let Some(second) = row.timestamp().filter(|_| is_own) {
                self.by_time.entry(second).or_default().push_back(nth);
            }
        }
        self.rows.push(KnownRow { at, normal, is_claimed: false });
    }

    /// For each folded row the row of the transcript that it is, if it is there. The surest signs come first.
    pub(super) fn claim(&mut self, folded: &[FoldedRow]) -> Vec<Option<usize>> {
        let normals: Vec<String> = folded.iter().map(|row| normal_form(&row.content)).collect();
        let mut claims: Vec<Option<usize>> = vec![None; folded.len()];
        let signs: [Sign; 4] = [Self::by_seq, Self::by_text, Self::by_beginning, Self::by_time];
        for sign in signs {
            for ((row, normal), claim) in folded.iter().zip(&normals).zip(&mut claims) {
                if claim.is_none() {
                    *claim = sign(self, row, normal).map(|nth| self.take(nth));
                }
            }
        }
        self.claim_containing(&normals, &mut claims);
        claims
    }

    fn claim_containing(&mut self, normals: &[String], claims: &mut [Option<usize>]) {
        let open = claims.iter().enumerate().filter(|(_, claim)| claim.is_none()).map(|(at, _)| at);
        let mut sought = Sought::new(open.map(|at| (at, normals[at].as_str())));
        for nth in 0..self.rows.len() {
            if !self.rows[nth].is_claimed
                && let Some(number) = sought.take_contained_in(&self.rows[nth].normal)
            {
                claims[number] = Some(self.take(nth));
            }
        }
    }

    fn take(&mut self, nth: usize) -> usize {
        self.rows[nth].is_claimed = true;
        self.rows[nth].at
    }

    fn by_seq(&mut self, row: &FoldedRow, _: &str) -> Option<usize> {
        next_unclaimed(self.by_seq.get_mut(&row.first_seq?)?, &self.rows)
    }

    fn by_text(&mut self, row: &FoldedRow, normal: &str) -> Option<usize> {
        next_unclaimed(self.by_text.get_mut(&text_key(normal, &row.reasoning))?, &self.rows)
    }

    fn by_beginning(&mut self, _: &FoldedRow, normal: &str) -> Option<usize> {
        let nth = next_unclaimed(&mut self.growing, &self.rows)?;
        normal.starts_with(&self.rows[nth].normal).then_some(nth)
    }

    /// The reference program reads some lines differently, so that a row of its may lack words that we find.
    fn by_time(&mut self, row: &FoldedRow, normal: &str) -> Option<usize> {
        let nth = next_unclaimed(self.by_time.get_mut(&row.timestamp?)?, &self.rows)?;
        (self.rows[nth].normal.is_empty() == normal.is_empty()).then_some(nth)
    }
}

/// A way to find the row of the transcript that a folded row is.
type Sign = fn(&mut KnownRows, &FoldedRow, &str) -> Option<usize>;

fn next_unclaimed(queue: &mut VecDeque<usize>, rows: &[KnownRow]) -> Option<usize> {
    while queue.front().is_some_and(|nth| rows[*nth].is_claimed) {
        queue.pop_front();
    }
    queue.front().copied()
}
