//! Journals that are no good: read, and appended to.

use std::fs;
use std::os::unix::fs::symlink;
use std::process::Command;

use crate::data::{Data, NO, STORAGE, rid, sid, three_lines};
use lastword::format::DamageKind;
use lastword::limits::LINE_BYTES_MAX;
use lastword::{After, Event, Found, ReadOptions};

fn without_line_feed(line: &[u8]) -> &[u8] {
    line.strip_suffix(b"\n").unwrap()
}

type Case = (&'static str, Vec<u8>, Vec<u64>, Vec<DamageKind>);

fn bad_journals(lines: &[Vec<u8>]) -> Vec<Case> {
    use DamageKind::*;
    let (one, two, three) = (&lines[0][..], &lines[1][..], &lines[2][..]);
    let nuls = &[0; 5000][..];
    let crlf = |line| [without_line_feed(line), b"\r\n"].concat();
    let in_character = two.windows(2).position(|pair| pair == "\u{f6}".as_bytes()).unwrap() + 1;
    let mut changed = two.to_vec();
    changed[in_character - 3] ^= 1;
    let all = || vec![1, 2, 3];
    vec![
        ("empty", vec![], vec![], vec![]),
        ("NUL before", [nuls, one, two, three].concat(), all(), vec![NulRun]),
        ("NUL between", [one, nuls, two, nuls, b"\n", three].concat(), all(), vec![NulRun, NulRun]),
        ("NUL behind", [one, two, three, nuls].concat(), all(), vec![NulRun]),
        (
            "NUL instead of line feeds",
            [without_line_feed(one), b"\0", without_line_feed(two), b"\0", three].concat(),
            all(),
            vec![GluedRecords; 3],
        ),
        ("bad UTF-8", [one, b"\"\xff\xfe\"\n", two, three].concat(), all(), vec![BadUtf8]),
        (
            "bad UTF-8 within a line",
            [one, &two.iter().map(|b| if *b == 0xc3 { 0xff } else { *b }).collect::<Vec<_>>(), three].concat(),
            vec![1, 3],
            vec![BadUtf8],
        ),
        ("garbage", [one, b"garbage\n}{\n[]\n", two, three].concat(), all(), vec![BadJson; 3]),
        ("open brackets", [one, "[".repeat(100_000).as_bytes(), b"\n", two, three].concat(), all(), vec![BadJson]),
        ("glued", [without_line_feed(one), without_line_feed(two), three].concat(), all(), vec![GluedRecords]),
        ("glued to a torn one", [&one[..40], two, three].concat(), vec![2, 3], vec![GluedRecords]),
        ("CRLF", [crlf(one), crlf(two), crlf(three)].concat(), all(), vec![]),
        ("a byte order mark", [b"\xef\xbb\xbf", one, two, three].concat(), all(), vec![]),
        ("blank lines", [b"\n \n", one, b"\r\n", two, three, b"\n"].concat(), all(), vec![]),
        ("no final line feed", [one, two, without_line_feed(three)].concat(), all(), vec![]),
        ("torn in a character", [one, &two[..in_character]].concat(), vec![1], vec![TornTail]),
        ("one changed bit", [one, &changed, three].concat(), vec![1, 3], vec![ChecksumMismatch]),
        (
            "numbers out of range",
            [one, b"{\"seq\":18446744073709551615}\n{\"seq\":1e3}\n{\"seq\":-1}\n{\"seq\":0}\n", two].concat(),
            vec![1, 0, 0, 0, 0, 2],
            vec![],
        ),
        (
            "lone surrogates",
            [one, b"{\"seq\":2,\"event\":\"\\ud800\",\"payload\":{\"\\udfff\":\"\\ud83d\"}}\n"].concat(),
            vec![1, 2],
            vec![],
        ),
    ]
}

#[test]
fn a_bad_journal_gives_every_good_line_names_its_damage_and_stays_as_it_is() {
    let data = Data::new();
    let lines = three_lines(&data);
    for (why, bytes, seqs, damage) in bad_journals(&lines) {
        fs::write(data.journal(), &bytes).unwrap();
        let found = data.reader().read_events(&sid("bad"), &rid("run-1"), ReadOptions::default()).unwrap();
        assert_eq!(found.events.iter().map(|event| event.seq.unwrap_or(0)).collect::<Vec<_>>(), seqs, "{why}");
        assert_eq!(found.damage.iter().map(|damage| damage.kind).collect::<Vec<_>>(), damage, "{why}");
        let tail = data.run(&["tail", "bad", "run-1"]);
        assert_eq!((tail.code, tail.out.lines().count()), (0, seqs.len()), "{why}: {tail:?}");
        assert!(damage.iter().all(|damage| tail.err.contains(damage.code())), "{why}: {tail:?}");
        assert_eq!(data.run(&["show", "bad"]).code, 0, "{why}");
        assert!(fs::read(data.journal()).unwrap() == bytes, "{why}: it was changed");
    }
    data.assert_others_live("bad journals");
}

#[test]
fn a_line_of_100_megabytes_hides_no_neighbour() {
    let data = Data::new();
    let lines = three_lines(&data);
    let bytes = [&lines[0][..], &vec![b'x'; 100_000_000], b"\n", &lines[1]].concat();
    fs::write(data.journal(), &bytes).unwrap();
    let found = data.reader().read_events(&sid("bad"), &rid("run-1"), ReadOptions::default()).unwrap();
    assert_eq!(found.events.iter().map(|event| event.seq).collect::<Vec<_>>(), [Some(1), Some(2)]);
    assert_eq!((found.damage[0].kind, found.damage[0].bytes), (DamageKind::LineTooLong, 100_000_000));
}

#[test]
fn lines_of_another_session_are_read_as_they_lie_and_folded_by_nobody() {
    let data = Data::new();
    let lines = three_lines(&data).concat();
    fs::create_dir_all(data.path("_run_journal/good")).unwrap();
    fs::write(data.path("_run_journal/good/run-1.jsonl"), &lines).unwrap();
    let tail = data.run(&["tail", "good", "run-1"]);
    assert_eq!((tail.code, tail.out.as_bytes()), (0, &lines[..]));
    let summary = data.reader().run_summary(&sid("good"), &rid("run-1")).unwrap().unwrap();
    assert_eq!((summary.events, summary.last_seq), (3, 3));
    assert!(!data.run(&["show", "good"]).out.contains("three"));
    data.assert_others_live("another session's lines");
}

#[test]
fn what_lies_in_the_place_of_a_journal_is_named_and_stops_nobody_else() {
    let data = Data::new();
    three_lines(&data);
    let place = |name: &str| data.path(&format!("_run_journal/bad/{name}.jsonl"));
    fs::create_dir(place("folder")).unwrap();
    symlink("loop.jsonl", place("loop")).unwrap();
    symlink("nowhere", place("dangling")).unwrap();
    assert!(Command::new("mkfifo").arg(place("pipe")).status().unwrap().success());
    for (run, code) in [("folder", STORAGE), ("loop", STORAGE), ("dangling", NO), ("pipe", STORAGE), ("missing", NO)] {
        for args in [&["tail", "bad", run][..], &["tail", "bad", run, "--follow"], &["append", "bad", run]] {
            let answer = data.feed(args, b"{\"event\":\"token\"}\n");
            assert_eq!((answer.code, answer.out.as_str()), (code, ""), "{args:?}: {answer:?}");
            assert!(answer.err.contains(run), "{args:?}: {answer:?}");
        }
    }
    assert_eq!(data.run(&["tail", "bad", "run-1"]).out.lines().count(), 3);
    data.assert_others_live("things in the place of journals");
}

#[test]
fn a_follower_does_not_mix_a_torn_line_with_the_one_written_in_its_place() {
    let data = Data::new();
    let lines = three_lines(&data);
    let torn = without_line_feed(&lines[2]).len() - 40;
    fs::write(data.journal(), [&lines[0][..], &lines[1], &lines[2][..torn]].concat()).unwrap();
    let mut follow = data.reader().follow(&sid("bad"), &rid("run-1"), After::Seq(2)).unwrap();
    assert!(follow.poll().unwrap().is_none());
    let run = data.writer().resume_run(&sid("bad"), &rid("run-1")).unwrap();
    run.append(Event::token("in its place")).unwrap();
    assert!(follow.poll().unwrap().unwrap().payload().contains("in its place"));
}

#[test]
fn the_rest_of_a_line_that_is_just_being_written_is_no_damage() {
    let data = Data::new();
    let lines = three_lines(&data);
    let half = lines[2].len() / 2;
    fs::write(data.journal(), [&lines[0][..], &lines[1], &lines[2][..half]].concat()).unwrap();
    let mut events = data.reader().events(&sid("bad"), &rid("run-1"), ReadOptions::default()).unwrap();
    for _ in 0..2 {
        assert!(matches!(events.next(), Some(Ok(Found::Event(_)))));
    }
    let torn = events.next().unwrap().unwrap();
    assert!(matches!(torn, Found::Damage(damage) if damage.kind == DamageKind::TornTail));
    fs::write(data.journal(), lines.concat()).unwrap();
    assert!(events.next().is_none(), "the half that was read was judged, and the other half is nothing of its own");
}

#[test]
fn an_append_behind_a_line_torn_at_any_byte_keeps_the_fragment_and_every_line_before() {
    let data = Data::new();
    let lines = three_lines(&data);
    let (before, torn) = (lines[..2].concat(), without_line_feed(&lines[2]));
    let store = data.writer();
    for cut in 1..torn.len() {
        let _ = fs::remove_dir_all(data.path("_kept"));
        fs::write(data.journal(), [&before[..], &torn[..cut]].concat()).unwrap();
        let run = store.resume_run(&sid("bad"), &rid("run-1")).unwrap();
        assert_eq!(run.append(Event::token("next")).unwrap().last_seq, 3, "cut at {cut}");
        let now = fs::read(data.journal()).unwrap();
        assert!(now.starts_with(&before) && now.ends_with(b"\n"), "cut at {cut}");
        assert_eq!(now.iter().filter(|byte| **byte == b'\n').count(), 3, "cut at {cut}");
        assert_eq!(data.kept(), [&torn[..cut]], "cut at {cut}");
    }
}

#[test]
fn an_append_behind_damage_changes_none_of_the_bytes_that_were_there() {
    let data = Data::new();
    let lines = three_lines(&data);
    for (why, bytes, ..) in bad_journals(&lines) {
        let _ = fs::remove_dir_all(data.path("_kept"));
        fs::write(data.journal(), &bytes).unwrap();
        let answer = data.feed(&["append", "bad", "run-1"], b"{\"event\":\"token\",\"payload\":{\"text\":\"next\"}}\n");
        assert_eq!(answer.code, 0, "{why}: {answer:?}");
        let now = fs::read(data.journal()).unwrap();
        let same = now.iter().zip(&bytes).take_while(|(a, b)| a == b).count();
        let cut = &bytes[same..];
        let is_kept = |kept: &Vec<u8>| bytes.ends_with(kept) && kept.ends_with(cut);
        assert!(
            cut.iter().all(|byte| *byte == 0) || data.kept().iter().any(is_kept),
            "{why}: {} bytes are gone",
            cut.len()
        );
        let last = data.run(&["tail", "bad", "run-1"]).out.lines().last().unwrap_or_default().to_owned();
        assert!(last.contains("\"next\""), "{why}: {last}");
    }
}

#[test]
fn a_torn_tail_longer_than_any_line_is_kept_too() {
    let data = Data::new();
    let lines = three_lines(&data);
    let tail = [&vec![0; LINE_BYTES_MAX + 1][..], b"precious words"].concat();
    fs::write(data.journal(), [&lines[0][..], &tail].concat()).unwrap();
    let run = data.writer().resume_run(&sid("bad"), &rid("run-1")).unwrap();
    run.append(Event::token("next")).unwrap();
    assert!(data.kept().iter().any(|kept| kept.ends_with(b"precious words")));
}

#[test]
fn a_number_that_another_program_may_have_shown_is_left_out() {
    let data = Data::new();
    fs::create_dir_all(data.path("_run_journal/good")).unwrap();
    fs::write(data.path("_run_journal/good/f.jsonl"), b"{\"seq\":1,\"event\":\"token\"}\n{\"seq\":2,\"ev").unwrap();
    let answer = data.feed(&["append", "good", "f"], b"{\"event\":\"token\"}\n");
    assert_eq!((answer.code, answer.out.as_str()), (0, "{\"seq\":3}\n"), "{answer:?}");
}

#[test]
fn a_journal_whose_numbers_are_used_up_takes_no_more() {
    let data = Data::new();
    fs::create_dir_all(data.path("_run_journal/good")).unwrap();
    let path = data.path("_run_journal/good/f.jsonl");
    let line = b"{\"seq\":9007199254740991,\"event\":\"token\"}\n";
    fs::write(&path, line).unwrap();
    let answer = data.feed(&["append", "good", "f"], b"{\"event\":\"token\"}\n");
    assert_eq!((answer.code, answer.out.as_str()), (NO, ""), "{answer:?}");
    assert_eq!(fs::read(&path).unwrap(), line);
}
