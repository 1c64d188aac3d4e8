//! Which call a tool's result belongs to: by the call's id, and first in, first out where there is none. Pure.
//!
//! The transcript's visible part follows the reference program's rule instead, which is last in, first out.

use std::collections::HashSet;

/// The calls that wait for their results, in the order in which they were made.
#[derive(Debug, Default)]
pub(crate) struct OpenCalls {
    waiting: Vec<Call>,
    /// Every id that a call had.
    ids: HashSet<String>,
    calls: usize,
}

#[derive(Debug)]
struct Call {
    nth: usize,
    id: Option<String>,
    name: String,
}

impl OpenCalls {
    /// Notes a call. It is known by its number: the first is 0.
    pub(crate) fn begin(&mut self, id: Option<String>, name: &str) {
        self.ids.extend(id.clone());
        self.waiting.push(Call { nth: self.calls, id, name: name.to_owned() });
        self.calls += 1;
    }

    /// The number of the call that a result is for; none if no call waits for it. An empty name names no tool.
    ///
    /// A result whose id no call ever had is for a call without an id: some producers give the id with the result alone.
    pub(crate) fn complete(&mut self, id: Option<&str>, name: &str) -> Option<usize> {
        let is_named = |call: &Call| name.is_empty() || call.name == name;
        let has_id = |call: &Call| id.is_some() && call.id.as_deref() == id;
        let has_none = |call: &Call| call.id.is_none() && is_named(call);
        let is_stray = id.is_none_or(|id| !self.ids.contains(id));
        let waiting = &self.waiting;
        let found = waiting.iter().position(has_id);
        let found = found.or_else(|| waiting.iter().position(has_none).filter(|_| is_stray));
        let found = found.or_else(|| waiting.iter().position(is_named).filter(|_| id.is_none()));
        found.map(|at| self.waiting.remove(at).nth)
    }

    /// Forgets the calls that wait: their producer is gone, and a result that comes later is another's.
    pub(crate) fn give_up(&mut self) {
        self.waiting.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(calls: &[(&str, &str)], results: &[(&str, &str)], expected: &[Option<usize>]) {
        let given = |id: &str| (!id.is_empty()).then(|| id.to_owned());
        let mut open = OpenCalls::default();
        calls.iter().for_each(|(id, name)| open.begin(given(id), name));
        let found: Vec<_> = results.iter().map(|(id, name)| open.complete(given(id).as_deref(), name)).collect();
        assert_eq!(found, expected);
    }

    #[test]
    fn results_with_ids_find_their_calls_in_any_order() {
        check(&[("a", "t"), ("b", "t")], &[("b", "t"), ("a", "other"), ("a", "t")], &[Some(1), Some(0), None]);
        check(&[("a", "t"), ("a", "t")], &[("a", "t"), ("a", "t")], &[Some(0), Some(1)]);
    }

    #[test]
    fn results_without_ids_are_first_in_first_out_among_the_calls_of_their_name() {
        check(&[("", "t"), ("", "u"), ("", "t")], &[("", "t"), ("", "t"), ("", "")], &[Some(0), Some(2), Some(1)]);
        check(&[("a", "t"), ("", "t")], &[("", "t"), ("", "t")], &[Some(1), Some(0)]);
    }

    #[test]
    fn an_id_that_only_the_result_has_is_no_reason_to_lose_it() {
        check(&[("", "t"), ("", "t")], &[("x", "t"), ("x", "t")], &[Some(0), Some(1)]);
        check(&[("x", "t"), ("", "t")], &[("x", "t"), ("x", "t")], &[Some(0), None]);
        check(&[("", "t")], &[("x", "u")], &[None]);
    }

    #[test]
    fn the_calls_of_a_producer_that_is_gone_take_no_results() {
        let mut open = OpenCalls::default();
        open.begin(None, "t");
        open.give_up();
        open.begin(None, "t");
        assert_eq!(open.complete(None, "t"), Some(1));
    }
}
