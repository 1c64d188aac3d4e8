//! A server whose surroundings fail: few descriptors, a lock file that is removed, an fsync that fails, a disk that is full,
//! a reader in another process. Real sockets, real limits, strace to inject what a healthy machine does not do.

use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::data::Data;
use crate::host::{DEADLINE, Host};
use crate::process::Process;
use crate::small_disk::{Filler, on_a_small_disk};

/// An answer: its status and its body.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) body: String,
}

impl Answer {
    fn code(&self) -> String {
        let body: Value = serde_json::from_str(&self.body).unwrap_or_default();
        body["error"]["code"].as_str().unwrap_or_default().to_owned()
    }
}

fn connect(address: &str) -> TcpStream {
    let stream = TcpStream::connect(address).expect("the server listens");
    stream.set_read_timeout(Some(DEADLINE)).unwrap();
    stream
}

/// One request on a connection of its own.
pub(crate) fn ask(address: &str, method: &str, path: &str, body: &str) -> Answer {
    let mut stream = connect(address);
    let kind = if path.ends_with("/events") || path.contains("/events?") { "x-ndjson" } else { "json" };
    let head = format!("{method} {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n");
    let length = format!("content-type: application/{kind}\r\ncontent-length: {}\r\n\r\n{body}", body.len());
    stream.write_all((head + &length).as_bytes()).expect("the server takes a request");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("the server answers");
    let status = answer.split(' ').nth(1).and_then(|status| status.parse().ok()).unwrap_or(0);
    let body = answer.split_once("\r\n\r\n").map(|(_, body)| body.to_owned()).unwrap_or_default();
    // A body in chunks: each begins with its length on a line.
    let is_chunked = answer.to_ascii_lowercase().contains("transfer-encoding: chunked");
    let body = if is_chunked { body.lines().filter(|line| line.contains(['{', '[', '"'])).collect() } else { body };
    Answer { status, body }
}

/// A reader of a run's server-sent events.
struct Listener {
    stream: TcpStream,
    seen: String,
}

impl Listener {
    fn of(address: &str, session: &str, run: &str) -> Self {
        let mut stream = connect(address);
        let path = format!("/v1/sessions/{session}/runs/{run}/events");
        let head = format!("GET {path} HTTP/1.1\r\nhost: localhost\r\naccept: text/event-stream\r\n\r\n");
        stream.write_all(head.as_bytes()).expect("the server takes a request");
        Listener { stream, seen: String::new() }
    }

    /// Everything that comes until the text is there, or the time is up.
    fn until(&mut self, text: &str, limit: Duration) -> &str {
        let deadline = Instant::now() + limit;
        let mut buffer = [0; 4096];
        while !self.seen.contains(text) && Instant::now() < deadline {
            self.stream.set_read_timeout(Some(Duration::from_millis(50))).unwrap();
            match self.stream.read(&mut buffer) {
                Ok(0) => break,
                Ok(len) => self.seen.push_str(&String::from_utf8_lossy(&buffer[..len])),
                Err(_) => {}
            }
        }
        &self.seen
    }

    fn status(&mut self) -> u16 {
        self.until("\r\n\r\n", DEADLINE);
        self.seen.split(' ').nth(1).and_then(|status| status.parse().ok()).unwrap_or(0)
    }
}

fn token(text: &str) -> String {
    json!({"event": "token", "payload": {"text": text}}).to_string() + "\n"
}

const DONE: &str = "{\"event\":\"done\"}\n";

/// A run of an outside producer, in a session of its own.
fn begin(address: &str, name: &str) -> Answer {
    let created = ask(address, "POST", "/v1/sessions", &json!({"session_id": name}).to_string());
    assert_eq!(created.status, 201, "{created:?}");
    let turn = json!({"message": "hi", "run_id": "r", "lease_seconds": 600}).to_string();
    ask(address, "POST", &format!("/v1/sessions/{name}/runs"), &turn)
}

fn append(address: &str, name: &str, lines: &str) -> Answer {
    ask(address, "POST", &format!("/v1/sessions/{name}/runs/r/events"), lines)
}

