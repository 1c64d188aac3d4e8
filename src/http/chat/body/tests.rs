//! The body scanner beside a parser that has the whole body, and bodies that are hostile.

use proptest::collection::vec;
use proptest::prelude::*;
use serde_json::value::RawValue;

use super::*;
use crate::limits::JSON_DEPTH_MAX;
use crate::model::Fields;

const MESSAGE_BYTES_MAX: usize = 10_000;

fn scan(pieces: &[&[u8]]) -> Result<ChatBody, BadBody> {
    let mut scanner = BodyScanner::new(MESSAGE_BYTES_MAX);
    pieces.iter().try_for_each(|piece| scanner.feed(piece))?;
    scanner.finish()
}

fn whole(body: &str) -> Result<ChatBody, BadBody> {
    ChatBody::parse(body, MESSAGE_BYTES_MAX)
}

/// The same by a parser that has the whole body.
fn by_serde(body: &[u8]) -> Option<Vec<Option<String>>> {
    let body = Fields::parse(std::str::from_utf8(body).ok()?)?;
    let read = |field: ChatField| {
        let value = body.get(field.key())?;
        match serde_json::from_str::<Vec<&RawValue>>(value) {
            Ok(list) if field == ChatField::Messages => Some(list.last().map_or("[]", |last| last.get()).to_owned()),
            _ => Some(value.to_owned()),
        }
    };
    let messages = body.get("messages").unwrap_or("null");
    (messages == "null" || messages.starts_with('[')).then(|| ChatField::ALL.into_iter().map(read).collect())
}

#[track_caller]
fn check_as_serde(body: &[u8], cuts: &[usize]) {
    let expected = by_serde(body);
    let mut cuts: Vec<usize> = cuts.iter().map(|cut| cut % (body.len() + 1)).collect();
    cuts.extend([0, body.len()]);
    cuts.sort_unstable();
    let pieces: Vec<&[u8]> = cuts.windows(2).map(|pair| &body[pair[0]..pair[1]]).collect();
    for pieces in [pieces, body.chunks(1).collect(), vec![body]] {
        let given = scan(&pieces).ok();
        let given = given.map(|body| body.fields.iter().map(|field| field.as_deref().map(str::to_owned)).collect());
        assert_eq!(given, expected, "{}", String::from_utf8_lossy(body));
    }
}

