//! How much of a run's answer fits into its session, so that the document can still be loaded.

use crate::model::fold::{TRUNCATED, truncated_from};
use crate::model::{FoldLimit, List, Row, Session, ToolCard, quoted};

/// Part of a document that is left for markers, metadata and an error row when an answer is folded into it.
const RESERVED_PART: u64 = 64;

/// How much of a run's answer fits into its session, whose document may have this many bytes. Rows and cards of the run that
/// stand there already are counted as its own. A session that notes what the model was shown holds each row twice.
pub fn fold_limit(session: &Session, run: &str, document_bytes_max: u64) -> FoldLimit {
    let copies = if session.is_empty(List::ContextMessages) { 1 } else { 2 };
    let taken =
        session.json_bytes().saturating_sub(copies * own_row_bytes(session, run) + own_card_bytes(session, run));
    let room = (document_bytes_max - document_bytes_max / RESERVED_PART).saturating_sub(taken);
    FoldLimit { bytes: room / copies, before_seq: truncated_before(session, run) }
}

/// Rows of the run's answer. The prompt may name the run too, and stays.
fn own_row_bytes(session: &Session, run: &str) -> u64 {
    let is_own = |row: &&str| {
        let row = Row::parse(row);
        row.run().as_deref() == Some(run) && row.role() != "user"
    };
    let named = session.messages_with(&quoted(run));
    named.iter().filter_map(|at| session.item(List::Messages, *at)).filter(is_own).map(|row| row.len() as u64).sum()
}

fn own_card_bytes(session: &Session, run: &str) -> u64 {
    let name = quoted(run);
    let is_own = |card: &&str| card.contains(&*name) && ToolCard::parse(card).run().as_deref() == Some(run);
    session.texts(List::ToolCalls).filter(is_own).map(|card| card.len() as u64).sum()
}

/// The first event that an earlier fold had to leave out.
fn truncated_before(session: &Session, run: &str) -> Option<u64> {
    let noted = session.messages_with(&quoted(TRUNCATED));
    noted.iter().filter_map(|at| truncated_from(&session.message(*at)?, run)).min()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::Timestamp;
    use crate::model::SessionId;

    fn session() -> Session {
        Session::new(SessionId::parse("s").unwrap(), "", Timestamp::from_seconds(1.0))
    }

    fn room(session: &Session) -> u64 {
        fold_limit(session, "r", 64 * 1024).bytes
    }

    #[test]
    fn rows_and_cards_of_the_run_take_no_room_and_all_others_do() {
        let empty = room(&session());
        let text = "x".repeat(10_000);
        for (role, run, costs) in
            [("assistant", "r", false), ("assistant", "q", true), ("user", "r", true), ("user", "q", true)]
        {
            let mut with_row = session();
            let row = format!(r#"{{"role":"{role}","content":"{text} \"r\"","_recovered_stream_id":"{run}"}}"#);
            with_row.push_message(&Row::parse(&row)).unwrap();
            assert_eq!(room(&with_row) + 5_000 < empty, costs, "{role} {run}");
        }
        for (run, costs) in [("r", false), ("q", true)] {
            let mut with_card = session();
            let card = format!(r#"{{"name":"t","snippet":"{text} \"r\"","_recovered_stream_id":"{run}"}}"#);
            with_card.push_tool_card(&ToolCard::parse(&card)).unwrap();
            assert_eq!(room(&with_card) + 5_000 < empty, costs, "{run}");
        }
    }

    /// Each row of the answer is saved in the transcript and in what the model is shown.
    #[test]
    fn a_session_that_notes_what_the_model_is_shown_has_half_the_room() {
        let with_own_row = |is_noted: bool, text: &str| {
            let mut session = session();
            let own = format!(r#"{{"role":"assistant","content":"{text}","_recovered_stream_id":"r"}}"#);
            session.push_message(&Row::parse(&own)).unwrap();
            if is_noted {
                session.push_item(List::ContextMessages, &own).unwrap();
            }
            session
        };
        let (once, twice) = (room(&with_own_row(false, "x")), room(&with_own_row(true, "x")));
        assert!((once / 2).abs_diff(twice) < 100, "{once} and {twice}");
        let long = room(&with_own_row(true, &"x".repeat(10_000)));
        assert!(long.abs_diff(twice) < 100, "both copies of an own row are its own: {long} and {twice}");
    }

    #[test]
    fn what_was_left_out_once_is_left_out_again() {
        let mut session = session();
        let row = r#"{"role":"assistant","content":"a","_truncated":{"run_id":"r","from_seq":7}}"#;
        session.push_message(&Row::parse(row)).unwrap();
        assert_eq!(fold_limit(&session, "r", 1 << 20).before_seq, Some(7));
        assert_eq!(fold_limit(&session, "q", 1 << 20).before_seq, None);
    }
}