/// Has system calls of a process fail, for as long as this lives.
struct Injection {
    _strace: Process,
}

impl Injection {
    fn on(process: u32, what: &str) -> Self {
        let mut strace = Command::new("strace");
        strace.args(["-f", "-qq", "-o", "/dev/null", "-e", what, "-p", &process.to_string()]);
        let injection = Injection { _strace: Process::start(strace) };
        let deadline = Instant::now() + DEADLINE;
        let is_traced = || {
            let status = fs::read_to_string(format!("/proc/{process}/status")).unwrap_or_default();
            status.lines().any(|line| line.starts_with("TracerPid:") && !line.ends_with("\t0"))
        };
        while !is_traced() {
            assert!(Instant::now() < deadline, "strace does not attach: is ptrace allowed here?");
            std::thread::sleep(Duration::from_millis(5));
        }
        // The other threads follow.
        std::thread::sleep(Duration::from_millis(100));
        injection
    }
}

fn host_with_few_files(limit: usize) -> Host {
    let mut host = Host::on(Data::nowhere(), &[]);
    let inner = host.command();
    let mut command = Command::new("sh");
    command.args(["-c", &format!("ulimit -n {limit} && exec \"$@\""), "sh"]).arg(inner.get_program());
    command.args(inner.get_args());
    host.begin_as(command);
    host.wait_until_it_listens();
    host
}

/// 115 runs and 125 listeners under `ulimit -n 256`, and a server that goes on.
#[test]
fn few_descriptors_stop_nothing_for_good() {
    const LIMIT: usize = 256;
    let mut host = host_with_few_files(LIMIT);
    let address = host.address();
    let names: Vec<String> = (0..115).map(|number| format!("s{number}")).collect();
    for name in &names {
        let begun = begin(&address, name);
        assert_eq!(begun.status, 202, "{begun:?}");
        let appended = append(&address, name, &token("one "));
        assert_eq!(appended.status, 200, "{appended:?}");
    }
    let mut listeners: Vec<Listener> =
        (0..125).map(|number| Listener::of(&address, &names[number % names.len()], "r")).collect();
    let served = listeners.iter_mut().map(Listener::status).filter(|status| *status == 200).count();
    assert!((40..125).contains(&served), "{served} of 125 are served, and the others are told to come again");
    let open_files = fs::read_dir(format!("/proc/{}/fd", host.id())).unwrap().count();
    assert!(open_files < LIMIT - 16, "{open_files} files are open");
    // While they listen, requests are answered.
    for name in &names {
        let appended = append(&address, name, &token("two "));
        assert!(matches!(appended.status, 200 | 503), "{appended:?}");
    }
    assert_eq!(ask(&address, "GET", "/readyz", "").status, 200);
    drop(listeners);
    for name in &names {
        let deadline = Instant::now() + DEADLINE;
        while append(&address, name, DONE).status == 503 {
            assert!(Instant::now() < deadline, "{name} cannot be ended after the listeners left");
        }
        let session = ask(&address, "GET", &format!("/v1/sessions/{name}"), "");
        assert!(session.status == 200 && session.body.contains("one"), "{session:?}");
    }
    assert_eq!(begin(&address, "another").status, 202);
    assert_eq!(ask(&address, "GET", "/readyz", "").status, 200);
    host.stop();
}

