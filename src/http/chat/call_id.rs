//! The ids of a message's tool calls, as the UI has them. The chat stream and the history give a call the same id,
//! because both ask this for each `tool` event in order.

use std::collections::HashSet;

/// Bytes of a tool call's id that is passed on. A longer one is replaced.
const CALL_ID_BYTES_MAX: usize = 256;

/// The ids given in one message. No two calls share one, whatever the events call them.
#[derive(Debug, Default)]
pub(super) struct CallIds {
    begun: u64,
    given: HashSet<String>,
    reserved: HashSet<String>,
}

impl CallIds {
    /// The id of the next call: what the events call it if that is free, else that with the call's number.
    pub(super) fn begin(&mut self, given: Option<&str>) -> String {
        self.begun += 1;
        let nth = self.begun;
        let given = given.filter(|id| id.len() <= CALL_ID_BYTES_MAX);
        let mut id = given.map_or_else(|| format!("call-{nth}"), str::to_owned);
        if self.reserved.remove(&id) {
            self.given.insert(id.clone());
        } else {
            while self.reserved.contains(&id) || !self.given.insert(id.clone()) {
                id.push_str(&format!("#{nth}"));
            }
        }
        id
    }

    /// Keeps an id for a call whose arguments are being streamed before it begins. Says no unless the call is certain to
    /// get exactly this id: one that is taken, or could be made for another call, is not kept.
    pub(super) fn reserve(&mut self, id: &str) -> bool {
        let number = id.strip_prefix("call-");
        let is_ours = id.contains('#') || number.is_some_and(|rest| rest.bytes().all(|byte| byte.is_ascii_digit()));
        let is_free = !self.given.contains(id) && !self.reserved.contains(id);
        is_free && !is_ours && id.len() <= CALL_ID_BYTES_MAX && self.reserved.insert(id.to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_of_a_long_name_or_none_or_a_taken_one_is_given_one() {
        let mut ids = CallIds::default();
        let long = "x".repeat(CALL_ID_BYTES_MAX + 1);
        assert_eq!(ids.begin(Some("call-2")), "call-2");
        assert_eq!(ids.begin(Some(&long)), "call-2#2");
        assert_eq!(ids.begin(None), "call-3");
        assert_eq!(ids.begin(Some("call-3")), "call-3#4");
    }

    #[test]
    fn an_id_is_reserved_for_the_call_that_is_certain_to_get_it() {
        let mut ids = CallIds::default();
        assert!(ids.reserve("a") && !ids.reserve("a") && !ids.reserve("call-1") && !ids.reserve("b#1"));
        assert!(!ids.reserve(&"x".repeat(CALL_ID_BYTES_MAX + 1)));
        assert_eq!([ids.begin(None), ids.begin(Some("a")), ids.begin(Some("a"))], ["call-1", "a", "a#3"]);
        assert!(!ids.reserve("a"));
    }
}
