//! A child process with its pipes: fed, read line by line with a deadline, killed, and never left behind.

use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread::JoinHandle;
use std::time::Duration;

/// Far more than any answer takes; only a hang is longer.
const DEADLINE: Duration = Duration::from_secs(20);

/// A process at work.
pub(crate) struct Process {
    child: Child,
    input: Option<ChildStdin>,
    feeder: Option<JoinHandle<()>>,
    lines: Receiver<String>,
    complaints: Option<JoinHandle<String>>,
}

/// What a process that has ended said since it was last listened to.
#[derive(Debug)]
pub(crate) struct Ended {
    pub(crate) status: ExitStatus,
    pub(crate) lines: Vec<String>,
    pub(crate) stderr: String,
}

impl Ended {
    pub(crate) fn code(&self) -> Option<i32> {
        self.status.code()
    }
}

impl Process {
    pub(crate) fn start(mut command: Command) -> Self {
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap_or_else(|cause| panic!("could not start {command:?}: {cause}"));
        let stdout = child.stdout.take().expect("stdout is a pipe");
        let mut stderr = child.stderr.take().expect("stderr is a pipe");
        let (said, lines) = channel();
        std::thread::spawn(move || {
            for line in BufReader::new(stdout).lines().map_while(Result::ok) {
                let _ = said.send(line);
            }
        });
        let complaints = std::thread::spawn(move || {
            let mut text = String::new();
            let _ = stderr.read_to_string(&mut text);
            text
        });
        Process { input: child.stdin.take(), child, feeder: None, lines, complaints: Some(complaints) }
    }

    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    /// Hands in a line. Whoever was killed takes none.
    pub(crate) fn send(&mut self, line: &str) {
        let input = self.input.as_mut().expect("the input is open");
        let _ = input.write_all(format!("{line}\n").as_bytes());
    }

    /// Hands in lines from another thread, as fast as they are taken, for as long as they are.
    pub(crate) fn feed(&mut self, lines: impl Iterator<Item = String> + Send + 'static) {
        let mut input = self.input.take().expect("the input is open");
        self.feeder = Some(std::thread::spawn(move || {
            for line in lines {
                if input.write_all(format!("{line}\n").as_bytes()).is_err() {
                    return;
                }
            }
        }));
    }

    /// The next line of output; nothing if there will be none.
    pub(crate) fn next_line(&self) -> Option<String> {
        match self.lines.recv_timeout(DEADLINE) {
            Ok(line) => Some(line),
            Err(RecvTimeoutError::Disconnected) => None,
            Err(RecvTimeoutError::Timeout) => panic!("process {} says nothing and does not end", self.id()),
        }
    }

    /// kill -9.
    pub(crate) fn kill(&mut self) {
        self.child.kill().expect("a child that was not waited for can be killed");
    }

    /// Lets the process come to its end, and listens to the rest.
    pub(crate) fn end(mut self) -> Ended {
        self.input = None;
        let lines = std::iter::from_fn(|| self.next_line()).collect();
        let status = self.child.wait().expect("a child can be waited for");
        let stderr = self.complaints.take().and_then(|thread| thread.join().ok()).expect("stderr was read");
        self.feeder.take().into_iter().for_each(|feeder| feeder.join().expect("the feeder does not panic"));
        Ended { status, lines, stderr }
    }
}

impl Drop for Process {
    /// A test that fails leaves nobody behind. One that has ended is not harmed.
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