/// The limit is lowered under a server at work, so that it can open nothing at all, and raised again.
#[test]
fn descriptors_that_run_out_for_a_while_are_a_refusal_for_a_while() {
    let mut host = Host::start(&[]);
    let address = host.address();
    assert_eq!(begin(&address, "s").status, 202);
    assert_eq!(append(&address, "s", &token("one ")).status, 200);
    let held = connect(&address);
    let set_limit = |limit: &str| {
        let status =
            Command::new("prlimit").args(["--pid", &host.id().to_string(), &format!("--nofile={limit}")]).status();
        assert!(status.expect("prlimit is there").success());
    };
    let open_files = fs::read_dir(format!("/proc/{}/fd", host.id())).unwrap().count();
    set_limit(&format!("{}:4096", open_files + 1));
    let mut stream = held;
    let body = json!({"session_id": "t"}).to_string();
    for _ in 0..5 {
        let request = format!(
            "POST /v1/sessions HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
            body.len()
        );
        stream.write_all(request.as_bytes()).unwrap();
        let mut answer = [0; 4096];
        let len = stream.read(&mut answer).unwrap();
        let answer = String::from_utf8_lossy(&answer[..len]).into_owned();
        let status: u16 = answer.split(' ').nth(1).and_then(|status| status.parse().ok()).unwrap();
        assert!(matches!(status, 201 | 409 | 503), "{answer}");
    }
    set_limit("4096:4096");
    let created = ask(&address, "POST", "/v1/sessions", &json!({"session_id": "u"}).to_string());
    assert_eq!(created.status, 201, "{created:?}");
    assert_eq!(append(&address, "s", DONE).status, 200);
    assert_eq!(ask(&address, "GET", "/readyz", "").status, 200);
    host.stop();
}

#[test]
fn a_server_whose_lock_file_was_removed_stops_before_it_writes_beside_another() {
    let host = Host::start(&[]);
    let address = host.address();
    assert_eq!(begin(&address, "s").status, 202);
    fs::remove_file(host.data.root().join("_lock")).unwrap();
    host.data.must(&["new", "--id", "second"]);
    let deadline = Instant::now() + DEADLINE;
    let mut ready = ask(&address, "GET", "/readyz", "");
    while ready.status == 200 {
        assert!(Instant::now() < deadline, "an idle server does not notice");
        std::thread::sleep(Duration::from_millis(50));
        ready = ask(&address, "GET", "/readyz", "");
    }
    assert_eq!((ready.status, ready.code().as_str()), (503, "stopped"));
    assert!(ready.body.contains("lock"), "{ready:?}");
    let before = fs::read(host.data.root().join("_run_journal/s/r.jsonl")).unwrap();
    let refused = append(&address, "s", &token("one "));
    assert_eq!((refused.status, refused.code().as_str()), (503, "stopped"));
    assert_eq!(fs::read(host.data.root().join("_run_journal/s/r.jsonl")).unwrap(), before);
    let created = ask(&address, "POST", "/v1/sessions", &json!({"session_id": "third"}).to_string());
    assert_eq!(created.status, 503, "{created:?}");
    host.data.must(&["new", "--id", "third"]);
}

/// The lock file is removed under a server at work, and another process appends to the same run at once: it begins when the
/// server has stopped, so that neither writes over what the other was acknowledged.
#[test]
fn a_writer_that_comes_after_the_lock_file_was_removed_waits_until_the_last_one_has_stopped() {
    let copy = |lock: &Path| {
        fs::copy(lock, lock.with_extension("copy")).unwrap();
        fs::rename(lock.with_extension("copy"), lock).unwrap();
    };
    take_the_lock_file_away(&[], |lock| fs::remove_file(lock).unwrap());
    // Its commit thread would wake up in seconds.
    take_the_lock_file_away(&["--sync-within-ms", "8000"], |lock| fs::remove_file(lock).unwrap());
    // As a backup that is restored, or a tool that writes files anew.
    take_the_lock_file_away(&["--sync-within-ms", "0"], copy);
}

fn take_the_lock_file_away(args: &[&str], take: impl Fn(&Path)) {
    let host = Host::start(args);
    let address = host.address();
    assert_eq!(begin(&address, "s").status, 202);
    let mut acknowledged = Vec::new();
    let append_next = |acknowledged: &mut Vec<String>| {
        let text = format!("server {} ", acknowledged.len());
        let answer = append(&address, "s", &token(&text));
        acknowledged.extend((answer.status == 200).then_some(text));
        answer.status
    };
    while acknowledged.len() < 20 {
        append_next(&mut acknowledged);
    }
    take(&host.data.root().join("_lock"));
    let mut other = host.data.start(&["append", "s", "r"]);
    (0..20).for_each(|number| other.send(token(&format!("other {number} ")).trim()));
    let deadline = Instant::now() + DEADLINE;
    while append_next(&mut acknowledged) == 200 {
        assert!(Instant::now() < deadline, "the server does not stop");
    }
    for number in 0..20 {
        assert!(other.next_line().is_some_and(|line| line.starts_with("{\"seq\":")), "{}", other.end().stderr);
        acknowledged.push(format!("other {number} "));
    }
    assert_eq!(other.end().code(), Some(0));
    let shown = host.data.must(&["tail", "s", "r"]).lines.concat();
    for text in &acknowledged {
        assert!(shown.contains(&format!("\"{text}\"")), "{args:?}: {text:?} was acknowledged, and is gone");
    }
}

