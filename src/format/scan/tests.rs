//! What the scanner finds in bytes of all kinds.

use super::*;
use crate::clock::Timestamp;
use crate::format::LineEncoder;
use crate::model::{Event, RunId, SessionId};

fn ids() -> (SessionId, RunId) {
    (SessionId::parse("s").unwrap(), RunId::parse("r").unwrap())
}

fn line(seq: u64) -> Vec<u8> {
    let (session, run) = ids();
    let mut out = Vec::new();
    let event = Event::token(&format!("text {seq}"));
    LineEncoder::new(&session, &run).encode(seq, Timestamp::from_seconds(1.0), &event, &mut out);
    out
}

/// A record as text: `e<seq>` or `<code>@<offset>+<bytes>`.
fn told(record: Record<'_>) -> String {
    match record {
        Record::Event(event) => format!("e{}", event.seq.map_or("?".to_owned(), |seq| seq.to_string())),
        Record::Damage(damage) => format!("{}@{}+{}", damage.kind.code(), damage.offset, damage.bytes),
    }
}

fn scanner() -> Scanner {
    let (session, run) = ids();
    Scanner::new(LineShape::new(&session, &run), 0)
}

/// Hands the scanner so many bytes at most, and gives the rest.
fn fed<'a>(scanner: &mut Scanner, step: usize, bytes: &'a [u8]) -> &'a [u8] {
    let taken = scanner.feed(step, |room| {
        let len = room.len().min(bytes.len());
        room[..len].copy_from_slice(&bytes[..len]);
        Ok::<_, ()>(len)
    });
    &bytes[taken.unwrap()..]
}

/// What is found when the bytes arrive `step` at a time and `take` takes the records of the whole lines.
fn found_by(bytes: &[u8], step: usize, take: impl Fn(&mut Scanner, &mut Vec<String>)) -> Vec<String> {
    let (mut scanner, mut found, mut rest) = (scanner(), Vec::new(), bytes);
    while !rest.is_empty() {
        rest = fed(&mut scanner, step, rest);
        take(&mut scanner, &mut found);
    }
    while let Some(record) = scanner.next_of_tail() {
        found.push(told(record));
    }
    found
}

/// What is found by asking for each record.
fn scan_by(bytes: &[u8], step: usize) -> Vec<String> {
    found_by(bytes, step, |scanner, found| {
        while let Some(record) = scanner.next_record() {
            found.push(told(record));
        }
    })
}

/// What is found by being shown all records that are there.
fn show_by(bytes: &[u8], step: usize) -> Vec<String> {
    found_by(bytes, step, |scanner, found| scanner.show_whole(|record| found.push(told(record))))
}

#[track_caller]
fn check(bytes: &[u8], expected: &[&str]) {
    for step in [1, 7, 64, 100_000] {
        assert_eq!(scan_by(bytes, step), expected, "{step} bytes at a time");
        assert_eq!(show_by(bytes, step), expected, "shown, {step} bytes at a time");
    }
}

#[test]
fn lines_come_out_in_order_and_blank_ones_are_nothing() {
    check(&[&line(1), b"\n  \r\n".as_slice(), &line(2)].concat(), &["e1", "e2"]);
}

#[test]
fn only_a_line_feed_ends_a_line() {
    check("{\"seq\":1,\"event\":\"t\",\"payload\":\"a\u{2028}\u{85}\u{2029}b\"}\r\n".as_bytes(), &["e1"]);
}

#[test]
fn a_byte_order_mark_is_skipped() {
    check(&[b"\xef\xbb\xbf".as_slice(), &line(1)].concat(), &["e1"]);
}

#[test]
fn garbage_between_good_lines_hides_neither() {
    let length = line(1).len();
    let bytes = [&line(1), b"garbage\n[1]\n\xff\xfe\n12\n".as_slice(), &line(2)].concat();
    check(
        &bytes,
        &[
            "e1",
            &format!("bad_json@{length}+7"),
            &format!("bad_json@{}+3", length + 8),
            &format!("bad_utf8@{}+2", length + 12),
            &format!("bad_json@{}+2", length + 15),
            "e2",
        ],
    );
}

