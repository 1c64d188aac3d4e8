//! Sidecars and ids that are no good.

use std::fs;
use std::os::unix::fs::symlink;
use std::process::Command;

use crate::data::{Data, NO, STORAGE, USAGE, sid, snapshot};
use lastword::format::read_session;
use lastword::limits::SIDECAR_BYTES_MAX;
use lastword::{List, NewSession, RunId, SessionId, SidecarError, StoreError, UserTurn};

fn unreadable_sidecars() -> Vec<(&'static str, Vec<u8>)> {
    let nested = "[".repeat(100_000);
    vec![
        ("empty", vec![]),
        ("white space", b" \n\t ".to_vec()),
        ("NUL bytes", vec![0; 9000]),
        ("NUL behind the object", b"{\"messages\":[]}\0".to_vec()),
        ("invalid UTF-8", b"{\"title\":\"\xff\",\"messages\":[]}".to_vec()),
        ("half a character", b"{\"title\":\"\xe2\x82".to_vec()),
        ("a list", b"[1, 2]".to_vec()),
        ("a number", b"12".to_vec()),
        ("a text", b"\"{}\"".to_vec()),
        ("null", b"null".to_vec()),
        ("two objects", b"{}{}".to_vec()),
        ("no quotes", b"{title: 1}".to_vec()),
        ("NaN", b"{\"updated_at\":NaN}".to_vec()),
        ("a raw control byte", b"{\"title\":\"a\x01b\"}".to_vec()),
        ("open brackets", nested.clone().into_bytes()),
        ("open brackets in a key", format!("{{\"messages\":{nested}").into_bytes()),
        ("a byte order mark", b"\xef\xbb\xbf{}".to_vec()),
    ]
}

#[test]
fn an_unreadable_sidecar_is_named_kept_and_stops_nobody_else() {
    let data = Data::new();
    for (why, bytes) in unreadable_sidecars() {
        fs::write(data.path("bad.json"), &bytes).unwrap();
        for args in [&["show", "bad"][..], &["show", "bad", "--metadata"], &["turn", "bad", "--message", "x"]] {
            let answer = data.run(args);
            assert_eq!(answer.code, NO, "{why}, {args:?}: {answer:?}");
            assert!(answer.err.contains("session bad is unreadable"), "{why}: {answer:?}");
        }
        let listed = data.run(&["ls"]);
        assert!(listed.code == 0 && listed.err.contains("bad"), "{why}: {listed:?}");
        assert!(fs::read(data.path("bad.json")).unwrap() == bytes, "{why}: it was changed");
    }
    data.assert_others_live("unreadable sidecars");
}

#[test]
fn an_id_whose_sidecar_is_unreadable_is_not_created_over_it() {
    let data = Data::new();
    fs::write(data.path("bad.json"), b"{").unwrap();
    let answer = data.run(&["new", "--id", "bad"]);
    assert_eq!(answer.code, NO, "{answer:?}");
    assert_eq!(fs::read(data.path("bad.json")).unwrap(), b"{");
}

#[test]
fn a_sidecar_cut_at_any_byte_is_unreadable_and_the_other_session_is_listed() {
    let data = Data::new();
    let store = data.writer();
    store.create(NewSession::titled("caf\u{e9}").with_id(sid("bad"))).unwrap();
    let whole = fs::read(data.path("bad.json")).unwrap();
    for cut in 0..whole.len() - 1 {
        fs::write(data.path("bad.json"), &whole[..cut]).unwrap();
        let found = store.get_session(&sid("bad"));
        let is_named = matches!(found, Err(StoreError::Sidecar(SidecarError::Unreadable { .. })));
        assert!(is_named, "cut at {cut}: {found:?}");
        let refused = store.begin_run(&sid("bad"), UserTurn::text("x"));
        assert!(refused.is_err(), "cut at {cut}");
        let listed = store.list().unwrap();
        assert_eq!(listed.iter().filter(|entry| entry.summary.is_ok() && entry.id == sid("good")).count(), 1);
        assert!(fs::read(data.path("bad.json")).unwrap() == whole[..cut], "cut at {cut}: it was changed");
    }
}

