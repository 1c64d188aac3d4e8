//! The machine's table of processes: who belongs to a group, since when, and whether they are ours. And signals.
//!
//! Only Linux tells all of it. On other Unix systems a group is signalled by the process that started it and by nobody
//! later; elsewhere there are no groups.

use crate::storage::ProcessGroup;

/// A process, as the table has it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Process {
    pub(super) id: u32,
    pub(super) group: u32,
    /// When it started, in the kernel's ticks since the machine did.
    pub(super) started_ticks: u64,
    /// Whether it has ended and only waits to be taken note of.
    pub(super) is_over: bool,
}

/// How a process is told to end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Signal {
    /// It may finish what it does.
    Term,
    /// It may not.
    Kill,
}

/// The variable of the environment that marks the processes of a group.
pub(super) const TOKEN_VARIABLE: &str = "LASTWORD_GROUP";

/// Those who are left of a group, if it still is the group that was noted.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Left {
    /// Nobody, or only others who have the number now.
    Nobody,
    /// Its first process and perhaps others: the number is still its own.
    Whole,
    /// Its first process is gone, and these were started by it.
    Some(Vec<Process>),
}

/// Who is left of a group among those who have its number now. `is_marked` tells whether a process carries its token.
fn left_of(group: &ProcessGroup, members: &[Process], is_marked: impl Fn(&Process) -> bool) -> Left {
    let began = group.started_ticks;
    match members.iter().find(|process| process.id == group.id) {
        Some(first) if began != Some(first.started_ticks) => Left::Nobody,
        Some(_) if members.iter().all(|process| process.is_over) => Left::Nobody,
        Some(_) => Left::Whole,
        None => {
            let is_later =
                |process: &&Process| !process.is_over && began.is_some_and(|began| process.started_ticks >= began);
            let ours: Vec<Process> =
                members.iter().filter(is_later).filter(|process| is_marked(process)).copied().collect();
            if ours.is_empty() { Left::Nobody } else { Left::Some(ours) }
        }
    }
}

/// Who is left of a group. A group of another boot of the machine is gone.
pub(super) fn look_for(group: &ProcessGroup, boot_id: &str) -> Left {
    if group.boot_id != boot_id || !table::has_group(group.id) {
        return Left::Nobody;
    }
    let mark = format!("{TOKEN_VARIABLE}={}", group.token);
    left_of(group, &members(group.id), |process| table::environment_has(process.id, &mark))
}

/// Those who have a group's number. If its first process is at work, that one decides, and nobody else is looked for.
fn members(group: u32) -> Vec<Process> {
    match table::process(group).filter(|first| first.group == group && !first.is_over) {
        Some(first) => vec![first],
        None => table::members(group),
    }
}

/// Tells when a child has ended without taking note of it, so that its number stays taken and with it its group's.
#[cfg(target_os = "linux")]
#[derive(Debug)]
pub(super) struct ExitWatch(tokio::io::unix::AsyncFd<std::os::fd::OwnedFd>);

#[cfg(target_os = "linux")]
impl ExitWatch {
    /// Nothing if the system is too old for it.
    #[allow(deprecated, reason = "sound for a handle of our own, which never changes; what replaces it is unsafe")]
    pub(super) fn of(id: u32) -> Option<Self> {
        use rustix::process::{Pid, PidfdFlags, pidfd_open};
        use tokio::io::unix::AsyncFd;
        let held = pidfd_open(Pid::from_raw(i32::try_from(id).ok()?)?, PidfdFlags::empty()).ok()?;
        AsyncFd::with_interest(held, tokio::io::Interest::READABLE).ok().map(ExitWatch)
    }

    pub(super) async fn seen(&self) {
        // If it cannot be waited for, it is waited for in another way.
        let _ = self.0.readable().await;
    }
}

/// Where there is no such watch, a child's end is seen by taking note of it.
#[cfg(not(target_os = "linux"))]
#[derive(Debug)]
pub(super) enum ExitWatch {}

#[cfg(not(target_os = "linux"))]
impl ExitWatch {
    pub(super) fn of(_id: u32) -> Option<Self> {
        None
    }

    pub(super) async fn seen(&self) {
        match *self {}
    }
}

/// Signals whoever is left of a group, and says whether that was anybody.
pub(super) fn signal(group: &ProcessGroup, boot_id: &str, signal: Signal) -> bool {
    match look_for(group, boot_id) {
        Left::Nobody => return false,
        Left::Whole => table::signal_group(group.id, signal),
        Left::Some(processes) => processes.iter().for_each(|process| table::signal_one(process, signal)),
    }
    true
}

