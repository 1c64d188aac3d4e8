//! What `append` is handed.

use std::fs;

use crate::data::{Data, NO, USAGE, three_lines};

type Input = (&'static str, Vec<u8>, i32, usize);

fn inputs() -> Vec<Input> {
    let good = "{\"event\":\"token\",\"payload\":{\"text\":\"x\"}}";
    let named = |name: &str| format!("{{\"event\":\"{name}\"}}\n").into_bytes();
    vec![
        ("nothing", vec![], 0, 0),
        ("no JSON", b"token\n".to_vec(), USAGE, 0),
        ("half an object", b"{\"event\":\"token\"\n".to_vec(), USAGE, 0),
        ("a text", b"\"token\"\n".to_vec(), USAGE, 0),
        ("no event", b"{\"payload\":{}}\n".to_vec(), USAGE, 0),
        ("an event that is no text", b"{\"event\":7}\n".to_vec(), USAGE, 0),
        ("an event twice", b"{\"event\":\"a\",\"event\":\"b\"}\n".to_vec(), USAGE, 0),
        ("raw control bytes", b"{\"event\":\"token\",\"payload\":{\"text\":\"a\x01b\"}}\n".to_vec(), USAGE, 0),
        ("a NUL byte", b"{\"event\":\"token\"}\0\n".to_vec(), USAGE, 0),
        ("invalid UTF-8", b"{\"event\":\"token\",\"payload\":\"\xff\"}\n".to_vec(), USAGE, 0),
        ("an empty name", named(""), USAGE, 0),
        ("a blank name", named("  "), USAGE, 0),
        ("a long name", named(&"n".repeat(300)), USAGE, 0),
        ("a name with a line feed", named("a\\nb"), USAGE, 0),
        ("half a surrogate pair in the name", named("\\ud800"), USAGE, 0),
        (
            "half a surrogate pair in the payload",
            b"{\"event\":\"token\",\"payload\":{\"text\":\"\\ud83d\",\"\\udfff\":0}}\n".to_vec(),
            0,
            1,
        ),
        ("no payload", named("token"), 0, 1),
        ("a payload of null", b"{\"event\":\"token\",\"payload\":null}\n".to_vec(), 0, 1),
        ("no final line feed", good.as_bytes().to_vec(), 0, 1),
        ("CRLF", format!("{good}\r\n{good}\r\n").into_bytes(), 0, 2),
        ("blank lines", format!("\n\n  \n{good}\n\r\n{good}\n\n").into_bytes(), 0, 2),
        ("a bad line between good ones", format!("{good}\nbad\n{good}\n").into_bytes(), USAGE, 1),
        ("a line separator", "{\"event\":\"token\",\"payload\":{\"text\":\"a\u{2028}b\"}}\n".into(), 0, 1),
        ("open brackets", format!("{{\"event\":\"x\",\"payload\":{}\n", "[".repeat(100_000)).into_bytes(), USAGE, 0),
        ("a hundred levels", nested_line(100), 0, 1),
        ("a level more", nested_line(101), USAGE, 0),
        ("ten thousand levels", nested_line(10_000), USAGE, 0),
        ("more behind a done", format!("{{\"event\":\"done\"}}\n{good}\n").into_bytes(), NO, 1),
        (
            "an end, its end, and more",
            format!("{{\"event\":\"done\"}}\n{{\"event\":\"stream_end\"}}\n{good}\n").into_bytes(),
            NO,
            2,
        ),
        ("two ends", b"{\"event\":\"cancel\"}\n{\"event\":\"done\"}\n".to_vec(), NO, 1),
    ]
}

/// A line of this many levels.
fn nested_line(levels: usize) -> Vec<u8> {
    format!("{{\"event\":\"x\",\"payload\":{}{}}}\n", "[".repeat(levels - 1), "]".repeat(levels - 1)).into_bytes()
}

#[test]
fn a_line_that_is_nested_too_deeply_is_refused_by_name() {
    let data = Data::new();
    data.run(&["new", "--id", "a"]);
    data.run(&["turn", "a", "--message", "x", "--run", "r"]);
    let answer = data.feed(&["append", "a", "r"], &[nested_line(100), nested_line(101)].concat());
    assert_eq!((answer.code, answer.out.as_str()), (USAGE, "{\"seq\":1}\n"));
    assert!(answer.err.contains("line 2 of the input") && answer.err.contains("100 levels"), "{}", answer.err);
}

#[test]
fn a_blank_message_is_wrong_usage_and_begins_nothing() {
    let data = Data::new();
    let before = crate::data::snapshot(&data.root);
    for blank in ["", " ", "\u{a0}\n\t", "\u{200b}", "\u{feff}\u{2060} ", "\u{3164}"] {
        for command in
            [vec!["turn", "good", "--message", blank], vec!["run", "good", "--runner", "demo", "--message", blank]]
        {
            let answer = data.run(&command);
            assert_eq!(answer.code, USAGE, "{command:?}: {answer:?}");
            assert!(answer.err.contains("the message is blank: say something"), "{command:?}: {answer:?}");
        }
    }
    let runs = |files: &std::collections::BTreeMap<std::path::PathBuf, Vec<u8>>| {
        files.keys().filter(|path| path.extension().is_some_and(|end| end == "jsonl")).count()
    };
    assert_eq!(runs(&crate::data::snapshot(&data.root)), runs(&before));
}

#[test]
fn each_line_of_input_is_acknowledged_or_refused_by_its_number() {
    let data = Data::new();
    for (at, (why, input, code, acknowledged)) in inputs().into_iter().enumerate() {
        let (id, run) = (format!("s{at}"), format!("run-{at}"));
        data.run(&["new", "--id", &id]);
        data.run(&["turn", &id, "--message", "x", "--run", &run]);
        let answer = data.feed(&["append", &id, &run], &input);
        let seqs: String = (1..=acknowledged).map(|seq| format!("{{\"seq\":{seq}}}\n")).collect();
        assert_eq!((answer.code, &answer.out), (code, &seqs), "{why}: {answer:?}");
        assert!(code != USAGE || answer.err.contains("line "), "{why}: {answer:?}");
        let tail = data.run(&["tail", &id, &run]);
        assert_eq!((tail.out.lines().count(), tail.err.as_str()), (acknowledged, ""), "{why}: {tail:?}");
    }
    data.assert_others_live("bad input");
}

#[test]
fn half_a_surrogate_pair_is_journalled_as_it_came() {
    let data = Data::new();
    three_lines(&data);
    data.feed(&["append", "bad", "run-1"], b"{\"event\":\"token\",\"payload\":{\"text\":\"\\ud83d\"}}\n");
    assert!(fs::read_to_string(data.journal()).unwrap().contains("\"payload\":{\"text\":\"\\ud83d\"}"));
}

#[test]
fn a_line_of_17_megabytes_is_refused_and_what_came_before_it_stands() {
    let data = Data::new();
    three_lines(&data);
    let long = format!("{{\"event\":\"token\"}}\n{{\"event\":\"token\",\"payload\":\"{}\"}}\n", "x".repeat(17_000_000));
    let answer = data.feed(&["append", "bad", "run-1"], long.as_bytes());
    assert_eq!((answer.code, answer.out.as_str()), (USAGE, "{\"seq\":4}\n"), "{:.300}", answer.err);
    assert!(answer.err.contains("line 2"), "{:.300}", answer.err);
    let again = data.feed(&["append", "bad", "run-1"], b"{\"event\":\"done\"}\n");
    assert_eq!((again.code, again.out.as_str()), (0, "{\"seq\":5}\n"), "{again:?}");
}

#[test]
fn a_sealed_run_refuses_events_of_a_later_command() {
    let data = Data::new();
    three_lines(&data);
    assert_eq!(data.feed(&["append", "bad", "run-1"], b"{\"event\":\"done\"}\n").code, 0);
    let before = fs::read(data.journal()).unwrap();
    let answer = data.feed(&["append", "bad", "run-1"], b"{\"event\":\"token\"}\n");
    assert_eq!((answer.code, answer.out.as_str()), (NO, ""), "{answer:?}");
    assert!(answer.err.contains("run-1 has ended"), "{answer:?}");
    assert_eq!(fs::read(data.journal()).unwrap(), before);
}