#[test]
fn a_page_of_nuls_does_not_hide_the_line_behind_it() {
    check(&[vec![0; 50], line(1)].concat(), &["nul_run@0+50", "e1"]);
    check(&[line(1), vec![0; 50]].concat(), &["e1", &format!("nul_run@{}+50", line(1).len())]);
}

#[test]
fn what_is_left_of_a_line_behind_nuls_is_no_event() {
    let payload = br#"{"text":"x"},"crc":"460648a8"}"#.as_slice();
    let len = 50 + payload.len();
    let nuls = vec![0; 50];
    check(&[&nuls, payload, b"\n", &line(2)].concat(), &[&format!("nul_run@0+{len}"), "e2"]);
    check(&[&nuls, payload].concat(), &[&format!("torn_tail@0+{len}")]);
    check(&[&nuls, payload, &line(2)].concat(), &[&format!("nul_run@0+{len}"), "e2"]);
    for rest in [r#"{"event":"x"},"crc":"460648a8"}"#, r#"{"seq":7}}"#, r#"{"type":"x"},{"seq":1}"#, r#"{"a":1}"#] {
        let bytes = [&nuls, rest.as_bytes(), b"\n", &line(2)].concat();
        check(&bytes, &[&format!("nul_run@0+{}", 50 + rest.len()), "e2"]);
    }
}

