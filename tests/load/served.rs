//! The real server: a process of its own on a port of its own, with a data directory that goes when it goes.

use std::env;
use std::fs::{self, File};
use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use serde_json::Value;
use tempfile::TempDir;

/// A server at work.
pub(crate) struct Served {
    child: Child,
    pub(crate) address: SocketAddr,
    folder: TempDir,
}

impl Served {
    /// Starts a server in an empty data directory.
    pub(crate) fn start(args: &[&str]) -> Self {
        Self::start_in(tempfile::tempdir().unwrap(), args)
    }

    /// Starts a server in a folder whose `data` is perhaps there already.
    pub(crate) fn start_in(folder: TempDir, args: &[&str]) -> Self {
        let log = File::create(folder.path().join("log")).unwrap();
        // What was built with the test, unless the environment names another: a release build, to see what it can do.
        let program = env::var("LASTWORD_BINARY").unwrap_or_else(|_| env!("CARGO_BIN_EXE_lastword").to_owned());
        let mut command = Command::new(program);
        command.arg("--data").arg(folder.path().join("data")).args(["--json", "serve", "--listen", "127.0.0.1:0"]);
        command.args(["--log", "warn"]).args(args).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(log);
        let mut child = command.spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let said: Option<Value> = serde_json::from_str(&line).ok();
        let address = said.as_ref().and_then(|said| said["listening"].as_str()?.strip_prefix("http://"));
        let Some(address) = address else {
            panic!("the server did not start: {line}{}", fs::read_to_string(folder.path().join("log")).unwrap())
        };
        Served { address: address.parse().unwrap(), child, folder }
    }

    /// Bytes of memory that it has at the moment.
    pub(crate) fn memory(&self) -> usize {
        let status = fs::read_to_string(format!("/proc/{}/status", self.child.id())).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
        line.trim().trim_end_matches(" kB").parse::<usize>().unwrap() * 1024
    }

    /// Seconds of processor time that it has used.
    pub(crate) fn worked(&self) -> f64 {
        const TICKS_A_SECOND: f64 = 100.0;
        let stat = fs::read_to_string(format!("/proc/{}/stat", self.child.id())).unwrap();
        let numbers = stat.rsplit(')').next().unwrap().split_whitespace();
        numbers.skip(11).take(2).map(|ticks| ticks.parse::<f64>().unwrap()).sum::<f64>() / TICKS_A_SECOND
    }

    pub(crate) fn folder(&self) -> PathBuf {
        self.folder.path().to_owned()
    }

    /// What it wrote to its log.
    pub(crate) fn log(&self) -> String {
        fs::read_to_string(self.folder.path().join("log")).unwrap()
    }

    /// Whether it is still there.
    pub(crate) fn is_alive(&mut self) -> bool {
        self.child.try_wait().unwrap().is_none()
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
