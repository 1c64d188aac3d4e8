//! Accidents of any kind to journals and sidecars.

use std::fs;

use crate::data::{Data, rid, sid};
use crate::seeds;
use lastword::format::{DamageKind, LineShape, Record, Scanner, encode, read_head, read_session};
use lastword::{Event, List, Outcome, ReadOptions, UserTurn};
use proptest::prelude::*;

/// What the scanner made of some bytes.
#[derive(Debug, Clone, PartialEq)]
enum Seen {
    Event { text: String, checked: bool },
    Damage(DamageKind),
}

fn seen(record: &Record<'_>) -> Seen {
    match record {
        Record::Event(event) => Seen::Event { text: event.text().to_owned(), checked: event.checked },
        Record::Damage(damage) => Seen::Damage(damage.kind),
    }
}

fn scan(bytes: &[u8], ids: &[&str; 2], step: usize) -> Vec<Seen> {
    let mut scanner = Scanner::new(LineShape::new(&sid(ids[0]), &rid(ids[1])), 0);
    let mut found = Vec::new();
    for piece in bytes.chunks(step) {
        let fed = scanner.feed(piece.len(), |room| {
            room.copy_from_slice(piece);
            Ok::<_, ()>(piece.len())
        });
        assert_eq!(fed, Ok(piece.len()));
        while let Some(record) = scanner.next_record() {
            found.push(seen(&record));
        }
    }
    while let Some(record) = scanner.next_of_tail() {
        found.push(seen(&record));
    }
    found
}

/// One accident. Places are taken modulo the length.
#[derive(Debug, Clone)]
enum Accident {
    FlipBit(usize),
    Cut(usize),
    Insert(usize, Vec<u8>),
    Remove(usize, usize),
    Copy { from: usize, len: usize, to: usize },
    Zero(usize, usize),
}

fn accident() -> impl Strategy<Value = Accident> {
    let place = 0..1_000_000_usize;
    prop_oneof![
        place.clone().prop_map(Accident::FlipBit),
        place.clone().prop_map(Accident::Cut),
        (place.clone(), proptest::collection::vec(any::<u8>(), 0..40))
            .prop_map(|(at, bytes)| Accident::Insert(at, bytes)),
        (place.clone(), 1..300_usize).prop_map(|(at, len)| Accident::Remove(at, len)),
        (place.clone(), 1..600_usize, place.clone()).prop_map(|(from, len, to)| Accident::Copy { from, len, to }),
        (place, 1..300_usize).prop_map(|(at, len)| Accident::Zero(at, len)),
    ]
}

fn befall(bytes: &mut Vec<u8>, accident: &Accident) {
    let len = bytes.len();
    if len == 0 {
        return;
    }
    let range = |at: usize, count: usize| at % len..(at % len + count).min(len);
    match accident {
        Accident::FlipBit(bit) => bytes[bit / 8 % len] ^= 1 << (bit % 8),
        Accident::Cut(at) => bytes.truncate(at % len),
        Accident::Insert(at, new) => drop(bytes.splice(at % len..at % len, new.iter().copied())),
        Accident::Remove(at, count) => drop(bytes.drain(range(*at, *count))),
        Accident::Copy { from, len: count, to } => {
            let copied = bytes[range(*from, *count)].to_vec();
            drop(bytes.splice(to % len..to % len, copied));
        }
        Accident::Zero(at, count) => bytes[range(*at, *count)].fill(0),
    }
}

fn valid_journal() -> Vec<u8> {
    use lastword::clock::Timestamp;
    let mut encoder = lastword::format::LineEncoder::new(&sid("s"), &rid("r"));
    let mut bytes = Vec::new();
    for seq in 1..=8 {
        let event = Event::token(&format!("w\u{f6}rter \u{1f600} \"{seq}\" {}", "\u{2028}x\n".repeat(seq as usize)));
        encoder.encode(seq, Timestamp::from_micros(seq as i64 * 1_000), &event, &mut bytes);
    }
    encoder.encode(9, Timestamp::from_micros(9_000), &Event::done(), &mut bytes);
    bytes
}

fn valid_sidecar() -> Vec<u8> {
    let text = "{\"session_id\":\"s\",\"title\":\"w\u{f6}rter\",\"updated_at\":1.5,\"message_count\":2,\"odd\\ud800\":[{}],\
        \"messages\":[{\"role\":\"user\",\"content\":\"hi \u{1f600}\"},{\"role\":\"assistant\",\"content\":\"\\ud83d\\ude00\"}],\
        \"tool_calls\":[{\"name\":\"t\",\"done\":true}],\"context_messages\":[]}";
    text.as_bytes().to_vec()
}

fn config(cases: u32) -> ProptestConfig {
    ProptestConfig { cases, ..seeds::config("bad_input") }
}

