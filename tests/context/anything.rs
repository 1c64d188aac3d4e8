//! Sessions of any shape, garbage included.

use crate::seeds;
use crate::session::{session, valid_context};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;

/// Stands in reasoning and in markers only.
const SECRET: &str = "SECRET";

pub(crate) fn config(cases: u32) -> ProptestConfig {
    ProptestConfig { cases, ..seeds::config("context") }
}

/// JSON texts, because a value of a JSON library cannot hold everything that a file can.
fn leaf() -> BoxedStrategy<String> {
    let odd = [
        "null",
        "true",
        "false",
        "0",
        "1",
        "2",
        "-7",
        "1.5",
        "1e999",
        "[]",
        "{}",
        "\"\"",
        "\" \"",
        "\"\\n\"",
        "\"word\"",
        "\"word \\n\"",
        "\"\\ud800\"",
        "\"\\u0000\"",
        "\"\u{2028}\"",
        "\"\u{1f600}\"",
        "\"c1\"",
        "\"c2\"",
        "\"text\"",
        "\"tool_use\"",
        "\"tool_result\"",
        "\"image_url\"",
        "\"{}\"",
        "\"{\\\"a\\\":1}\"",
        "\"{\\\"a\\\"\"",
    ];
    select(odd.to_vec()).prop_map(str::to_owned).boxed()
}

fn list(item: impl Strategy<Value = String> + 'static) -> BoxedStrategy<String> {
    vec(item, 0..4).prop_map(|items| format!("[{}]", items.join(","))).boxed()
}

/// An object with some of these keys, some of them perhaps twice.
fn object(keys: Vec<(&'static str, BoxedStrategy<String>)>) -> BoxedStrategy<String> {
    let field = select(keys).prop_flat_map(|(key, value)| value.prop_map(move |value| format!("\"{key}\":{value}")));
    vec(field, 0..7).prop_map(|fields| format!("{{{}}}", fields.join(","))).boxed()
}

fn garbage() -> BoxedStrategy<String> {
    let keys = ["type", "text", "content", "id", "name", "url", "image_url", "role"];
    leaf()
        .prop_recursive(3, 20, 4, move |inner| {
            prop_oneof![list(inner.clone()), object(keys.map(|key| (key, inner.clone().boxed())).to_vec())]
        })
        .boxed()
}

fn mostly(usual: &[&'static str]) -> BoxedStrategy<String> {
    let usual: Vec<String> = usual.iter().map(|text| format!("\"{text}\"")).collect();
    prop_oneof![5 => select(usual), 1 => garbage()].boxed()
}

fn id() -> BoxedStrategy<String> {
    mostly(&[
        "c1",
        "c2",
        "c3",
        "journal-1",
        "",
        "c1-2",
        "odd id|",
        "an id that is much too long for any provider of them all",
    ])
}

fn part() -> BoxedStrategy<String> {
    let kinds = ["text", "tool_use", "tool_result", "image_url", "input_audio", "file", "image"];
    let thought = format!("{{\"type\":\"thinking\",\"thinking\":\"{SECRET}\",\"text\":\"{SECRET}\"}}");
    let url = prop_oneof![Just("{\"url\":\"data:x\"}".to_owned()), garbage()].boxed();
    let part = object(vec![
        ("type", mostly(&kinds)),
        ("text", mostly(&["a", "b "])),
        ("id", id()),
        ("tool_use_id", id()),
        ("name", mostly(&["ls", "fs.read"])),
        ("input", garbage()),
        ("content", garbage()),
        ("image_url", url),
        ("is_error", leaf()),
    ]);
    prop_oneof![6 => part, 1 => Just(thought), 1 => garbage()].boxed()
}

fn call() -> BoxedStrategy<String> {
    let function = object(vec![("name", mostly(&["ls", ""])), ("arguments", garbage())]);
    object(vec![("id", id()), ("type", mostly(&["function"])), ("function", function), ("name", leaf())])
}

fn row() -> BoxedStrategy<String> {
    let content = prop_oneof![3 => mostly(&["a", "b", " ", "long words"]), 1 => list(part()), 1 => part()].boxed();
    let rest = object(vec![
        ("tool_calls", prop_oneof![list(call()), garbage()].boxed()),
        ("tool_call_id", id()),
        ("attachments", prop_oneof![list(part()), garbage()].boxed()),
        ("reasoning", Just(format!("\"{SECRET}\"")).boxed()),
        ("_source", garbage()),
        ("timestamp", garbage()),
        ("is_error", leaf()),
    ]);
    let role = mostly(&["user", "assistant", "assistant", "tool", "system"]);
    let spoken = (role, content, rest).prop_map(|(role, content, rest)| {
        let rest = rest.strip_prefix('{').filter(|rest| *rest != "}").map_or("}".to_owned(), |rest| format!(",{rest}"));
        format!("{{\"role\":{role},\"content\":{content}{rest}")
    });
    let marker = format!("{{\"role\":\"assistant\",\"content\":\"{SECRET}\",\"_error\":true}}");
    prop_oneof![12 => spoken, 1 => Just(marker), 1 => garbage()].boxed()
}

fn card() -> BoxedStrategy<String> {
    let index = prop_oneof![(0..9_u32).prop_map(|at| at.to_string()), garbage()].boxed();
    let card = object(vec![
        ("assistant_msg_idx", index.clone()),
        ("assistant_msg_idx", index),
        ("name", mostly(&["ls"])),
        ("tid", id()),
        ("args", garbage()),
        ("preview", mostly(&["x"])),
        ("snippet", garbage()),
        ("done", leaf()),
        ("is_error", leaf()),
    ]);
    prop_oneof![9 => card, 1 => garbage()].boxed()
}

/// A list of a session: now and then something else.
fn rows(row: BoxedStrategy<String>, max: usize) -> BoxedStrategy<String> {
    let rows = vec(row, 0..max).prop_map(|rows| format!("[{}]", rows.join(",")));
    prop_oneof![20 => rows, 1 => garbage()].boxed()
}

fn any_session() -> impl Strategy<Value = String> {
    let shortened = prop_oneof![Just("[]".to_owned()), rows(row(), 8)];
    let pending = prop_oneof![Just("null".to_owned()), mostly(&["a", "b", "new"])];
    (rows(row(), 10), rows(card(), 8), shortened, pending, list(part())).prop_map(
        |(rows, cards, shortened, pending, attached)| {
            format!(
                "{{\"pending_user_message\":{pending},\"pending_attachments\":{attached},\"messages\":{rows},\
             \"tool_calls\":{cards},\"context_messages\":{shortened}}}"
            )
        },
    )
}

proptest! {
    #![proptest_config(config(500))]

    #[test]
    fn any_session_gives_a_conversation_that_providers_take(text in any_session()) {
        let context = valid_context(&session(&text)).to_string();
        prop_assert!(!context.contains(SECRET), "{context}");
    }

    /// What came out once comes out again: nothing is left to mend.
    #[test]
    fn a_conversation_that_was_shown_is_shown_again_unchanged(text in any_session()) {
        let shown = session(&text).context().to_json();
        let again = session(&format!("{{\"context_messages\":{shown}}}")).context().to_json();
        prop_assert_eq!(again, shown);
    }
}
