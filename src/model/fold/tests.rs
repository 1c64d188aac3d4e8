//! What the reducer makes of events.

use super::*;

#[test]
fn a_card_without_a_number_is_named_by_its_position_among_all_cards() {
    let seqs = [None, Some(7), Some(0), None, Some(9)];
    for len in 0..=seqs.len() {
        let mut folder = Folder::default();
        for seq in &seqs[..len] {
            let (name, payload, created_at) = ("tool", "{}", None);
            folder.push(&FoldEvent { seq: *seq, is_foreign: false, name, payload, created_at });
        }
        let tids: Vec<_> = folder.finish().cards.iter().map(|card| card.card.tid().into_owned()).collect();
        let all = ["journal-1", "journal-7", "journal-3", "journal-4", "journal-9"];
        assert_eq!(tids, all[..len], "a fold of {len} events");
    }
}

fn fold(events: &[(&str, &str)]) -> Folded {
    let mut folder = Folder::default();
    for (at, (name, payload)) in events.iter().enumerate() {
        let seq = at as u64 + 1;
        let created_at = format!("{}.5", 100 + at);
        folder.push(&FoldEvent {
            seq: Some(seq),
            is_foreign: false,
            name,
            payload,
            created_at: Some(created_at.as_bytes()),
        });
    }
    folder.finish()
}

#[track_caller]
fn check(events: &[(&str, &str)], expected: &[(&str, &str, i64)]) {
    let folded = fold(events);
    let rows: Vec<_> = folded
        .rows
        .iter()
        .map(|row| (row.content.as_str(), row.reasoning.as_str(), row.timestamp.unwrap_or_default()))
        .collect();
    assert_eq!(rows, expected);
}

