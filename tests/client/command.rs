//! The command line through a server: what it prints and how it exits.

use std::process::Stdio;

use serde_json::{Value, json};
use tokio::io::AsyncWriteExt;
use tokio::process::Command;

use crate::journal::{Fate, Journal, end, frame, line, tell};
use crate::server::{Reply, Server, answer, json as json_answer, refuse, send, stream};

struct Printed {
    code: i32,
    out: String,
    err: String,
}

async fn lastword(server: &Server, args: &[&str], input: &str) -> Printed {
    let mut command = Command::new(env!("CARGO_BIN_EXE_lastword"));
    let url = server.base_url();
    command.args(["--server", &url, "--data", "/nonexistent/data"]).args(args).env_remove("LASTWORD_TOKEN_FILE");
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    // A command that needs no input may be gone before it gets any.
    let _ = stdin.write_all(input.as_bytes()).await;
    drop(stdin);
    let output = child.wait_with_output().await.unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    Printed { code: output.status.code().unwrap(), out: text(output.stdout), err: text(output.stderr) }
}

#[track_caller]
fn assert_printed(printed: &Printed, code: i32, out: &str) {
    assert_eq!((printed.code, printed.out.as_str()), (code, out), "{}", printed.err);
}

async fn check(reply: Reply, args: &[&str], code: i32, out: &str) {
    assert_printed(&lastword(&Server::start(vec![reply]).await, args, "").await, code, out);
}

