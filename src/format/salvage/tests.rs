//! Damaged sidecars, and what is still read of them.

use super::*;

fn id() -> SessionId {
    SessionId::parse("s1").unwrap()
}

fn salvaged(bytes: &[u8]) -> Option<Session> {
    salvage_session(&id(), bytes).map(|salvaged| salvaged.session)
}

fn rows(session: &Session) -> Vec<String> {
    session.messages().map(|row| row.content().into_owned()).collect()
}

/// As the reference program spells it, and as we do.
fn spellings() -> [String; 2] {
    let pretty = r#"{
  "session_id": "s1",
  "title": "Trip",
  "extra": {
    "role": "not a row"
  },
  "messages": [
    {
      "role": "user",
      "content": "one"
    },
    {
      "role": "assistant",
      "content": "two"
    },
    {
      "role": "user",
      "content": "three"
    }
  ],
  "tool_calls": [
    {
      "name": "ls",
      "tid": "t"
    }
  ]
}"#;
    let flat = "{\n\"session_id\": \"s1\",\n\"title\": \"Trip\",\n\"extra\": {\"role\": \"not a row\"},\n\"messages\": [\n\
                {\"role\":\"user\",\"content\":\"one\"},\n{\"role\":\"assistant\",\"content\":\"two\"},\n\
                {\"role\":\"user\",\"content\":\"three\"}\n],\n\"tool_calls\": [\n{\"name\":\"ls\",\"tid\":\"t\"}\n]\n}\n";
    [pretty.to_owned(), flat.to_owned()]
}

#[test]
fn a_cut_anywhere_leaves_the_rows_before_it() {
    for text in spellings() {
        let ends: Vec<usize> =
            ["\"one\"", "\"two\"", "\"three\""].map(|row| text.find(row).unwrap() + row.len()).into();
        for cut in text.find("Trip").unwrap() + 6..text.len() {
            let session = salvaged(&text.as_bytes()[..cut]).unwrap_or_else(|| panic!("cut at {cut}"));
            let whole = ends.iter().filter(|end| text[**end..].find('}').unwrap() + **end < cut).count();
            assert_eq!(rows(&session), &["one", "two", "three"][..whole], "cut at {cut}");
            assert_eq!(session.title(), "Trip");
        }
    }
}

#[test]
fn damage_in_one_row_takes_no_other() {
    for text in spellings() {
        let at = text.find("\"two\"").unwrap();
        for (garbage, kept) in [(&b"\x00\x00"[..], 3), (b"\xff", 3), (b"\"", 2), (b"\"}{[", 3)] {
            let mut bytes = text.clone().into_bytes();
            bytes.splice(at + 2..at + 2 + garbage.len(), garbage.iter().copied());
            let session = salvaged(&bytes).unwrap();
            assert_eq!(rows(&session).len(), kept, "{garbage:?}");
            assert_eq!(rows(&session).last().unwrap(), "three");
            assert_eq!(session.len(List::ToolCalls), 1, "{garbage:?}");
        }
    }
}

#[test]
fn damage_between_the_lists_takes_neither() {
    for text in spellings() {
        let at = text[..text.find("\"tool_calls\"").unwrap()].rfind(']').unwrap();
        let mut bytes = text.clone().into_bytes();
        bytes.splice(at..at + 2, b"@@".iter().copied());
        let session = salvaged(&bytes).unwrap();
        assert_eq!(rows(&session), ["one", "two", "three"]);
        assert_eq!(session.len(List::ToolCalls), 1);
    }
}

#[test]
fn a_session_whose_beginning_is_gone_still_has_its_rows() {
    for text in spellings() {
        let messages = text.find("\"messages\"").unwrap();
        for zeroes in [30, messages, messages + 4, messages + 10, messages + 12] {
            let mut bytes = text.clone().into_bytes();
            bytes[..zeroes].fill(0);
            let session = salvaged(&bytes).unwrap_or_else(|| panic!("{zeroes} zeroes"));
            assert_eq!(rows(&session), ["one", "two", "three"], "{zeroes} zeroes");
            assert!(session.get("role").is_none(), "keys of a row are none of the session");
            assert_eq!(session.len(List::ToolCalls), 1, "{zeroes} zeroes");
        }
    }
}

#[test]
fn a_damaged_key_does_not_hide_the_rows() {
    for text in spellings() {
        for damage in ["messbges\": [", "messages\"; [", "messages\": {", "messages: [", "m\u{1}ssages\": ["] {
            let bytes = text.replacen("messages\": [", damage, 1).into_bytes();
            let session = salvaged(&bytes).unwrap_or_else(|| panic!("{damage}"));
            assert_eq!(rows(&session), ["one", "two", "three"], "{damage}");
        }
    }
}