/// When a process started that is at work, if that can be told.
pub(super) fn alive_since(id: u32) -> Option<u64> {
    table::process(id).filter(|process| !process.is_over).map(|process| process.started_ticks)
}

/// What one line of the kernel's table says: the fields behind the name, which may hold anything.
#[cfg_attr(not(target_os = "linux"), allow(dead_code))]
fn parse_stat(id: u32, stat: &str) -> Option<Process> {
    let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_ascii_whitespace().collect();
    Some(Process {
        id,
        group: fields.get(2)?.parse().ok()?,
        started_ticks: fields.get(19)?.parse().ok()?,
        is_over: matches!(*fields.first()?, "Z" | "X" | "x"),
    })
}

#[cfg(target_os = "linux")]
mod table {
    use std::fs;

    use rustix::process::{
        Pid, PidfdFlags, kill_process_group, pidfd_open, pidfd_send_signal, test_kill_process_group,
    };

    use super::{Process, Signal, parse_stat};

    fn number(id: u32) -> Option<Pid> {
        Pid::from_raw(i32::try_from(id).ok()?)
    }

    fn kernel(signal: Signal) -> rustix::process::Signal {
        match signal {
            Signal::Term => rustix::process::Signal::TERM,
            Signal::Kill => rustix::process::Signal::KILL,
        }
    }

    pub(super) fn process(id: u32) -> Option<Process> {
        parse_stat(id, &String::from_utf8_lossy(&fs::read(format!("/proc/{id}/stat")).ok()?))
    }

    pub(super) fn members(group: u32) -> Vec<Process> {
        let Ok(entries) = fs::read_dir("/proc") else { return Vec::new() };
        let ids = entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
        ids.filter_map(process).filter(|process| process.group == group).collect()
    }

    pub(super) fn environment_has(id: u32, mark: &str) -> bool {
        let environment = fs::read(format!("/proc/{id}/environ")).unwrap_or_default();
        environment.split(|byte| *byte == 0).any(|variable| variable == mark.as_bytes())
    }

    pub(super) fn has_group(group: u32) -> bool {
        number(group).is_some_and(|group| test_kill_process_group(group) != Err(rustix::io::Errno::SRCH))
    }

    pub(super) fn signal_group(group: u32, signal: Signal) {
        if let Some(group) = number(group) {
            // Whoever is gone by now needs no signal.
            let _ = kill_process_group(group, kernel(signal));
        }
    }

    /// A process is held by a handle before it is looked at again, so that no other that takes its number is meant.
    pub(super) fn signal_one(known: &Process, signal: Signal) {
        let held = number(known.id).and_then(|id| pidfd_open(id, PidfdFlags::empty()).ok());
        if let Some(held) = held
            && process(known.id).is_some_and(|now| now.started_ticks == known.started_ticks)
        {
            let _ = pidfd_send_signal(held, kernel(signal));
        }
    }
}

/// Without a table a group is believed to be what it was, as long as there is one of its number. That is true while
/// whoever started it has not taken note of its end; others must not ask.
#[cfg(all(unix, not(target_os = "linux")))]
mod table {
    use rustix::process::{Pid, kill_process_group, test_kill_process_group};

    use super::{Process, Signal};

    fn number(id: u32) -> Option<Pid> {
        Pid::from_raw(i32::try_from(id).ok()?)
    }

    pub(super) fn process(id: u32) -> Option<Process> {
        Some(Process { id, group: id, started_ticks: 0, is_over: false })
    }

    pub(super) fn members(group: u32) -> Vec<Process> {
        process(group).into_iter().filter(|_| has_group(group)).collect()
    }

    pub(super) fn environment_has(_id: u32, _mark: &str) -> bool {
        false
    }

    pub(super) fn has_group(group: u32) -> bool {
        number(group).is_some_and(|group| test_kill_process_group(group).is_ok())
    }

    pub(super) fn signal_group(group: u32, signal: Signal) {
        let signal = match signal {
            Signal::Term => rustix::process::Signal::TERM,
            Signal::Kill => rustix::process::Signal::KILL,
        };
        if let Some(group) = number(group) {
            let _ = kill_process_group(group, signal);
        }
    }

    pub(super) fn signal_one(_known: &Process, _signal: Signal) {}
}