#[test]
fn what_lies_in_the_place_of_a_sidecar_is_named_and_stops_nobody_else() {
    let data = Data::new();
    fs::create_dir(data.path("folder.json")).unwrap();
    symlink("nowhere", data.path("dangling.json")).unwrap();
    symlink("loop.json", data.path("loop.json")).unwrap();
    symlink("/dev/zero", data.path("device.json")).unwrap();
    assert!(Command::new("mkfifo").arg(data.path("pipe.json")).status().unwrap().success());
    fs::File::create(data.path("huge.json")).unwrap().set_len(SIDECAR_BYTES_MAX * 8).unwrap();
    let expected = [
        ("folder", STORAGE),
        ("dangling", NO),
        ("loop", STORAGE),
        ("device", STORAGE),
        ("pipe", STORAGE),
        ("huge", STORAGE),
    ];
    for (id, code) in expected {
        for args in [&["show", id][..], &["show", id, "--metadata"], &["turn", id, "--message", "x"]] {
            let answer = data.run(args);
            assert_eq!(answer.code, code, "{id}, {args:?}: {answer:?}");
            assert!(answer.err.contains(id), "{answer:?}");
        }
    }
    data.assert_others_live("things in the place of sidecars");
}

fn odd_sidecars() -> Vec<(&'static str, String)> {
    let nested = format!("{}{}", "[".repeat(100_000), "]".repeat(100_000));
    let digits = "9".repeat(1000);
    vec![
        ("nesting", format!("{{\"title\":\"t\",\"deep\":{nested},\"messages\":[{{\"role\":\"user\",\"content\":{nested}}}]}}")),
        ("huge numbers", format!("{{\"updated_at\":1e999,\"created_at\":-1e999,\"message_count\":{digits},\"n\":{digits}.{digits}e{digits},\"messages\":[{{\"timestamp\":1e308}},{{\"timestamp\":-{digits}}}]}}")),
        ("equal keys", "{\"title\":\"one\",\"title\":\"two\",\"messages\":[1],\"messages\":[{\"role\":\"user\",\"role\":\"x\"}]}".into()),
        ("no keys", "{}".into()),
        ("messages null", "{\"title\":\"t\",\"messages\":null}".into()),
        ("messages an object", "{\"title\":\"t\",\"messages\":{\"0\":{}}}".into()),
        ("messages a text", "{\"title\":\"t\",\"messages\":\"[]\"}".into()),
        ("rows that are no objects", "{\"messages\":[null,1,\"x\",[],true,{\"content\":null}],\"tool_calls\":[0],\"context_messages\":[false]}".into()),
        ("metadata of other kinds", "{\"session_id\":[],\"title\":{\"a\":1},\"updated_at\":\"x\",\"message_count\":-1,\"active_stream_id\":7,\"pending_user_message\":[],\"messages\":[]}".into()),
        ("lone surrogates", "{\"title\":\"\\ud800x\",\"k\\udfff\":\"\\ud83d\",\"messages\":[{\"role\":\"user\",\"content\":\"a\\udc00\",\"\\ud801\":1}]}".into()),
    ]
}

#[test]
fn an_odd_sidecar_is_shown_listed_and_keeps_every_value_over_a_turn() {
    let data = Data::new();
    for (why, text) in odd_sidecars() {
        fs::write(data.path("odd.json"), &text).unwrap();
        for args in [
            &["show", "odd"][..],
            &["show", "odd", "--json"],
            &["show", "odd", "--context"],
            &["show", "odd", "--metadata", "--json"],
        ] {
            let answer = data.run(args);
            assert_eq!(answer.code, 0, "{why}, {args:?}: {:.300}", answer.err);
        }
        let listed = data.run(&["ls", "--json"]);
        assert!(listed.out.contains("\"session_id\":\"odd\""), "{why}: {:.300}", listed.err);
        assert_eq!(fs::read_to_string(data.path("odd.json")).unwrap(), text, "{why}: reading changed it");
        assert_eq!(data.run(&["turn", "odd", "--message", "x"]).code, 0, "{why}");
        assert_values_kept(why, &text, &fs::read(data.path("odd.json")).unwrap());
    }
    data.assert_others_live("odd sidecars");
}