/// A checked event is a line that was written, and every line that is still whole comes out.
fn assert_scan_is_honest(original: &[u8], damaged: &[u8], step: usize) -> Result<(), TestCaseError> {
    let lines: Vec<&[u8]> = original.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()).collect();
    let found = scan(damaged, &["s", "r"], step);
    let texts = |wanted_checked: bool| {
        found.iter().filter_map(move |seen| match seen {
            Seen::Event { text, checked } if *checked || !wanted_checked => Some(text.as_bytes()),
            _ => None,
        })
    };
    for text in texts(true) {
        prop_assert!(lines.contains(&text), "taken for checked: {}", String::from_utf8_lossy(text));
    }
    for line in &lines {
        let whole = damaged.split(|byte| *byte == b'\n').filter(|found| found == line).count();
        prop_assert!(texts(true).filter(|text| text == line).count() >= whole, "a whole line was passed over");
    }
    prop_assert_eq!(&found, &scan(damaged, &["s", "r"], 1 << 20), "it depends on how the bytes arrive");
    Ok(())
}

fn look_at_everything(bytes: &[u8]) -> Result<(), TestCaseError> {
    let _ = read_head(&sid("s"), bytes);
    let Ok(session) = read_session(&sid("s"), bytes.to_vec()) else { return Ok(()) };
    session.messages().for_each(|row| assert!(row.content().len() <= bytes.len() * 8 || row.timestamp().is_some()));
    session.tool_cards().for_each(|card| assert!(card.name().len() <= bytes.len() * 8 || card.row_index().is_some()));
    let _ = (session.title().len(), session.pending_turn(), session.active_run().is_some());
    let written = encode(&session);
    let again = read_session(&sid("s"), written.bytes().to_vec());
    prop_assert!(again.is_ok(), "what was readable is not any more: {:?}", again.err());
    for list in List::ALL {
        prop_assert!(again.as_ref().unwrap().texts(list).eq(session.texts(list)));
    }
    Ok(())
}

proptest! {
    #![proptest_config(config(400))]

    #[test]
    fn a_mutated_journal_never_lies_and_never_hides_a_whole_line(
        accidents in proptest::collection::vec(accident(), 1..5),
        step in prop_oneof![Just(1_usize), 2..64_usize, Just(4096_usize)],
    ) {
        let original = valid_journal();
        let mut damaged = original.clone();
        accidents.iter().for_each(|accident| befall(&mut damaged, accident));
        assert_scan_is_honest(&original, &damaged, step)?;
    }

    #[test]
    fn random_bytes_are_no_checked_events(bytes in proptest::collection::vec(any::<u8>(), 0..2000), step in 1..300_usize) {
        assert_scan_is_honest(&valid_journal(), &bytes, step)?;
        look_at_everything(&bytes)?;
    }

    #[test]
    fn a_mutated_sidecar_is_unreadable_or_survives_a_save(accidents in proptest::collection::vec(accident(), 1..4)) {
        let mut damaged = valid_sidecar();
        accidents.iter().for_each(|accident| befall(&mut damaged, accident));
        look_at_everything(&damaged)?;
    }
}

proptest! {
    #![proptest_config(config(48))]

    #[test]
    fn a_store_with_a_mutated_journal_and_sidecar_serves_the_others_and_changes_neither_by_reading(
        in_journal in proptest::collection::vec(accident(), 1..5),
        in_sidecar in proptest::collection::vec(accident(), 0..3),
    ) {
        let data = Data::new();
        let mut journal = valid_journal();
        let mut sidecar = valid_sidecar();
        in_journal.iter().for_each(|accident| befall(&mut journal, accident));
        in_sidecar.iter().for_each(|accident| befall(&mut sidecar, accident));
        fs::create_dir_all(data.path("_run_journal/s")).unwrap();
        fs::write(data.path("_run_journal/s/r.jsonl"), &journal).unwrap();
        fs::write(data.path("s.json"), &sidecar).unwrap();
        let store = data.writer();
        let _ = (store.get_session(&sid("s")), store.metadata(&sid("s")), store.replay(&sid("s"), None));
        prop_assert!(store.read_events(&sid("s"), &rid("r"), ReadOptions::default()).is_ok());
        prop_assert!(store.run_summary(&sid("s"), &rid("r")).is_ok());
        prop_assert!(store.list().unwrap().iter().any(|entry| entry.id == sid("good") && entry.summary.is_ok()));
        prop_assert!(fs::read(data.path("s.json")).unwrap() == sidecar);
        prop_assert!(fs::read(data.path("_run_journal/s/r.jsonl")).unwrap() == journal);
        let run = store.begin_run(&sid("good"), UserTurn::text("x")).unwrap();
        run.finish(Outcome::Completed).unwrap();
    }
}
