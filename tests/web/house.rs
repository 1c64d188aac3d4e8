//! A data directory, a server on it, and the scene that is played before it. The scene asks, line by line, for the
//! server to be killed and started; everything else it does by itself.

use std::fs;
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use tempfile::TempDir;

use crate::process::Process;

const LASTWORD: &str = env!("CARGO_BIN_EXE_lastword");
const SCRIPTS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/web/js");
const AGENT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/web/agent.sh");
const TOOLS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/web/tools.sh");

/// Times that a server may find its address taken, by a connection that had it for a moment.
const STARTS_MAX: u32 = 20;
const PAUSE: Duration = Duration::from_millis(100);

/// Where a scene takes place.
pub(crate) struct House {
    home: TempDir,
    address: String,
    /// Where a scene may serve an endpoint that speaks OpenAI's chat completions: the runner `model` asks there.
    endpoint: String,
    token_file: bool,
    /// The path that the server is reached under, without a slash at its end.
    base_path: &'static str,
    server: Option<Process>,
}

impl House {
    /// A server that lets everybody in.
    pub(crate) fn open() -> Self {
        Self::new(None, "")
    }

    /// A server under a path of its own.
    pub(crate) fn under(base_path: &'static str) -> Self {
        Self::new(None, base_path)
    }

    /// A server that wants one of these tokens, the lines of its token file.
    pub(crate) fn with_tokens(tokens: &str) -> Self {
        Self::new(Some(tokens), "")
    }

    fn new(tokens: Option<&str>, base_path: &'static str) -> Self {
        let home = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("the build directory can be written");
        let endpoint = free_address();
        write_private(&home.path().join("lastword.toml"), &runners(&endpoint));
        tokens.iter().for_each(|tokens| write_private(&home.path().join("tokens"), tokens));
        let address = "127.0.0.1:0".to_owned();
        let mut house = House { home, address, endpoint, token_file: tokens.is_some(), base_path, server: None };
        house.start_server();
        house
    }

    fn server_command(&self) -> Command {
        let mut command = Command::new(LASTWORD);
        command.arg("--data").arg(self.home.path().join("data")).args(["serve", "--listen", &self.address]);
        command.args(["--pace-ms", "10", "--retry-ms", "200", "--config"]).arg(self.home.path().join("lastword.toml"));
        if !self.base_path.is_empty() {
            command.args(["--base-path", self.base_path]);
        }
        if self.token_file {
            command.arg("--token-file").arg(self.home.path().join("tokens"));
        }
        command
    }

    /// Starts the server, from the second time on at the address that it had.
    fn start_server(&mut self) {
        for _ in 0..STARTS_MAX {
            let server = Process::start(self.server_command());
            if let Some(line) = server.next_line() {
                let address = line.strip_prefix("listening on http://").expect("a server tells where it listens");
                self.address = address.to_owned();
                self.server = Some(server);
                return;
            }
            let ended = server.end();
            assert!(ended.stderr.contains("in use"), "the server did not start: {}", ended.stderr);
            std::thread::sleep(PAUSE);
        }
        panic!("the address {} stays in use", self.address);
    }

    /// kill -9.
    fn kill_server(&mut self) -> String {
        let Some(mut server) = self.server.take() else { return String::new() };
        server.kill();
        server.end().stderr
    }

    /// Asks the server to end. It goes on until its runs have.
    fn drain_server(&self) {
        let id = self.server.as_ref().expect("a server is there").id();
        let id = rustix::process::Pid::from_raw(id.cast_signed()).expect("a child has an id");
        rustix::process::kill_process(id, rustix::process::Signal::TERM).expect("a child can be signalled");
    }

    fn write_tokens(&self, tokens: &str) {
        write_private(&self.home.path().join("tokens"), tokens);
    }

    /// Plays a scene to its end.
    pub(crate) fn play(&mut self, scene: &str, args: &[&str]) {
        let mut script = Process::start(self.script(scene, args));
        let mut has_passed = false;
        while let Some(line) = script.next_line() {
            match line.split_once(' ').unwrap_or((&line, "")) {
                ("ask", "kill") => drop(self.kill_server()),
                ("ask", "start") => self.start_server(),
                ("ask", "drain") => self.drain_server(),
                ("ask", request) if request.starts_with("tokens ") => {
                    self.write_tokens(&request["tokens ".len()..].replace(',', "\n"));
                }
                ("passed", name) => has_passed = name == scene,
                _ => eprintln!("{line}"),
            }
            if line.starts_with("ask ") {
                script.send(&line.replacen("ask", "done", 1));
            }
        }
        let ended = script.end();
        if !ended.status.success() || !has_passed {
            let log = self.kill_server();
            let tail: Vec<&str> = log.lines().rev().take(20).collect();
            let tail: Vec<&str> = tail.into_iter().rev().collect();
            panic!("{scene} {args:?} failed:\n{}\nthe server's last words:\n{}", ended.stderr, tail.join("\n"));
        }
    }

    fn script(&self, scene: &str, args: &[&str]) -> Command {
        let is_set_up = Path::new(SCRIPTS).join("node_modules").exists() && Path::new("/usr/bin/chromium").exists();
        assert!(is_set_up, "the scripts' packages, or the browser, are not there: .ci/setup installs them");
        let mut command = Command::new("node");
        command.current_dir(SCRIPTS).arg(format!("scenes/{scene}.mjs")).args(args);
        command.env("LASTWORD_BASE", format!("http://{}{}", self.address, self.base_path));
        command.env("LASTWORD_SCENE", scene);
        command.env("LASTWORD_SCENE_DATA", self.home.path().join("data"));
        command.env("LASTWORD_ENDPOINT", &self.endpoint);
        command
    }
}

/// Two commands, an endpoint of the scene's own, and a demo that takes its time.
fn runners(endpoint: &str) -> String {
    let command = |name: &str, script: &str| {
        format!("[runners.{name}]\nkind = \"command\"\ncommand = [\"/bin/sh\", {script:?}]\n")
    };
    let model = format!("[runners.model]\nkind = \"openai\"\nbase_url = \"http://{endpoint}/v1\"\nmodel = \"m-1\"\n");
    let slow = "[runners.slow]\nkind = \"demo\"\npace_ms = 400\n";
    command("agent", AGENT) + &command("tools", TOOLS) + &model + slow
}

/// An address that is free now.
fn free_address() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").expect("loopback has free ports");
    listener.local_addr().expect("a listener has an address").to_string()
}

fn write_private(path: &Path, text: &str) {
    fs::write(path, text).expect("the house can be written");
    fs::set_permissions(path, fs::Permissions::from_mode(0o600)).expect("the file is ours");
}