#[test]
fn an_end_whose_fsync_failed_is_shown_to_no_follower() {
    for durability in ["buffered", "durable"] {
        let host = Host::start(&["--durability", durability]);
        let address = host.address();
        assert_eq!(begin(&address, "s").status, 202);
        assert_eq!(append(&address, "s", &token("one ")).status, 200);
        let mut follower = Listener::of(&address, "s", "r");
        assert!(follower.until("one ", DEADLINE).contains("one "));
        let injection = Injection::on(host.id(), "inject=fdatasync,fsync:error=EIO");
        let refused = append(&address, "s", DONE);
        assert!(refused.status >= 500, "{durability}: {refused:?}");
        drop(injection);
        let seen = follower.until("done", Duration::from_secs(3)).to_owned();
        assert!(!seen.contains("event: done") && !seen.contains("event: end"), "{durability}: {seen}");
        let mut late = Listener::of(&address, "s", "r");
        let seen = late.until("event: done", Duration::from_secs(1)).to_owned();
        assert!(seen.contains("one ") && !seen.contains("event: done"), "{durability}: {seen}");
        assert_eq!(ask(&address, "GET", "/readyz", "").status, 503);
    }
}

/// `tail` beside a durable server syncs what it shows, and shows nothing if it cannot.
#[test]
fn a_reader_in_another_process_shows_only_what_it_has_synced() {
    let tail = ["tail", "s", "r"];
    let syncs = |host: &Host, inject: &[&str]| {
        let log = host.data.root().with_extension("strace");
        let inner = host.data.command(&tail);
        let mut strace = Command::new("strace");
        strace.args(["-f", "-qq", "-e", "trace=fdatasync", "-o"]).arg(&log).args(inject);
        strace.arg(inner.get_program()).args(inner.get_args());
        let ended = Process::start(strace).end();
        let text = fs::read_to_string(&log).unwrap_or_default();
        (ended, text.lines().filter(|line| line.contains("fdatasync")).count())
    };
    for (durability, expected) in [("durable", true), ("buffered", false)] {
        let host = Host::start(&["--durability", durability]);
        let address = host.address();
        assert_eq!(begin(&address, "s").status, 202);
        assert_eq!(append(&address, "s", &token("one ")).status, 200);
        let (ended, count) = syncs(&host, &[]);
        assert_eq!((ended.code(), ended.lines.len()), (Some(0), 1), "{}", ended.stderr);
        assert_eq!(count > 0, expected, "{durability}: {count} calls of fdatasync");
        if expected {
            let (ended, _) = syncs(&host, &["-e", "inject=fdatasync:error=EIO"]);
            assert_eq!((ended.code(), ended.lines.len()), (Some(4), 0), "{:?}", ended.lines);
            assert!(ended.stderr.contains("sync"), "{}", ended.stderr);
        }
    }
}

/// A command whose commit thread cannot be started says so, and every event is durable all the same.
#[test]
fn without_its_commit_thread_a_command_reports_it_and_goes_on() {
    let data = Data::with_turn();
    let inner = data.command(&["append", "trip", "r1"]);
    let mut strace = Command::new("strace");
    strace.args(["-f", "-qq", "-o", "/dev/null", "-e", "inject=clone3,clone:error=EAGAIN"]);
    strace.arg(inner.get_program()).args(inner.get_args());
    let mut process = Process::start(strace);
    process.send(token("one ").trim());
    assert_eq!(process.next_line().as_deref(), Some("{\"seq\":1}"));
    process.send(token("two ").trim());
    assert_eq!(process.next_line().as_deref(), Some("{\"seq\":2}"));
    let ended = process.end();
    assert_eq!(ended.code(), Some(0), "{}", ended.stderr);
    assert!(ended.stderr.contains("could not be started"), "{}", ended.stderr);
    assert_eq!(data.sound_tail().len(), 2);
}