#[test]
fn tokens_join_into_one_row_with_the_time_of_the_first() {
    check(
        &[("metering", "{}"), ("token", r#"{"text":" Hello"}"#), ("token", r#"{"text":" sea "}"#)],
        &[("Hello sea", "", 101)],
    );
}

#[test]
fn a_payload_is_understood_alike_whether_or_not_it_has_our_shape() {
    let texts = [
        "",
        "x",
        "\u{e9}\u{2028}",
        r"a\nb",
        r#"\""#,
        r"\",
        "\u{1}",
        "\"",
        r#"a","text":"b"#,
        r#"a","b":"c"#,
        r"\ud800",
    ];
    for text in texts {
        let ours = format!(r#"{{"text":"{text}"}}"#);
        let spaced = format!(r#"{{ "text":"{text}"}}"#);
        assert_eq!(fold(&[("token", &ours)]).rows, fold(&[("token", &spaced)]).rows, "{ours}");
        assert_eq!(fold(&[("reasoning", &ours)]).rows, fold(&[("reasoning", &spaced)]).rows, "{ours}");
    }
}

#[test]
fn reasoning_stays_beside_the_text_and_never_in_it() {
    check(
        &[("reasoning", r#"{"text":"","thinking":"hm "}"#), ("token", r#"{"text":"yes"}"#), ("done", "{}")],
        &[("yes", "hm", 100)],
    );
}

#[test]
fn what_a_failed_attempt_thought_is_a_paragraph_of_its_own() {
    let thought = |text: &str| format!(r#"{{"text":"{text}"}}"#);
    check(
        &[("attempt", "{}"), ("reasoning", &thought("a")), ("attempt", "{}"), ("reasoning", &thought("b"))],
        &[("", "a\n\nb", 101)],
    );
}

#[test]
fn an_interim_note_starts_a_paragraph_and_ends_the_row() {
    check(
        &[
            ("token", r#"{"text":"Streamed"}"#),
            ("interim_assistant", r#"{"text":" note "}"#),
            ("token", r#"{"text":"tail"}"#),
            ("interim_assistant", r#"{"already_streamed":true,"text":"tail"}"#),
            ("token", r#"{"text":"end"}"#),
        ],
        &[("Streamed\n\nnote", "", 100), ("tail", "", 102), ("end", "", 104)],
    );
}

#[test]
fn a_tool_before_any_text_gets_an_empty_row_to_stand_on() {
    let folded = fold(&[("tool", r#"{"name":"ls"}"#), ("token", r#"{"text":"x"}"#), ("tool", r#"{"name":"cd"}"#)]);
    assert_eq!(folded.rows.iter().map(|row| row.content.as_str()).collect::<Vec<_>>(), ["", "x"]);
    assert_eq!(folded.cards.iter().map(|card| card.row).collect::<Vec<_>>(), [0, 1]);
}

#[test]
fn a_result_finds_its_card_by_id_before_it_looks_at_names() {
    let folded = fold(&[
        ("tool", r#"{"name":"t","tool_call_id":"a","preview":"1"}"#),
        ("tool", r#"{"name":"t","tool_call_id":"b","preview":"2"}"#),
        ("tool_complete", r#"{"name":"t","tool_call_id":"a","preview":"one","duration":0.50}"#),
    ]);
    let cards: Vec<_> = folded.cards.iter().map(|card| card.card.fields().to_json()).collect();
    assert!(cards[0].contains(r#""preview":"one","snippet":"one""#) && cards[0].contains(r#""duration":0.50"#));
    assert!(cards[0].contains(r#""done":true"#) && cards[1].contains(r#""done":false"#), "{cards:?}");
}

#[test]
fn arguments_are_shown_in_part() {
    let long = "x".repeat(130);
    let payload = format!(r#"{{"args":{{"a":"{long}","b":7,"c":[1],"d":null,"e":1}}}}"#);
    let folded = fold(&[("tool", &payload)]);
    let args = Object::parse(folded.cards[0].card.fields().get("args").unwrap()).unwrap();
    assert_eq!(args.text("a").unwrap(), format!("{}...", "x".repeat(120)));
    assert_eq!(args.text("c").unwrap(), "[1]");
    assert_eq!(args.iter().count(), 4);
}

#[test]
fn an_event_that_is_there_twice_counts_once_even_out_of_order() {
    let mut folder = Folder::default();
    for (seq, text) in [(1, "a"), (3, "c"), (2, "b"), (3, "c"), (2, "b"), (4, "d")] {
        let payload = format!(r#"{{"text":"{text}"}}"#);
        folder.push(&FoldEvent {
            seq: Some(seq),
            is_foreign: false,
            name: "token",
            payload: &payload,
            created_at: None,
        });
    }
    assert_eq!(folder.finish().rows[0].content, "acbd");
}

#[test]
fn rows_of_a_run_that_ended_normally_carry_no_recovery_keys() {
    let folded = fold(&[("token", r#"{"text":"x"}"#), ("tool", r#"{"name":"t"}"#)]);
    let row = folded.rows[0].to_row(Provenance::Live("r"), 0);
    let card = folded.cards[0].to_card(Provenance::Live("r"), 4);
    assert_eq!(row.fields().to_json(), r#"{"role":"assistant","content":"x","timestamp":100,"_run_id":"r"}"#);
    assert!(!card.fields().to_json().contains("_recovered"));
    assert_eq!(card.row_index(), Some(4));
}

fn fold_within(bytes: u64, events: &[(&str, String)]) -> Folded {
    let mut folder = Folder::within(FoldLimit { bytes, before_seq: None });
    for (seq, (name, payload)) in (1..).zip(events) {
        folder.push(&FoldEvent { seq: Some(seq), is_foreign: false, name, payload, created_at: None });
    }
    folder.finish()
}

fn document_bytes(folded: &Folded) -> usize {
    let run = "r".repeat(128);
    let provenance = Provenance::Recovered(&run);
    let rows = folded.rows.iter().map(|row| row.to_row(provenance, 1_800_000_000).fields().to_json().len() + 1);
    let cards = folded.cards.iter().map(|card| card.to_card(provenance, 1_000_000).fields().to_json().len() + 1);
    rows.sum::<usize>() + cards.sum::<usize>()
}

#[test]
fn what_a_fold_puts_into_the_document_fits_into_its_limit() {
    for size in [10, 1_000, 60_000, 100_000] {
        let text = "\\n".repeat(size / 2);
        let events = [
            ("token", format!(r#"{{"text":"{text}"}}"#)),
            ("tool", format!(r#"{{"id":"a","name":"t","args":{{"a":"{text}","b":["{text}"]}},"preview":"{text}"}}"#)),
            ("data", format!(r#"{{"name":"d","data":"{text}"}}"#)),
            (
                "tool_complete",
                format!(r#"{{"id":"a","result":["{text}"],"preview":["{text}"],"duration":{}1}}"#, "1".repeat(size)),
            ),
            ("file", format!(r#"{{"url":"https://a/{size}"}}"#)),
        ];
        let events: Vec<_> = events.iter().cycle().take(20).cloned().collect();
        for limit in (0..40).map(|step| step * (size as u64 + 500) / 2) {
            let folded = fold_within(limit, &events);
            let bytes = document_bytes(&folded) as u64;
            let is_empty = folded.rows.iter().all(|row| row.content.is_empty() && row.parts.is_empty());
            // A row that says from which event on nothing fits is all there is then.
            assert!(
                bytes <= limit.max(1_024) || is_empty && folded.cards.is_empty(),
                "{bytes} in {limit}, texts of {size}"
            );
        }
    }
}

#[test]
fn values_that_lie_beside_the_document_take_no_room_in_it() {
    let text = "x".repeat(1024 * 1024);
    let pair = [
        ("tool", format!(r#"{{"id":"a","name":"t","args":{{"a":"{text}"}}}}"#)),
        ("tool_complete", format!(r#"{{"id":"a","result":"{text}"}}"#)),
    ];
    let events: Vec<_> = pair.iter().cycle().take(20).cloned().collect();
    let folded = fold_within(100 * 1024, &events);
    assert_eq!((folded.cards.len(), folded.large.len()), (10, 20));
    assert_eq!(folded.rows[0].truncated_from, None);
    assert!(document_bytes(&folded) < 20 * 1024);
}

#[test]
fn results_of_an_attempt_that_failed_do_not_reach_the_calls_of_the_next() {
    let folded = fold(&[
        ("tool", r#"{"name":"t","args":{"n":1}}"#),
        ("attempt", "{}"),
        ("tool", r#"{"name":"t","args":{"n":2}}"#),
        ("tool_complete", r#"{"name":"t","result":"two"}"#),
    ]);
    let results: Vec<_> = folded.cards.iter().map(|card| card.card.fields().get("_result")).collect();
    assert_eq!(results, [None, Some("\"two\"")]);
}

#[test]
fn what_the_reference_program_shows_of_a_call_is_as_it_was() {
    let folded = fold(&[
        ("tool", r#"{"id":"a","name":"t","args":{"a":1},"preview":"p"}"#),
        ("tool_complete", r#"{"id":"a","result":[1],"preview":"q","is_error":true}"#),
    ]);
    let card = folded.cards[0].to_card(Provenance::Live("r"), 3).fields().to_json();
    let shown = r#""name":"t","preview":"q","snippet":"q","tid":"journal-1","assistant_msg_idx":3,"args":{"a":"1"},"done":true,"_run_id":"r""#;
    let told = r#""_call_id":"a","_args":{"a":1},"is_error":true,"_result":[1],"_result_is_error":true"#;
    assert_eq!(card, format!("{{{shown},{told}}}"));
}