#[test]
fn what_other_programs_write_as_numbers_costs_no_row() {
    let text =
        spellings()[0].replace("\"tid\": \"t\"", "\"cost\": NaN, \"most\": -Infinity, \"said\": \"NaN \\\" NaN\"");
    let session = salvaged(text.as_bytes()).unwrap();
    assert_eq!(session.item(List::ToolCalls, 0).unwrap().matches("null").count(), 2);
    assert_eq!(session.item(List::ToolCalls, 0).unwrap().matches("NaN").count(), 2);
    assert_eq!(rows(&session), ["one", "two", "three"]);
}

#[test]
fn a_document_that_stands_there_twice_counts_once() {
    for text in spellings() {
        let session = salvaged(format!("{text}{text}").as_bytes()).unwrap();
        assert_eq!(rows(&session), ["one", "two", "three"]);
    }
}

#[test]
fn a_part_of_a_damaged_row_is_no_row() {
    let text = spellings()[0].replace(
        "\"content\": \"two\"",
        "\"content\": \"two\"\u{1},\n      \"parts\": [\n        {\n          \"role\": \"tool\"\n        }\n      ] x",
    );
    let session = salvaged(text.as_bytes()).unwrap();
    assert_eq!(rows(&session), ["one", "three"]);
}

#[test]
fn rows_on_one_line_are_found_behind_a_damaged_one() {
    let text = spellings()[1].replace('\n', "").replacen("\"two\"", "\"two\"x", 1);
    let session = salvaged(text.as_bytes()).unwrap();
    assert_eq!(rows(&session), ["one", "three"]);
    assert_eq!(session.len(List::ToolCalls), 1);
}

#[test]
fn rows_of_another_list_are_no_messages() {
    let row = |at: u32| format!(r#"{{"role":"user","content":"{at}"}}"#);
    let list = |name: &str, rows: std::ops::Range<u32>| {
        format!("\"{name}\":[{}]", rows.map(row).collect::<Vec<_>>().join(","))
    };
    let text = format!(
        "{{\"title\":\"T\",{},{},{}}}",
        list("messages", 0..4),
        "\"tool_calls\":[]",
        list("context_messages", 0..4)
    );
    let end = text.find("],\"tool_calls\"").unwrap();
    for at in [end - 1, end] {
        let mut bytes = text.clone().into_bytes();
        bytes[at] = b'X';
        let session = salvaged(&bytes).unwrap();
        assert!(rows(&session).len() >= 3 && rows(&session).len() <= 4, "{at}: {:?}", rows(&session));
        assert_eq!(session.len(List::ContextMessages), 4, "{at}");
    }
}

#[test]
fn a_row_behind_a_part_of_another_is_a_row() {
    let row = |words: &str| format!("    {{\"role\":\"user\",\"content\":\"{words}\"}}");
    let text = format!(
        "{{\n  \"messages\": [\n{},\n    {{\"role\":\"u\u{fffd}, {},\n{}\n  ]\n}}",
        row("one"),
        row("two"),
        row("three")
    );
    assert_eq!(rows(&salvaged(text.as_bytes()).unwrap()), ["one", "two", "three"]);
}

#[test]
fn what_is_no_text_is_passed_wherever_it_stands() {
    for text in spellings().iter().chain([&spellings()[1].replace('\n', "")]) {
        for at in 0..text.len() {
            let mut bytes = text.clone().into_bytes();
            bytes[at..(at + 30).min(text.len())].fill(0);
            drop(salvaged(&bytes));
            bytes[at] = 0xff;
            drop(salvaged(&bytes));
        }
    }
}

#[test]
fn garbage_in_front_of_a_row_costs_no_other() {
    let text = &spellings()[0];
    let at = text.find("    {\n      \"role\": \"assistant\"").unwrap();
    for garbage in ["  ] {", "  X {", "x   {"] {
        let mut bytes = text.clone().into_bytes();
        bytes.splice(at..at + 5, garbage.bytes());
        let session = salvaged(&bytes).unwrap();
        assert_eq!(rows(&session), ["one", "two", "three"], "{garbage}");
    }
}

#[test]
fn brackets_without_end_are_not_read_for_ever() {
    let text = format!("{{\"messages\": [\n{}", "[[[[\n".repeat(100_000));
    assert!(salvaged(text.as_bytes()).is_none());
}

#[test]
fn nothing_is_made_of_nothing() {
    for bytes in [&b""[..], b"\0\0\0\0", b"[1, 2]", b"garbage", b"{"] {
        assert!(salvaged(bytes).is_none(), "{bytes:?}");
    }
}
