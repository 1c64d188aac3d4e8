//! How a server does not start, and how it says that it has: the directory, the port, tokens, systemd.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixDatagram;
use std::path::PathBuf;
use std::time::Duration;

use crate::data::Data;
use crate::host::{Host, runtime};
use crate::process::{Ended, Process};

/// A command that has to be refused, with this exit code.
fn refused(host: &Host, code: i32) -> Ended {
    let ended = Process::start(host.command()).end();
    assert_eq!(ended.code(), Some(code), "{}", ended.stderr);
    assert_eq!(ended.lines, [] as [&str; 0], "it says that it listens");
    ended
}

/// Another server on the same files.
fn beside(host: &Host, listen: Option<&str>) -> Process {
    let mut command = host.data.command(&["serve", "--listen", listen.unwrap_or("127.0.0.1:0")]);
    command.env_remove("LASTWORD_TOKEN_FILE");
    Process::start(command)
}

fn holder_of(host: &Host) -> String {
    let text = fs::read_to_string(host.data.root().join("_lock")).expect("the lock names its holder");
    let lock: serde_json::Value = serde_json::from_str(&text).expect("it is JSON");
    lock["pid"].to_string()
}

#[test]
fn the_second_server_of_a_directory_is_told_who_has_it() {
    let mut host = Host::start(&["--log", "warn"]);
    let second = beside(&host, None).end();
    assert_eq!(second.code(), Some(3), "{}", second.stderr);
    assert_eq!(second.lines, [] as [&str; 0]);
    let holder = holder_of(&host);
    assert!(second.stderr.contains(&holder), "who has it ({holder}) is not in: {}", second.stderr);
    runtime().block_on(async { host.client().is_ready().await }).expect("the first one is not harmed");
    host.stop();
    beside(&host, None);
}

#[test]
fn a_port_that_somebody_has_is_named() {
    let mut first = Host::start(&["--log", "warn"]);
    let data = Data::nowhere();
    let ended = data.ask(&["serve", "--listen", &first.address()]);
    assert_eq!((ended.code(), ended.lines.len()), (Some(3), 0), "{}", ended.stderr);
    let words = [first.address(), "in use".to_owned(), "another address".to_owned()];
    assert!(words.iter().all(|word| ended.stderr.contains(word)), "{}", ended.stderr);
    assert_eq!(ended.stderr.lines().count(), 1, "it is said once: {}", ended.stderr);
    first.stop();
}

#[test]
fn an_address_that_others_can_reach_needs_a_token() {
    for address in ["0.0.0.0:0", "[::]:0"] {
        let data = Data::nowhere();
        let ended = data.ask(&["serve", "--listen", address]);
        assert_eq!((ended.code(), ended.lines.len()), (Some(2), 0), "{address}: {}", ended.stderr);
        assert!(ended.stderr.contains("token"), "{}", ended.stderr);
    }
}

const TOKEN: &str = "s3cret-of-the-house-0123456789";

fn token_file(data: &Data, text: &str) -> PathBuf {
    let path = data.root().with_extension("tokens");
    fs::write(&path, text).expect("it can be written");
    fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).expect("it is ours");
    path
}

#[test]
fn a_bad_file_of_tokens_is_refused_and_not_repeated() {
    for (text, words) in [
        (format!("{TOKEN}\n{TOKEN} reads\n"), "line 2"),
        (format!("s3cret{}\n", "x".repeat(512)), "line 1"),
        (format!("# ours\n{TOKEN}\u{e9}\n"), "line 2"),
        (format!("{TOKEN} {TOKEN}\n"), "line 1"),
        ("# none\n\n".to_owned(), "no token"),
        (String::new(), "no token"),
    ] {
        let data = Data::nowhere();
        let file = token_file(&data, &text);
        let host = Host::on(data, &["--token-file", file.to_str().expect("a path is text")]);
        let ended = refused(&host, 2);
        assert!(ended.stderr.contains(words) && ended.stderr.contains("tokens"), "{}", ended.stderr);
        assert!(!ended.stderr.contains("s3cret"), "{}", ended.stderr);
    }
    let data = Data::nowhere();
    let file = data.root().with_extension("tokens");
    fs::write(&file, [b's', b'3', b'c', b'r', b'e', b't', 0xff, b'\n']).expect("it can be written");
    let ended = refused(&Host::on(data, &["--token-file", file.to_str().expect("a path is text")]), 2);
    assert!(!ended.stderr.contains("s3cret"), "{}", ended.stderr);
}

#[test]
fn with_a_file_of_tokens_the_command_line_needs_one_and_shows_none() {
    let data = Data::nowhere();
    let file = token_file(&data, &format!("# the page\n{TOKEN}\nanother-secret-of-the-house read-only\n"));
    let path = file.to_str().expect("a path is text").to_owned();
    let mut host = Host::on(data, &["--token-file", &path, "--log", "debug"]);
    host.revive();
    let ask = |more: &[&str]| {
        let url = host.url();
        let elsewhere = Data::nowhere();
        let ended = elsewhere.ask(&[&["--server", &url, "new", "--id", "s"], more].concat());
        assert!(!ended.stderr.contains(TOKEN), "{}", ended.stderr);
        ended.code()
    };
    assert_eq!(ask(&[]), Some(2), "without a token");
    assert_eq!(ask(&["--server-token-file", &path]), Some(0));
    assert_eq!(ask(&["--server-token-file", &path]), Some(1), "it is there already");
    let ended = host.stop();
    assert!(!ended.stderr.contains("s3cret") && !ended.stderr.contains("another-secret"), "{}", ended.stderr);
    // Whoever prints the configuration is shown where the tokens are, not what they are.
    let printed = Process::start({
        let mut command = host.command();
        command.arg("--print-config");
        command
    });
    let printed = printed.end();
    assert_eq!(printed.code(), Some(0), "{}", printed.stderr);
    let text = printed.lines.concat();
    assert!(text.contains(&path) && !text.contains("s3cret"), "{text}");
}

#[test]
fn systemd_is_told_when_it_is_ready_and_when_it_stops() {
    let data = Data::nowhere();
    let place = data.root().with_extension("notify");
    let socket = UnixDatagram::bind(&place).expect("a socket can be bound");
    socket.set_read_timeout(Some(Duration::from_secs(20))).expect("a time limit can be set");
    let told = || {
        let mut text = [0; 256];
        let bytes = socket.recv(&mut text).expect("systemd is told something");
        String::from_utf8_lossy(&text[..bytes]).trim().to_owned()
    };
    let path = place.to_str().expect("a path is text").to_owned();
    let mut host = Host::on(data, &["--log", "warn"]).with("NOTIFY_SOCKET", &path);
    host.begin_to_revive();
    assert_eq!(told(), "READY=1");
    runtime().block_on(async { host.client().is_ready().await }).expect("it is ready when it says so");
    host.wait_until_it_listens();
    host.stop();
    assert_eq!(told(), "STOPPING=1");
}