#[tokio::test]
async fn new_and_turn_print_ids() {
    let created = || json_answer(201, r#"{"session_id":"s"}"#);
    check(created(), &["new", "--title", "T"], 0, "s\n").await;
    check(created(), &["new", "--json"], 0, "{\"session_id\":\"s\"}\n").await;
    check(refuse(409, "exists"), &["new", "--id", "s"], 1, "").await;
    check(created(), &["new", "--id", "no/id"], 2, "").await;
    let begun = || json_answer(202, r#"{"run_id":"r"}"#);
    check(begun(), &["turn", "s", "--message", "Hi"], 0, "r\n").await;
    check(begun(), &["turn", "s", "--message", "Hi", "--json"], 0, "{\"run_id\":\"r\"}\n").await;
    check(refuse(409, "run_in_progress"), &["turn", "s", "--message", "Hi"], 3, "").await;
    check(refuse(400, "invalid_argument"), &["turn", "s", "--message", ""], 2, "").await;
}

#[tokio::test]
async fn ls_goes_through_all_pages() {
    let summary =
        |id: &str| format!("{{\"session_id\":\"{id}\",\"title\":\"T {id}\",\"updated_at\":null,\"message_count\":2}}");
    let pages = || {
        let first = format!("{{\"sessions\":[{}],\"next_cursor\":\"x\"}}", summary("a"));
        let broken = r#"{"session_id":"c","error":{"code":"corrupt_json","message":"session c is damaged"}}"#;
        let second = format!("{{\"sessions\":[{},{broken}],\"next_cursor\":null}}", summary("b"));
        vec![json_answer(200, &first), json_answer(200, &second)]
    };
    let printed = lastword(&Server::start(pages()).await, &["ls", "--json"], "").await;
    assert_printed(&printed, 0, &format!("{}\n{}\n", summary("a"), summary("b")));
    assert_eq!(printed.err, "lastword: warning: session c is damaged\n");
    let printed = lastword(&Server::start(pages()).await, &["ls"], "").await;
    let row = |id: &str| format!("{id:<32}  {:<16}  {:>6}  T {id}\n", "-", 2);
    assert_printed(&printed, 0, &(row("a") + &row("b")));
}

#[tokio::test]
async fn show_prints_a_session_as_it_does_without_a_server() {
    let text = "{\"session_id\":\"s\",\"title\":\"T\",\"messages\":[{\"role\":\"user\",\"content\":\"Hi\"}],\"tool_calls\":[]}";
    let plain = "T (s, 1 messages)\n\nuser\n  Hi\n";
    check(json_answer(200, text), &["show", "s"], 0, plain).await;
    let printed = lastword(&Server::start(vec![json_answer(200, text)]).await, &["show", "s", "--json"], "").await;
    assert_eq!(serde_json::from_str::<Value>(&printed.out).unwrap(), serde_json::from_str::<Value>(text).unwrap());
    let context = "[{\"role\":\"user\",\"content\":\"Hi\"}]\n";
    check(json_answer(200, text), &["show", "s", "--context"], 0, context).await;
    let metadata = || json_answer(200, "{\"session_id\": \"s\",\n \"title\": \"T\", \"message_count\": 1}");
    check(metadata(), &["show", "s", "--metadata"], 0, "session_id: \"s\"\ntitle: \"T\"\nmessage_count: 1\n").await;
    let json = "{\"session_id\":\"s\",\"title\":\"T\",\"message_count\":1}\n";
    check(metadata(), &["show", "s", "--metadata", "--json"], 0, json).await;
    check(refuse(404, "not_found"), &["show", "s"], 1, "").await;
    check(json_answer(200, text), &["show", "no/id"], 1, "").await;
    check(refuse(503, "draining"), &["show", "s"], 3, "").await;
    check(refuse(500, "io_error"), &["show", "s"], 4, "").await;
    let printed = lastword(&Server::nobody().await, &["show", "s"], "").await;
    assert_printed(&printed, 4, "");
    assert!(printed.err.contains("could not be reached"), "{}", printed.err);
}

#[tokio::test]
async fn append_acknowledges_each_line_once_over_broken_connections() {
    let journal = Journal::default();
    let shared = journal.clone();
    let server = Server::with(move |seen, number| match number {
        1 => shared.take(seen, Fate::DoneUnheard),
        2 => shared.take(seen, Fate::Refused(503)),
        _ => shared.take(seen, Fate::Done),
    })
    .await;
    let input = "{\"event\":\"token\",\"payload\":{\"text\":\"a\"}}\n\n{\"event\":\"token\",\"payload\":{\"text\":\"b\"}}\n{\"event\":\"done\"}\nnonsense\n{\"event\":\"x\"}\n";
    let printed = lastword(&server, &["append", "s", "r", "--durability", "durable"], input).await;
    assert_printed(&printed, 2, "{\"seq\":1}\n{\"seq\":2}\n{\"seq\":3}\n");
    assert!(printed.err.contains("line 5 of the input was not appended"), "{}", printed.err);
    let token = |text: &str| json!({"event": "token", "payload": {"text": text}});
    assert_eq!(journal.lines(), [token("a"), token("b"), json!({"event": "done", "payload": {}})]);
    assert!(server.asked()[1].contains("durability=durable&expect_seq=1"), "{:?}", server.asked());
    check(refuse(404, "not_found"), &["append", "s", "r"], 1, "").await;
    check(refuse(409, "sealed"), &["append", "s", "r"], 1, "").await;
}

#[tokio::test]
async fn tail_prints_the_lines_of_the_journal() {
    let lines = format!("{}\n{}\n", line(1), line(2));
    check(answer(200, "application/x-ndjson", &lines), &["tail", "s", "r"], 0, &lines).await;
    check(refuse(404, "not_found"), &["tail", "s", "r"], 1, "").await;
    let server = Server::with(|seen, number| match number {
        0 => vec![stream(), send(&frame(1)), send(&frame(2)[..20])],
        _ => tell(seen, 2),
    })
    .await;
    assert_printed(&lastword(&server, &["tail", "s", "r", "--follow"], "").await, 0, &lines);
    let ahead = "event: snapshot\ndata: {\"reason\":\"ahead\"}\n\n";
    let ahead = vec![stream(), send(ahead), send(&frame(1)), send(&frame(2)), send(&end(2))];
    check(ahead, &["tail", "s", "r", "--follow", "--after", "7"], 0, "").await;
}

#[tokio::test]
async fn check_prints_the_servers_report_and_says_no_if_it_is_bad() {
    let summary = |damage: u8| {
        json!({"sessions": 2, "journals": 1, "journal_bytes": 5, "events": 3, "damage": damage, "warning": 0,
               "info": 0, "untold": 0, "live_writer": true})
    };
    let finding = json!({"code": "torn_tail", "severity": "damage", "session": "s", "run": null, "file": "f",
                         "offset": 3, "message": "torn", "repair": "cut"});
    let well = json!({"findings": [], "summary": summary(0)}).to_string();
    let words = "2 sessions, 1 journal (3 events, 5 bytes): all is well; a writer is at work, so what it is doing was not judged\n";
    check(json_answer(200, &well), &["check"], 0, words).await;
    let bad = json!({"findings": [finding], "summary": summary(1)}).to_string();
    let printed = lastword(&Server::start(vec![json_answer(200, &bad)]).await, &["check", "s", "--json"], "").await;
    assert_eq!(printed.code, 1);
    assert_eq!(serde_json::from_str::<Value>(&printed.out).unwrap(), serde_json::from_str::<Value>(&bad).unwrap());
}

fn event(seq: u64, name: &str, payload: &str) -> String {
    format!("id: r:{seq}\nevent: {name}\ndata: {{\"event\":\"{name}\",\"seq\":{seq},\"payload\":{payload}}}\n\n")
}

#[tokio::test]
async fn run_prints_the_answer_and_says_how_it_ended() {
    let args = ["run", "s", "--message", "Hi", "--runner", "demo"];
    let server = |state: &'static str, last: String| {
        let end = format!("event: end\ndata: {{\"run_id\":\"r\",\"last_seq\":2,\"state\":\"{state}\"}}\n\n");
        let told = vec![stream(), send(&event(1, "token", r#"{"text":"Hello"}"#)), send(&last), send(&end)];
        Server::start(vec![json_answer(202, r#"{"run_id":"r"}"#), told])
    };
    let done = server("completed", event(2, "done", "{}")).await;
    assert_printed(&lastword(&done, &args, "").await, 0, "Hello\n");
    let failed = server("errored", event(2, "apperror", r#"{"type":"stalled","message":"It took too long."}"#)).await;
    let printed = lastword(&failed, &args, "").await;
    assert_printed(&printed, 1, "Hello\n");
    assert_eq!(printed.err, "lastword: the answer failed (stalled): It took too long.\n");
    let stopped = server("interrupted-by-user", event(2, "cancel", "{}")).await;
    assert_eq!(lastword(&stopped, &args, "").await.err, "lastword: stopped; what had arrived is kept\n");
    check(refuse(409, "run_in_progress"), &args, 3, "").await;
    check(refuse(400, "invalid_argument"), &args, 2, "").await;
    // Without a name, whoever usually answers is asked.
    let unnamed = server("completed", event(2, "done", "{}")).await;
    assert_printed(&lastword(&unnamed, &args[..4], "").await, 0, "Hello\n");
}

#[cfg(unix)]
#[tokio::test]
async fn ctrl_c_asks_the_server_to_stop_and_the_end_is_seen() {
    use crate::server::Step;
    let server = Server::with(|seen, number| match seen.line() {
        "POST /v1/sessions/s/runs" => json_answer(202, r#"{"run_id":"r"}"#),
        "POST /v1/sessions/s/runs/r/stop" => json_answer(200, r#"{"run_id":"r","stopped":true}"#),
        _ if number == 1 => vec![stream(), send(&event(1, "token", r#"{"text":"Hel"}"#)), Step::Hang],
        _ => Vec::new(),
    })
    .await;
    let mut command = Command::new(env!("CARGO_BIN_EXE_lastword"));
    command.args(["--server", &server.base_url(), "run", "s", "--message", "Hi", "--runner", "demo"]);
    let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let id = child.id().unwrap().to_string();
    while server.seen().len() < 2 {
        crate::server::pause(0.02).await;
    }
    let interrupt = || std::process::Command::new("kill").args(["-INT", &id]).status().unwrap();
    interrupt();
    while server.seen().len() < 3 {
        crate::server::pause(0.02).await;
    }
    assert_eq!(server.asked()[2], "POST /v1/sessions/s/runs/r/stop");
    // The second one does not wait for an end that never comes.
    interrupt();
    let output = child.wait_with_output().await.unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(String::from_utf8(output.stderr).unwrap().contains("left before the end"));
}

#[tokio::test]
async fn what_works_on_a_directory_says_so() {
    for command in ["repair", "bench"] {
        let printed = lastword(&Server::nobody().await, &[command], "").await;
        assert_printed(&printed, 2, "");
        assert!(printed.err.contains("without --server"), "{}", printed.err);
    }
    let printed = lastword(&Server::nobody().await, &["--server", "nonsense", "ls"], "").await;
    assert_eq!(printed.code, 2);
}