/// `done` on a disk without room for the answer: the producer is told, followers wait, and with room all of it is there.
#[test]
fn an_answer_for_which_there_is_no_room_is_shown_when_there_is() {
    on_a_small_disk("storage::an_answer_for_which_there_is_no_room_is_shown_when_there_is", "6m", |disk| {
        let mut host = Host::on(Data::at(disk.join("data"), tempfile::tempdir().unwrap()), &["--sync-within-ms", "0"]);
        host.revive();
        let address = host.address();
        assert_eq!(begin(&address, "s").status, 202);
        assert_eq!(append(&address, "s", &token(&"word ".repeat(20_000))).status, 200);
        let mut follower = Listener::of(&address, "s", "r");
        follower.until("word word", DEADLINE);
        let tree = || listing(host.data.root());
        let filler = Filler::of_everything(disk);
        // The journal's last page has room for the end; the answer has none.
        let refused = append(&address, "s", DONE);
        assert_eq!((refused.status, refused.code().as_str()), (507, "no_space"), "{refused:?}");
        let seen = follower.until("event: end", Duration::from_secs(2)).to_owned();
        assert!(!seen.contains("event: end"), "a follower was shown the end of an answer that is not saved");
        let session = ask(&address, "GET", "/v1/sessions/s", "");
        assert_eq!(session.status, 200, "a read shows what there is: {session:?}");
        let before = tree();
        let created = ask(&address, "POST", "/v1/sessions", &json!({"session_id": "t"}).to_string());
        assert_eq!(created.status, 507, "{created:?}");
        assert_eq!(tree(), before, "a refused session leaves nothing");
        drop(filler);
        let session = ask(&address, "GET", "/v1/sessions/s", "");
        assert!(session.body.contains("word word") && session.body.contains("\"pending_user_message\": null"));
        let seen = follower.until("event: end", DEADLINE).to_owned();
        assert!(seen.contains("event: done") && seen.contains("event: end"), "the follower is told after all");
        host.stop();
    });
}

/// A turn that is refused for lack of room leaves nothing, and `check` finds nothing.
#[test]
fn a_turn_that_is_refused_for_lack_of_room_leaves_nothing() {
    on_a_small_disk("storage::a_turn_that_is_refused_for_lack_of_room_leaves_nothing", "6m", |disk| {
        let mut host = Host::on(Data::at(disk.join("data"), tempfile::tempdir().unwrap()), &[]);
        host.revive();
        let address = host.address();
        for name in ["s", "t"] {
            assert_eq!(begin(&address, name).status, 202);
            assert_eq!(append(&address, name, &(token("one ") + DONE)).status, 200);
        }
        let before = listing(host.data.root());
        let filler = Filler::of_everything(disk);
        for _ in 0..3 {
            let turn = json!({"message": "x".repeat(9_000), "run_id": "r2", "lease_seconds": 600}).to_string();
            let refused = ask(&address, "POST", "/v1/sessions/s/runs", &turn);
            assert_eq!((refused.status, refused.code().as_str()), (507, "no_space"), "{refused:?}");
        }
        assert_eq!(listing(host.data.root()), before);
        drop(filler);
        host.data.must(&["check"]);
        let turn = json!({"message": "again", "run_id": "r2", "lease_seconds": 600}).to_string();
        assert_eq!(ask(&address, "POST", "/v1/sessions/s/runs", &turn).status, 202);
        host.stop();
    });
}

/// The files and directories of the documents and journals.
fn listing(root: &Path) -> Vec<String> {
    let found = Command::new("find").arg(root).stdout(Stdio::piped()).output().expect("find is there");
    let text = String::from_utf8(found.stdout).unwrap();
    let mut names: Vec<String> = text.lines().filter(|line| !line.contains("_commit_log")).map(str::to_owned).collect();
    names.sort();
    names
}