/// Every list item that was there is there, spelt as it was.
fn assert_values_kept(why: &str, before: &str, after: &[u8]) {
    let before = read_session(&sid("odd"), before.as_bytes().to_vec()).unwrap();
    let after = read_session(&sid("odd"), after.to_vec()).unwrap();
    for list in List::ALL {
        assert!(before.texts(list).eq(after.texts(list)), "{why}: {list:?}");
    }
    for key in ["deep", "n", "k\\udfff", "created_at", "session_id"] {
        assert!(before.get(key) == after.get(key), "{why}: {key}");
    }
    // A session that has neither a title nor rows is given one by its first message.
    let is_titled = before.get("title").is_some() || before.len(List::Messages) > 0;
    let title = if is_titled { before.get("title") } else { Some("\"x\"") };
    assert_eq!(title, after.get("title"), "{why}");
}

#[test]
fn an_answer_that_has_no_transcript_to_go_to_stays_in_its_journal() {
    let data = Data::new();
    fs::write(data.path("odd.json"), b"{\"title\":\"t\",\"messages\":\"not a list\"}").unwrap();
    assert_eq!(data.run(&["turn", "odd", "--message", "x", "--run", "run-1"]).code, 0);
    let input = b"{\"event\":\"token\",\"payload\":{\"text\":\"the words\"}}\n{\"event\":\"done\"}\n";
    let answer = data.feed(&["append", "odd", "run-1"], input);
    assert_eq!((answer.code, answer.out.as_str()), (NO, "{\"seq\":1}\n"), "{answer:?}");
    assert!(answer.err.contains("messages"), "{answer:?}");
    assert!(data.run(&["tail", "odd", "run-1"]).out.contains("the words"));
    assert!(fs::read_to_string(data.path("odd.json")).unwrap().contains("\"not a list\""));
}

#[test]
fn a_key_is_shown_as_it_is_meant() {
    let data = Data::new();
    let text = "{\"session_id\":\"k\",\"title\":\"t\",\"updated_at\":1,\"a\\\"b\\u00e9\":7,\"message_count\":0,\"messages\":[]}";
    fs::write(data.path("k.json"), text).unwrap();
    let shown = data.run(&["show", "k", "--metadata", "--json"]);
    let object: serde_json::Value = serde_json::from_str(&shown.out).unwrap();
    assert_eq!(object["a\"b\u{e9}"], 7, "{shown:?}");
}

#[test]
fn a_bad_id_is_not_found_when_read_and_wrong_usage_when_made() {
    let data = Data::new();
    let before = snapshot(data.temp.path());
    let long = "x".repeat(300);
    let bad = ["", ".", "..", "../good", "a/b", "/etc/passwd", "a\\b", "a b", "caf\u{e9}", "\u{1f600}", "a\nb", &long];
    for id in bad.into_iter().chain(["good.json", "good/", "%5Fx"]) {
        for args in [&["show", id][..], &["turn", id, "--message", "x"], &["append", id, "r"], &["tail", id, "r"]] {
            assert_eq!(data.run(args).code, NO, "{args:?}");
        }
        assert_eq!(data.run(&["new", "--id", id]).code, USAGE, "new {id:?}");
    }
    for run in bad {
        assert_eq!(data.run(&["tail", "good", run]).code, NO, "tail {run:?}");
        assert_eq!(data.run(&["append", "good", run]).code, NO, "append {run:?}");
        assert_eq!(data.run(&["turn", "good", "--message", "x", "--run", run]).code, USAGE, "turn {run:?}");
    }
    assert!(SessionId::parse("a\0b").is_err() && RunId::parse("a\0b").is_err());
    let lock = data.path("_lock");
    let after = snapshot(data.temp.path());
    assert!(before.iter().all(|(path, bytes)| *path == lock || after.get(path) == Some(bytes)));
    assert_eq!(before.len(), after.len(), "something was created");
}

#[test]
fn a_run_id_that_occurs_within_a_text_is_free() {
    let data = Data::new();
    assert_eq!(data.run(&["turn", "good", "--message", "x", "--run", "ello"]).code, 0);
}
