//! Token files that change under a real server: by each way that editors and deployments use, and on SIGHUP.

use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::data::Data;
use crate::host::Host;
use crate::table::{Signal, wait_until};

const OLD: &str = "s3cret-old-0123456789abcdef";
const NEW: &str = "s3cret-new-0123456789abcdef";
/// Longer than a change takes to be seen.
const LOOKS: Duration = Duration::from_millis(2_500);

struct Served {
    host: Host,
    file: PathBuf,
}

/// A server with the old token in its file.
fn serve() -> Served {
    let data = Data::nowhere();
    let file = data.root().with_extension("tokens");
    write(&file, OLD);
    serve_file(data, file)
}

fn serve_file(data: Data, file: PathBuf) -> Served {
    let mut host = Host::on(data, &["--token-file", file.to_str().expect("a path is text"), "--log", "info"]);
    host.revive();
    Served { host, file }
}

fn write(path: &Path, text: &str) {
    fs::write(path, format!("{text}\n")).expect("it can be written");
    fs::set_permissions(path, fs::Permissions::from_mode(0o600)).expect("it is ours");
}

impl Served {
    /// Sends a request and gives the whole answer.
    fn send(&self, line: &str, headers: &str, body: &str) -> String {
        let mut stream = self.open(line, headers, body);
        let mut answer = String::new();
        stream.read_to_string(&mut answer).expect("the answer is text and comes to its end");
        answer
    }

    fn open(&self, line: &str, headers: &str, body: &str) -> TcpStream {
        let address = self.host.address();
        let mut stream = TcpStream::connect(&address).expect("the server listens");
        stream.set_read_timeout(Some(Duration::from_secs(20))).expect("a time limit can be set");
        let length = body.len();
        let head = format!("{line} HTTP/1.0\r\nhost: {address}\r\ncontent-length: {length}\r\n{headers}\r\n");
        stream.write_all(format!("{head}{body}").as_bytes()).expect("the server takes it");
        stream
    }

    fn status(&self, token: &str) -> u16 {
        status(&self.send("GET /v1/sessions", &bearer(token), ""))
    }

    /// Waits until the new token is taken and the old one is not.
    fn wait_for_new(&self, how: &str) {
        let begun = Instant::now();
        wait_until(how, || self.status(NEW) == 200);
        assert!(begun.elapsed() < Duration::from_secs(6), "{how} took {:?}", begun.elapsed());
        assert_eq!(self.status(OLD), 401, "{how}");
    }