#[test]
fn the_last_message_is_kept_with_the_short_fields() {
    let body =
        whole(r#" {"id" : "c", "x":[{"id":"no"}], "messages":[ {"a":1}, 7 , {"b":[2]} ], "trigger":null} "#).unwrap();
    assert_eq!(body.get(ChatField::Id), Some(r#""c""#));
    assert_eq!(body.get(ChatField::Messages), Some(r#"{"b":[2]}"#));
    assert_eq!((body.get(ChatField::Trigger), body.get(ChatField::Runner)), (Some("null"), None));
}

#[test]
fn of_equal_keys_the_last_counts_and_keys_may_be_escaped() {
    let body = whole(r#"{"id":"a","messages":[1,2],"\u0069d":"b","messag\u0065s":[3],"ID":"c"}"#).unwrap();
    assert_eq!((body.get(ChatField::Id), body.get(ChatField::Messages)), (Some(r#""b""#), Some("3")));
    let body = whole(r#"{"messages":[1,2],"messages":[]}"#).unwrap();
    assert_eq!(body.get(ChatField::Messages), Some("[]"));
    let body = whole(r#"{"messages":[1,2],"messages":null}"#).unwrap();
    assert_eq!(body.get(ChatField::Messages), Some("null"));
    assert_eq!(whole(r#"{"messages":[1],"messages":"x"}"#), Err(BadBody::NoList));
    assert!(whole(r#"{"messages":"x","messages":[1]}"#).is_ok());
}

#[test]
fn what_is_not_json_is_refused_with_its_place() {
    for (body, why) in [
        ("", BadBody::Truncated { at: 0 }),
        (r#"{"id":"c""#, BadBody::Truncated { at: 9 }),
        (r#"{"id":"c"} x"#, BadBody::Syntax { at: 11 }),
        (r#"{"id":"c",}"#, BadBody::Syntax { at: 10 }),
        (r#"{"id":01}"#, BadBody::Syntax { at: 7 }),
        ("{\"id\":\"a\nb\"}", BadBody::Syntax { at: 8 }),
        ("[]", BadBody::NoObject),
        ("\"x\"", BadBody::NoObject),
        ("\u{feff}{}", BadBody::Syntax { at: 0 }),
    ] {
        assert_eq!(whole(body), Err(why), "{body}");
    }
}

#[test]
fn bad_utf8_is_refused_although_a_character_may_be_cut_anywhere() {
    check_as_serde("{\"id\":\"\u{10ffff}é\u{800}\",\"ü\":1}".as_bytes(), &[7, 8, 9, 10, 11]);
    let bad: [&[u8]; 8] = [
        b"\xff",
        b"\xc0\x80",
        b"\xe0\x80\x80",
        b"\xed\xa0\x80",
        b"\xf4\x90\x80\x80",
        b"\x80",
        b"\xe2\x82",
        b"\xf0\x9f\x98",
    ];
    for bad in bad {
        check_as_serde(&[b"{\"x\":\"", bad, b"\"}"].concat(), &[6, 7, 8]);
        check_as_serde(&[b"{\"", bad, b"\":1}"].concat(), &[2, 3, 4]);
        check_as_serde(&[b"{", bad, b"}"].concat(), &[1]);
    }
}

#[test]
fn nesting_is_bounded_and_costs_no_stack() {
    let nested = |depth: usize| format!("{{\"messages\":[{}{}]}}", "[".repeat(depth), "]".repeat(depth));
    assert!(whole(&nested(JSON_DEPTH_MAX - 2)).is_ok());
    assert!(matches!(whole(&nested(JSON_DEPTH_MAX - 1)), Err(BadBody::TooDeep { .. })));
    assert!(matches!(whole(&"{\"a\":".repeat(1_000_000)), Err(BadBody::TooDeep { line: 1 })));
    assert_eq!(whole(&format!("{{\n\"a\":\n{}", "[".repeat(JSON_DEPTH_MAX))), Err(BadBody::TooDeep { line: 3 }));
}

#[test]
fn only_the_last_message_and_the_short_fields_are_bounded() {
    let long = "x".repeat(MESSAGE_BYTES_MAX);
    let earlier = format!(r#"{{"messages":["{long}","short"]}}"#);
    assert_eq!(whole(&earlier).unwrap().get(ChatField::Messages), Some(r#""short""#));
    let last = format!(r#"{{"messages":["short","{long}"]}}"#);
    assert_eq!(whole(&last), Err(BadBody::TooLarge { key: "messages", max: MESSAGE_BYTES_MAX }));
    let message = format!(r#"{{"message":"{long}"}}"#);
    assert_eq!(whole(&message), Err(BadBody::TooLarge { key: "message", max: MESSAGE_BYTES_MAX }));
    let id = format!(r#"{{"id":"{}"}}"#, "x".repeat(CHAT_FIELD_BYTES_MAX));
    assert_eq!(whole(&id), Err(BadBody::TooLarge { key: "id", max: CHAT_FIELD_BYTES_MAX }));
    assert!(whole(&format!(r#"{{"{long}":"{long}"}}"#)).is_ok());
}

/// What a chat with pictures sends that has gone on for long.
#[test]
fn two_hundred_megabytes_of_earlier_messages_hold_no_more_than_one_of_them() {
    const PICTURE_BYTES: usize = 4 * 1024 * 1024;
    let picture = format!(r#"{{"role":"user","parts":[{{"type":"file","url":"{}"}}]}},"#, "A".repeat(PICTURE_BYTES));
    let mut scanner = BodyScanner::new(2 * PICTURE_BYTES);
    scanner.feed(br#"{"id":"c","messages":["#).unwrap();
    let (mut fed, mut held_max) = (0, 0);
    while fed < 200 * 1024 * 1024 {
        for piece in picture.as_bytes().chunks(64 * 1024) {
            scanner.feed(piece).unwrap();
            held_max = held_max.max(scanner.held_bytes());
        }
        fed += picture.len();
    }
    scanner.feed(br#"{"parts":[]}]}"#).unwrap();
    // A buffer that grows has at most twice the room that it needs.
    assert!(held_max <= 2 * picture.len(), "{held_max} bytes were held");
    assert_eq!(scanner.finish().unwrap().get(ChatField::Messages), Some(r#"{"parts":[]}"#));
}

/// Bodies of pieces that belong into one, in any order.
fn odd_body() -> impl Strategy<Value = Vec<u8>> {
    let text = prop_oneof![
        8 => r#"(\{|\[|\}|\]|,|:|"(id|messages|\\u0069d|x\\n|\\ud800|\\uZ)"| |\n|-?[0-9]{1,2}|1[.eE][+-]?[0-9]?|true|null|tru|"é€😀")"#,
        1 => ".{1,3}",
    ];
    let bytes = prop_oneof![30 => text.prop_map(String::into_bytes), 1 => vec(any::<u8>(), 1..3)];
    let inside = vec(bytes, 0..12).prop_map(|pieces| pieces.concat());
    (inside, any::<bool>()).prop_map(|(inside, is_bare)| match is_bare {
        true => inside,
        false => [b"{\"messages\":[", &inside[..], b"]}"].concat(),
    })
}

/// Bodies that are JSON objects.
fn good_body() -> impl Strategy<Value = Vec<u8>> {
    let leaf = prop_oneof![
        "-?(0|[1-9][0-9]{0,3})([.][0-9]{1,2})?([eE][+-]?[0-9]{1,2})?",
        Just("true".to_owned()),
        Just("null".to_owned()),
        ".{0,6}".prop_map(|text| serde_json::to_string(&text).unwrap()),
    ];
    let key = prop_oneof![
        "(id|messages|message|trigger|x)".prop_map(|key| format!("\"{key}\"")),
        Just(r#""\u0069d""#.to_owned())
    ];
    let object = move |value: BoxedStrategy<String>| {
        let key = key.clone();
        vec((key, value), 0..5).prop_map(|fields| {
            let fields: Vec<String> = fields.into_iter().map(|(key, value)| format!("{key} :\t{value}")).collect();
            format!("{{{}}}", fields.join(" , "))
        })
    };
    let inner = object.clone();
    let value = leaf.prop_recursive(4, 40, 5, move |value| {
        let list = vec(value.clone(), 0..5).prop_map(|items| format!("[ {} ]", items.join(",\r\n")));
        prop_oneof![list, inner(value.boxed())]
    });
    object(value.boxed()).prop_map(String::into_bytes)
}

proptest! {
    #![proptest_config(crate::seeds::config("chat_body"))]

    #[test]
    fn pieces_of_any_size_give_what_a_parser_of_the_whole_gives(body in good_body(), cuts in vec(any::<usize>(), 0..6)) {
        prop_assert!(serde_json::from_slice::<serde_json::Value>(&body).is_ok());
        check_as_serde(&body, &cuts);
    }

    #[test]
    fn what_a_parser_of_the_whole_refuses_is_refused(body in odd_body(), cuts in vec(any::<usize>(), 0..6)) {
        check_as_serde(&body, &cuts);
    }

    #[test]
    fn a_body_that_ends_too_early_is_refused(body in good_body(), at in any::<prop::sample::Index>()) {
        let cut = &body[..at.index(body.len())];
        check_as_serde(cut, &[]);
    }
}