#[test]
fn lines_in_their_own_right_behind_nuls_are_read() {
    let (nuls, foreign) = (vec![0; 50], br#"{"seq":7,"type":"token"}"#.as_slice());
    check(&[&nuls, foreign, b" \r\n"].concat(), &["nul_run@0+50", "e7"]);
    check(&[&nuls, foreign, foreign, b"\n"].concat(), &["nul_run@0+50", "e7", "e7"]);
    check(&[&nuls, foreign, &line(8)].concat(), &["nul_run@0+50", "e7", "e8"]);
    check(&[&nuls, br#"{"event":"x"}"#.as_slice(), b"\n"].concat(), &["nul_run@0+50", "e?"]);
    let own = &line(1)[..line(1).len() - 1];
    let rest = format!("nul_run@{}+1", 50 + own.len());
    check(&[&nuls, own, b"\0\n", &line(2)].concat(), &["nul_run@0+50", "e1", &rest, "e2"]);
    let rest = format!("bad_json@50+{}", own.len() + 2);
    check(&[&nuls, own, b",1\n", &line(2)].concat(), &["nul_run@0+50", &rest, "e2"]);
}

#[test]
fn every_page_that_can_be_lost_of_a_line_leaves_no_event_that_was_never_written() {
    let whole = [line(1), line(2), line(3)].concat();
    for from in 0..whole.len() {
        for to in [from + 1, from + 16, from + 64, line(1).len(), 2 * line(1).len(), whole.len()] {
            let mut bytes = whole.clone();
            if from < to && to <= whole.len() {
                bytes[from..to].fill(0);
                let found = scan_by(&bytes, 100_000);
                let events: Vec<_> = found.iter().filter(|one| one.starts_with('e')).collect();
                let is_known = events.iter().all(|event| ["e1", "e2", "e3"].contains(&event.as_str()));
                assert!(is_known && events.is_sorted(), "{from}..{to}: {found:?}");
            }
        }
    }
}

#[test]
fn glued_records_are_both_read_and_the_damage_is_told() {
    let one = line(1);
    let both = [&one[..one.len() - 1], &line(2)].concat();
    let damage = format!("glued_records@0+{}", both.len() - 1);
    check(&both, &[&damage, "e1", "e2"]);
    check(&[both, line(3)].concat(), &[&damage, "e1", "e2", "e3"]);
}

#[test]
fn a_record_glued_to_a_torn_one_is_read() {
    let torn = &line(1)[..30];
    check(&[torn, &line(2)].concat(), &["glued_records@0+30", "e2"]);
}

#[test]
fn a_last_line_without_its_line_feed_is_whole_or_torn() {
    let two = line(2);
    check(&[&line(1), &two[..two.len() - 1]].concat(), &["e1", "e2"]);
    for cut in 1..two.len() - 1 {
        let expected = format!("torn_tail@{}+{cut}", line(1).len());
        assert_eq!(scan_by(&[&line(1), &two[..cut]].concat(), 64), ["e1", &expected]);
    }
}

#[test]
fn an_overlong_line_is_skipped_with_bounded_memory() {
    let (session, run) = ids();
    let mut scanner = Scanner::new(LineShape::new(&session, &run), 0);
    for _ in 0..100 {
        scanner.feed(1024 * 1024, |room| Ok::<_, ()>(room.iter_mut().map(|byte| *byte = b'x').count())).unwrap();
        assert!(scanner.next_record().is_none());
        assert!(scanner.buffer.len() <= LINE_BYTES_MAX + 2 * 1024 * 1024);
    }
    let rest = [b"\n".as_slice(), &line(1)].concat();
    scanner
        .feed(rest.len(), |room| {
            room.copy_from_slice(&rest);
            Ok::<_, ()>(rest.len())
        })
        .unwrap();
    let expected = Damage { kind: DamageKind::LineTooLong, offset: 0, line: 0, bytes: 100 * 1024 * 1024 };
    assert!(matches!(scanner.next_record(), Some(Record::Damage(damage)) if damage == expected));
    assert!(matches!(scanner.next_record(), Some(Record::Event(event)) if event.seq == Some(1)));
}

#[test]
fn whether_a_line_is_too_long_does_not_depend_on_the_pieces_it_came_in() {
    let mut line = b"{\"seq\":1,\"payload\":\"".to_vec();
    line.resize(LINE_BYTES_MAX + 10_000, b'x');
    line.extend_from_slice(b"\"}\n");
    for step in [64 * 1024, 1024 * 1024, 64 * 1024 * 1024] {
        assert_eq!(scan_by(&line, step), [format!("line_too_long@0+{}", line.len() - 1)]);
    }
}

#[test]
fn what_follows_an_overlong_line_is_read_and_its_own_end_is_not() {
    // The end of the overlong line looks like a record of ours.
    let bytes = [vec![b'x'; LINE_BYTES_MAX + 1], line(1), line(2)].concat();
    let damage = format!("line_too_long@0+{}", LINE_BYTES_MAX + line(1).len());
    for step in [LINE_BYTES_MAX + 1, 2 * LINE_BYTES_MAX] {
        assert_eq!(scan_by(&bytes, step), [&*damage, "e2"], "{step} bytes at a time");
        assert_eq!(show_by(&bytes, step), [&*damage, "e2"], "shown, {step} bytes at a time");
    }
}

#[test]
fn a_line_of_our_own_shape_that_is_too_long_is_damage_however_it_is_read() {
    let (session, run) = ids();
    let mut bytes = Vec::new();
    let event = Event::token(&"x".repeat(LINE_BYTES_MAX));
    LineEncoder::new(&session, &run).encode(1, Timestamp::from_seconds(1.0), &event, &mut bytes);
    let damage = format!("line_too_long@0+{}", bytes.len() - 1);
    bytes.extend(line(2));
    for found in [scan_by(&bytes, bytes.len()), show_by(&bytes, bytes.len()), show_by(&bytes, 1024 * 1024)] {
        assert_eq!(found, [&*damage, "e2"]);
    }
}

#[test]
fn a_reader_that_begins_again_in_a_line_of_several_records_misses_none() {
    let both = [&line(1)[..line(1).len() - 1], &line(2)].concat();
    let mut scanner = scanner();
    assert!(fed(&mut scanner, 4096, &[both.clone(), line(3)].concat()).is_empty());
    let mut resumes = Vec::new();
    while let Some(record) = scanner.next_record() {
        let found = told(record);
        resumes.push((found, scanner.resume_at()));
    }
    let [damage, one, two, three] = &resumes[..] else { panic!("{resumes:?}") };
    assert!(damage.0.starts_with("glued_records"));
    assert_eq!([damage.1, one.1], [0, 0], "the second record has not been given out");
    let end = both.len() as u64;
    assert_eq!([two, three], [&("e2".to_owned(), end), &("e3".to_owned(), end + line(3).len() as u64)]);
}

#[test]
fn a_checksum_that_does_not_fit_is_damage_and_the_neighbours_stay() {
    let mut bad = line(2);
    let at = bad.len() - 5;
    bad[at] = if bad[at] == b'0' { b'1' } else { b'0' };
    let length = line(1).len();
    let expected = format!("checksum_mismatch@{length}+{}", bad.len() - 1);
    check(&[line(1), bad, line(3)].concat(), &["e1", &expected, "e3"]);
}