#[cfg(not(unix))]
mod table {
    use super::{Process, Signal};

    pub(super) fn process(_id: u32) -> Option<Process> {
        None
    }

    pub(super) fn members(_group: u32) -> Vec<Process> {
        Vec::new()
    }

    pub(super) fn environment_has(_id: u32, _mark: &str) -> bool {
        false
    }

    pub(super) fn has_group(_group: u32) -> bool {
        false
    }

    pub(super) fn signal_group(_group: u32, _signal: Signal) {}

    pub(super) fn signal_one(_known: &Process, _signal: Signal) {}
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOTED: u64 = 500;

    fn group() -> ProcessGroup {
        ProcessGroup {
            token: "t".to_owned(),
            id: 40,
            started_ticks: Some(NOTED),
            boot_id: "b".to_owned(),
            session_id: "s".to_owned(),
            run_id: "r".to_owned(),
            owner_id: 1,
            owner_started_ticks: None,
        }
    }

    fn process(id: u32, started_ticks: u64) -> Process {
        Process { id, group: 40, started_ticks, is_over: false }
    }

    fn left(members: &[Process], marked: &[u32]) -> Left {
        left_of(&group(), members, |process| marked.contains(&process.id))
    }

    #[test]
    fn a_group_whose_first_process_is_there_is_ours_as_a_whole() {
        assert_eq!(left(&[process(40, NOTED), process(41, 510)], &[]), Left::Whole);
        let over = Process { is_over: true, ..process(40, NOTED) };
        assert_eq!(left(&[over, process(41, 510)], &[]), Left::Whole, "the first has ended, the number is still taken");
        assert_eq!(left(&[over], &[]), Left::Nobody);
    }

    #[test]
    fn a_stranger_who_has_the_number_now_is_left_alone() {
        assert_eq!(left(&[process(40, NOTED + 1), process(41, NOTED + 2)], &[40, 41]), Left::Nobody);
    }

    #[test]
    fn without_its_first_process_only_those_are_ours_that_carry_the_mark() {
        let (ours, other) = (process(41, 510), process(42, 511));
        assert_eq!(left(&[ours, other], &[41]), Left::Some(vec![ours]));
        assert_eq!(left(&[process(41, NOTED - 1)], &[41]), Left::Nobody, "older than the group");
        let at_once = process(41, NOTED);
        assert_eq!(left(&[at_once], &[41]), Left::Some(vec![at_once]), "started in the same tick");
        let over = Process { is_over: true, ..ours };
        assert_eq!(left(&[over], &[41]), Left::Nobody, "it has ended");
        assert_eq!(left(&[], &[]), Left::Nobody);
    }

    #[test]
    fn without_a_known_start_nobody_is_ours() {
        let unknown = ProcessGroup { started_ticks: None, ..group() };
        assert_eq!(left_of(&unknown, &[process(40, 7)], |_| true), Left::Nobody);
        assert_eq!(left_of(&unknown, &[process(41, 7)], |_| true), Left::Nobody);
    }

    #[test]
    fn a_line_of_the_table_is_read_whatever_the_process_calls_itself() {
        let stat = "7 (a) b) (c) S 1 40 40 0 -1 4194304 1 2 3 4 5 6 7 8 20 0 1 0 1234 9 9";
        assert_eq!(parse_stat(7, stat), Some(Process { id: 7, group: 40, started_ticks: 1234, is_over: false }));
        assert_eq!(parse_stat(7, "garbage"), None);
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn a_process_is_signalled_only_if_it_is_the_one_that_was_looked_at() {
        let mut sleeper = std::process::Command::new("sleep").arg("600").spawn().unwrap();
        let known = table::process(sleeper.id()).unwrap();
        // Another process that has taken the number of one that is gone.
        table::signal_one(&Process { started_ticks: known.started_ticks - 1, ..known }, Signal::Kill);
        table::signal_one(&known, Signal::Term);
        let ended = sleeper.wait().unwrap();
        assert_eq!(std::os::unix::process::ExitStatusExt::signal(&ended), Some(15), "{ended}");
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn this_very_process_is_in_the_table() {
        let own = table::process(std::process::id()).expect("we are there");
        assert!(!own.is_over && table::has_group(own.group));
        assert!(table::members(own.group).contains(&own));
        assert_eq!(alive_since(own.id), Some(own.started_ticks));
        assert_eq!(alive_since(u32::MAX), None);
    }
}
