//! A run cut at every event: what had arrived is shown, and nothing is left open.

use crate::anything::config;
use crate::session::valid_context;
use lastword::clock::Timestamp;
use lastword::model::fold::{FoldEvent, Folded, Folder, Provenance};
use lastword::model::marker::stopped_marker;
use lastword::{Context, ContextMessage, Event, List, Row, Session, SessionId, ToolCard, ToolOutcome};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;
use serde_json::json;

/// Stands in reasoning only.
const SECRET: &str = "SECRET";

fn event() -> impl Strategy<Value = Event> {
    let words = select(vec!["To ", "the sea", ".", " ", "\n\n", "\u{1f600}", ""]);
    let id = select(vec!["", "a", "b", "c"]);
    let name = select(vec!["ls", "cd", "fs.read"]);
    prop_oneof![
        4 => words.clone().prop_map(Event::token),
        2 => Just(Event::reasoning(SECRET)),
        1 => words.prop_map(|text| Event::new("interim_assistant", &format!("{{\"text\":{text:?}}}")).unwrap()),
        3 => (id.clone(), name.clone()).prop_map(|(id, name)| Event::tool(id, name, &json!({"p": "/"}))),
        2 => (id, name, any::<bool>()).prop_map(|(id, name, is_error)| Event::tool_complete(id, name, &json!("x"), is_error)),
        1 => Just(Event::new("metering", "{}").unwrap()),
    ]
}

fn fold(events: &[Event]) -> Folded {
    let mut folder = Folder::default();
    for (at, event) in events.iter().enumerate() {
        let seq = Some(at as u64 + 1);
        folder.push(&FoldEvent {
            seq,
            is_foreign: false,
            name: event.name(),
            payload: event.payload(),
            created_at: None,
        });
    }
    folder.finish()
}

/// How a session lies when a turn is over.
#[derive(Debug, Clone, Copy)]
struct Ending {
    is_shortened: bool,
    has_marker: bool,
    is_recovered: bool,
    is_pending: bool,
}

fn ending() -> impl Strategy<Value = Ending> {
    any::<[bool; 4]>().prop_map(|[is_shortened, has_marker, is_recovered, is_pending]| Ending {
        is_shortened,
        has_marker,
        is_recovered,
        is_pending,
    })
}

fn add_row(session: &mut Session, row: &Row) {
    session.push_message(row).unwrap();
    if !session.is_empty(List::ContextMessages) {
        let mut row = row.clone();
        row.fields_mut().remove("reasoning");
        session.push_item(List::ContextMessages, &row.fields().to_json()).unwrap();
    }
}

/// As the store adds a turn.
fn add_turn(session: &mut Session, prompt: &str, folded: &Folded, ending: Ending) {
    let provenance = if ending.is_recovered { Provenance::Recovered("r") } else { Provenance::Live("r") };
    add_row(session, &Row::user(prompt, 1));
    let first = session.len(List::Messages);
    for row in &folded.rows {
        add_row(session, &row.to_row(provenance, 2));
    }
    for card in &folded.cards {
        session.push_tool_card(&card.to_card(provenance, first + card.row)).unwrap();
    }
    if ending.has_marker {
        session.push_message(&stopped_marker(3)).unwrap();
    }
}

fn session_of(turns: [&Folded; 2], ending: Ending) -> Session {
    let mut session = Session::new(SessionId::parse("s").unwrap(), "t", Timestamp::from_micros(0));
    if ending.is_shortened {
        session.push_message(&Row::user("long ago", 0)).unwrap();
        session.push_item(List::ContextMessages, &Row::user("In short.", 0).fields().to_json()).unwrap();
    }
    for (folded, prompt) in turns.into_iter().zip(["first", "second"]) {
        add_turn(&mut session, prompt, folded, ending);
    }
    if ending.is_pending {
        session.set_text("pending_user_message", "third");
    }
    session
}

fn words(context: &Context) -> String {
    let said = |message: &ContextMessage| match message {
        ContextMessage::Assistant { text, .. } => Some(text.clone()),
        _ => None,
    };
    let said: Vec<_> = context.messages.iter().filter_map(said).filter(|text| !text.is_empty()).collect();
    said.join("\n\n")
}

fn outcomes(context: &Context) -> Vec<ToolOutcome> {
    let calls = |message: &ContextMessage| match message {
        ContextMessage::Assistant { calls, .. } => calls.clone(),
        _ => Vec::new(),
    };
    context.messages.iter().flat_map(calls).map(|call| call.result.outcome).collect()
}

/// Results without ids go to the cards in another order than to the calls: then the card says whether its tool has answered.
fn has_answered(card: &ToolCard) -> bool {
    card.fields().get("_answered").map_or(card.is_done(), |answered| answered == "true")
}

fn assert_all_is_shown(session: &Session, turns: [&Folded; 2], ending: Ending) -> Result<(), TestCaseError> {
    let json = valid_context(session);
    prop_assert!(!json.to_string().contains(SECRET) && !json.to_string().contains("You stopped"), "{json}");
    let context = session.context();
    let rows = turns.iter().flat_map(|turn| &turn.rows).map(|row| row.content.as_str()).filter(|text| !text.is_empty());
    prop_assert_eq!(words(&context), rows.collect::<Vec<_>>().join("\n\n"));
    let unfinished = turns.iter().flat_map(|turn| &turn.cards).map(|card| !has_answered(&card.card));
    let interrupted = outcomes(&context).into_iter().map(|outcome| outcome == ToolOutcome::Interrupted);
    prop_assert_eq!(interrupted.collect::<Vec<_>>(), unfinished.collect::<Vec<_>>());
    if ending.is_pending {
        let last = context.messages.last();
        prop_assert!(matches!(last, Some(ContextMessage::User { text, .. }) if text.ends_with("third")), "{context:?}");
    }
    Ok(())
}

proptest! {
    #![proptest_config(config(200))]

    #[test]
    fn a_run_cut_at_any_event_leaves_a_conversation_that_providers_take(
        before in vec(event(), 0..8),
        events in vec(event(), 0..16),
        ending in ending(),
    ) {
        let before = fold(&before);
        for cut in 0..=events.len() {
            let folded = fold(&events[..cut]);
            let turns = [&before, &folded];
            assert_all_is_shown(&session_of(turns, ending), turns, ending)?;
        }
    }
}
