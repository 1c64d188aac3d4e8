//! Journals, sidecars and the index through the store on the simulated disk, sampled with a fixed seed.

use std::path::Path;

use lastword::format::{Damage, DamageKind, LineShape};
use lastword::{Event, ReadOptions, Store};

use crate::data::{Data, NOW, open, open_to_read, read, rid, sid};
use crate::journal_rules::{Feed, Seen, scan};
use crate::mutations::{Mutation, sample};

const LATER: f64 = NOW + 3_600.0;
const JOURNAL: &str = "_run_journal/bad/open.jsonl";

/// The healthy session and the list of all are there.
#[track_caller]
fn assert_others_live(store: &Store) {
    let rows: Vec<String> =
        store.get_session(&sid("good")).unwrap().messages().map(|row| row.content().into_owned()).collect();
    assert_eq!(rows, ["hello", "an answer"]);
    assert_eq!(store.read_events(&sid("good"), &rid("first"), ReadOptions::default()).unwrap().events.len(), 2);
    let listed = store.list().unwrap();
    assert!(listed.iter().any(|entry| entry.id == sid("good") && entry.summary.is_ok()));
    assert!(listed.iter().any(|entry| entry.id == sid("bad")));
}

#[test]
fn a_journal_with_any_accident_gives_what_the_scanner_finds_and_harms_no_other() {
    let data = Data::new();
    let journal = data.bytes(JOURNAL).to_vec();
    let shape = LineShape::new(&sid("bad"), &rid("open"));
    for mutation in sample(journal.len(), 120) {
        let bytes = mutation.of(&journal);
        let disk = data.disk_with(JOURNAL, &bytes);
        let store = open(&disk, LATER).unwrap();
        let found = store.read_events(&sid("bad"), &rid("open"), ReadOptions::default()).unwrap();
        let scanned = scan(&bytes, 0, &shape, Feed::Shown(bytes.len().max(1)));
        // This run is ours, so that a line which lost its checksum is damaged, not another program's.
        let is_ours = |text: &str| journal.split(|byte| *byte == b'\n').any(|line| line == text.as_bytes());
        let events = scanned.iter().filter_map(|seen| match seen {
            Seen::Event { text, .. } if is_ours(text) => Some(text.as_str()),
            _ => None,
        });
        let damage = scanned.iter().filter_map(|seen| match seen {
            Seen::Damage(damage) => Some(*damage),
            Seen::Event { text, .. } if is_ours(text) => None,
            Seen::Event { text, offset, .. } => {
                let (kind, bytes) = (DamageKind::ChecksumMismatch, text.len() as u64);
                Some(Damage { kind, offset: *offset, line: *offset, bytes })
            }
        });
        assert!(found.events.iter().map(|event| event.line.as_str()).eq(events), "{mutation:?}: {found:?}");
        assert!(found.damage.iter().copied().eq(damage), "{mutation:?}: {found:?}");
        // Reading resolves the interrupted answer into the transcript, and leaves the journal as it is.
        let session = store.get_session(&sid("bad")).unwrap();
        assert!(session.messages().any(|row| row.content() == "and then?"), "{mutation:?}: the prompt is gone");
        assert_others_live(&store);
        assert_eq!(read(&disk, Path::new(JOURNAL)), bytes, "{mutation:?}");
    }
}

/// A line that is damaged had a number, and whoever saw its event knows it.
#[test]
fn behind_a_journal_with_any_bit_changed_no_number_is_given_again() {
    let data = Data::new();
    let journal = data.bytes(JOURNAL).to_vec();
    for mutation in sample(journal.len(), 120).filter(|mutation| matches!(mutation, Mutation::Flip(..))) {
        let disk = data.disk_with(JOURNAL, &mutation.of(&journal));
        let store = open(&disk, NOW).unwrap();
        let run = store.resume_run(&sid("bad"), &rid("open")).unwrap();
        let appended = run.append(Event::token("more")).unwrap();
        assert!(appended.first_seq > 5, "{mutation:?}: {} is given again", appended.first_seq);
        let found = store.read_events(&sid("bad"), &rid("open"), ReadOptions::default()).unwrap();
        assert_eq!(found.events.last().unwrap().seq, Some(appended.last_seq), "{mutation:?}");
    }
}

#[test]
fn a_sidecar_with_any_accident_is_read_or_told_by_name_and_harms_no_other() {
    let data = Data::new();
    let sidecar = data.bytes("bad.json").to_vec();
    for mutation in sample(sidecar.len(), 120) {
        let bytes = mutation.of(&sidecar);
        let disk = data.disk_with("bad.json", &bytes);
        let store = open(&disk, LATER).unwrap();
        assert_others_live(&store);
        assert_eq!(store.read_events(&sid("bad"), &rid("open"), ReadOptions::default()).unwrap().events.len(), 5);
        match store.get_session(&sid("bad")) {
            Ok(_) => assert!(!matches!(mutation, Mutation::Cut(len) if len + 1 < sidecar.len()), "{mutation:?}"),
            Err(error) => {
                assert!(matches!(error.code(), "corrupt_json" | "corrupt_utf8" | "wrong_shape"), "{error:?}");
                assert_eq!(read(&disk, Path::new("bad.json")), bytes, "{mutation:?}: left as it is");
            }
        }
        assert_others_live(&store);
    }
}

#[test]
fn an_index_with_any_accident_gives_the_same_list() {
    let data = Data::new();
    let index = data.bytes("_sessions.index").to_vec();
    for mutation in sample(index.len(), 120) {
        let disk = data.disk_with("_sessions.index", &mutation.of(&index));
        for store in [open_to_read(&disk).unwrap(), open(&disk, NOW).unwrap()] {
            let titles: Vec<String> =
                store.list().unwrap().iter().map(|entry| entry.summary.as_ref().unwrap().title()).collect();
            assert_eq!(titles, ["Session bad", "Session good"], "{mutation:?}");
        }
    }
}