    fn ticket(&self, token: &str, path: &str) -> String {
        let headers = format!("{}content-type: application/json\r\n", bearer(token));
        let answer = self.send("POST /v1/tickets", &headers, &format!(r#"{{"path":"{path}"}}"#));
        let body = answer.split("\r\n\r\n").nth(1).expect("it has a body");
        let issued: Value = serde_json::from_str(body).expect("it is JSON");
        issued["ticket"].as_str().expect("it has a ticket").to_owned()
    }

    fn cookie(&self, token: &str) -> String {
        let form = "content-type: application/x-www-form-urlencoded\r\n";
        let answer = self.send("POST /login", form, &format!("token={token}"));
        let set = answer.lines().find_map(|line| line.strip_prefix("set-cookie: ")).expect("it sets a cookie");
        set.split(';').next().expect("a cookie has a value").to_owned()
    }

    /// Ends the server, whose log never holds a token.
    fn stop(mut self) -> String {
        let ended = self.host.stop();
        assert!(!ended.stderr.contains("s3cret"), "{}", ended.stderr);
        ended.stderr
    }
}

fn bearer(token: &str) -> String {
    format!("authorization: Bearer {token}\r\n")
}

fn status(answer: &str) -> u16 {
    answer.split(' ').nth(1).and_then(|status| status.parse().ok()).expect("an answer has a status")
}

#[test]
fn a_token_file_may_be_written_replaced_and_swapped_behind_a_link() {
    let served = serve();
    assert_eq!((served.status(OLD), served.status(NEW)), (200, 401));
    write(&served.file, NEW);
    served.wait_for_new("a file that was written");
    served.stop();

    let served = serve();
    let fresh = served.file.with_extension("fresh");
    write(&fresh, NEW);
    fs::rename(&fresh, &served.file).expect("it can be renamed");
    served.wait_for_new("a file that was replaced");
    served.stop();

    // As Kubernetes does: the file is a link through a link to a directory, and that link is swapped.
    let data = Data::nowhere();
    let home = data.root().with_extension("secrets");
    for (version, token) in [("v1", OLD), ("v2", NEW)] {
        fs::create_dir_all(home.join(version)).expect("it can be created");
        write(&home.join(version).join("tokens"), token);
    }
    let link = |to: &str, at: &str| std::os::unix::fs::symlink(to, home.join(at)).expect("it can be linked");
    link("v1", "..data");
    link("..data/tokens", "tokens");
    let served = serve_file(data, home.join("tokens"));
    link("v2", "..data_tmp");
    fs::rename(home.join("..data_tmp"), home.join("..data")).expect("it can be renamed");
    served.wait_for_new("a link that was swapped");
    served.stop();
}

#[test]
fn a_token_file_that_cannot_be_used_changes_nothing_and_is_reported_once() {
    let served = serve();
    let reports = |log: &str| log.lines().filter(|line| line.contains("the tokens that were read before stay")).count();
    write(&served.file, &format!("{NEW} s3cret is not a token"));
    std::thread::sleep(LOOKS);
    assert_eq!((served.status(OLD), served.status(NEW)), (200, 401), "a bad file");
    fs::write(&served.file, "").expect("it can be written");
    std::thread::sleep(LOOKS);
    assert_eq!(served.status(OLD), 200, "an empty file");
    fs::remove_file(&served.file).expect("it can be removed");
    std::thread::sleep(LOOKS);
    assert_eq!(served.status(OLD), 200, "no file");
    served.host.signal(Signal::HUP);
    std::thread::sleep(Duration::from_millis(300));
    assert_eq!(served.status(OLD), 200, "no file, and a signal");
    write(&served.file, NEW);
    served.wait_for_new("a file that is there again");
    write(&served.file, "short");
    wait_until("a short token is taken", || served.status("short") == 200);
    let log = served.stop();
    assert_eq!(reports(&log), 4, "{log}");
    assert!(log.contains("line 1") && log.contains("no token in it") && log.contains("No such file"), "{log}");
    assert!(log.contains("short enough to be guessed"), "{log}");
}

#[test]
fn a_pipe_in_the_place_of_the_token_file_is_not_waited_for() {
    let served = serve();
    fs::remove_file(&served.file).expect("it can be removed");
    let made = std::process::Command::new("mkfifo").arg(&served.file).status();
    assert!(made.expect("mkfifo is there").success());
    std::thread::sleep(LOOKS);
    assert_eq!(served.status(OLD), 200, "a pipe");
    fs::remove_file(&served.file).expect("it can be removed");
    write(&served.file, NEW);
    served.wait_for_new("a file in the place of the pipe");
    let log = served.stop();
    assert_eq!(log.matches("it is a pipe or a directory").count(), 1, "{log}");
}

#[test]
fn a_signal_has_the_file_read_again_whatever_it_looks_like() {
    let served = serve();
    let written = fs::metadata(&served.file).and_then(|file| file.modified()).expect("it has a time");
    // The same size, inode and time of writing.
    write(&served.file, NEW);
    let file = fs::File::options().write(true).open(&served.file).expect("it can be opened");
    file.set_modified(written).expect("its time can be set");
    served.wait_for_new("a change that hides its time");
    std::thread::sleep(LOOKS);
    served.host.signal(Signal::HUP);
    std::thread::sleep(LOOKS);
    assert!(served.host.is_alive());
    let log = served.stop();
    assert_eq!(log.matches("the token file was read again").count(), 2, "{log}");
    // Without a token file a signal does nothing, as ever.
    let mut host = Host::start(&["--log", "warn"]);
    host.signal(Signal::HUP);
    std::thread::sleep(Duration::from_millis(300));
    assert!(host.is_alive());
    host.stop();
}

#[test]
fn streams_of_a_token_that_left_the_file_end() {
    let served = serve();
    let ticket = served.ticket(OLD, "/v1/events");
    let cookie = format!("cookie: {}\r\n", served.cookie(OLD));
    let streams = [
        ("a token's", served.open("GET /v1/events", &bearer(OLD), "")),
        ("a ticket's", served.open(&format!("GET /v1/events?ticket={ticket}"), "", "")),
        ("a cookie's", served.open("GET /v1/events", &cookie, "")),
    ];
    assert_eq!(status(&served.send(&format!("GET /metrics?ticket={ticket}"), "", "")), 401);
    write(&served.file, NEW);
    for (whose, mut stream) in streams {
        let mut text = String::new();
        stream.read_to_string(&mut text).unwrap_or_else(|cause| panic!("{whose} stream does not end: {cause}"));
        assert!(text.starts_with("HTTP/1.0 200") && text.contains("snapshot"), "{whose}: {text}");
    }
    assert_eq!(status(&served.send(&format!("GET /v1/events?ticket={ticket}"), "", "")), 401);
    assert_eq!(status(&served.send("GET /v1/sessions", &cookie, "")), 401);
    let log = served.stop();
    assert!(!log.contains(&ticket) && !log.contains(&cookie), "{log}");
}

#[test]
fn tickets_and_logins_outlive_a_kill() {
    let mut served = serve();
    let ticket = served.ticket(OLD, "/v1/sessions");
    let cookie = format!("cookie: {}\r\n", served.cookie(OLD));
    let both = |served: &Served| {
        let by_ticket = served.send(&format!("GET /v1/sessions?ticket={ticket}"), "", "");
        (status(&by_ticket), status(&served.send("GET /metrics", &cookie, "")))
    };
    assert_eq!(both(&served), (200, 200));
    served.host.kill();
    served.host.revive();
    assert_eq!(both(&served), (200, 200));
    served.host.kill();
    write(&served.file, NEW);
    served.host.revive();
    assert_eq!(both(&served), (401, 401));
    served.stop();
}
