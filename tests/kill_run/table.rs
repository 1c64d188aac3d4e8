//! The kernel's table of processes, as the tests look at it, and signals.

use std::fs;
use std::time::{Duration, Instant};

use rustix::process::{Pid, kill_process};

pub(crate) use rustix::process::Signal;

/// Far more than a dying process takes.
const DEADLINE: Duration = Duration::from_secs(20);

pub(crate) const NOBODY: [u32; 0] = [];

/// The processes that have this in their environment and have not ended.
pub(crate) fn marked(variable: &str) -> Vec<u32> {
    let entries = fs::read_dir("/proc").expect("there is a table of processes");
    let ids = entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
    ids.filter(|id| environment_has(*id, variable)).collect()
}

/// Whoever has ended has no environment any more.
fn environment_has(id: u32, variable: &str) -> bool {
    let environment = fs::read(format!("/proc/{id}/environ")).unwrap_or_default();
    environment.split(|byte| *byte == 0).any(|known| known == variable.as_bytes())
}

/// Whether a process is there and has not ended.
pub(crate) fn is_alive(id: u32) -> bool {
    field(id, 0).is_some_and(|state| !matches!(state.as_str(), "Z" | "X"))
}

/// When a process started, in the kernel's ticks.
pub(crate) fn started_ticks(id: u32) -> u64 {
    field(id, 19).and_then(|ticks| ticks.parse().ok()).expect("the process is there")
}

/// A field of the table, counted from behind the process's name.
fn field(id: u32, at: usize) -> Option<String> {
    let stat = fs::read_to_string(format!("/proc/{id}/stat")).ok()?;
    stat.rsplit_once(')')?.1.split_ascii_whitespace().nth(at).map(str::to_owned)
}

pub(crate) fn boot_id() -> String {
    fs::read_to_string("/proc/sys/kernel/random/boot_id").expect("Linux tells its boot").trim().to_owned()
}

/// Signals a process. One that is gone needs no signal.
pub(crate) fn signal(id: u32, signal: Signal) {
    let id = i32::try_from(id).ok().and_then(Pid::from_raw).expect("an id is a small number");
    let _ = kill_process(id, signal);
}

/// Waits until something is so.
pub(crate) fn wait_until(what: &str, is_so: impl Fn() -> bool) {
    let deadline = Instant::now() + DEADLINE;
    while !is_so() {
        assert!(Instant::now() < deadline, "not in time: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}
