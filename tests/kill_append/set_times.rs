//! Modification times that are set: the revision of a document, which must not repeat after a power cut.

use std::fs;
use std::process::Command;

use crate::data::{Data, SESSION};
use crate::every_step::require_strace;
use crate::process::Process;

/// fdatasync may leave the time out: after a power cut the document would have a revision of its past.
#[test]
fn a_modification_time_that_was_set_is_synced_with_fsync_before_the_rename() {
    require_strace();
    let data = Data::nowhere();
    let log = data.root().with_extension("strace");
    let plain = data.command(&["new", "--id", SESSION]);
    let mut traced = Command::new("strace");
    traced.arg("-f").arg("-o").arg(&log).args(["-e", "trace=utimensat,fsync,fdatasync,?rename,?renameat,?renameat2"]);
    // What the commit thread does comes at another moment each time.
    traced.env("LASTWORD_SYNC_WITHIN_MS", "0");
    traced.arg(plain.get_program()).args(plain.get_args());
    assert_eq!(Process::start(traced).end().code(), Some(0));
    let log = fs::read_to_string(&log).expect("strace wrote its log");
    let calls: Vec<(&str, &str)> = log.lines().filter_map(|line| line.split_once(' ')).collect();
    let calls: Vec<_> = calls.iter().map(|(thread, call)| (*thread, call.trim_start())).collect();
    let mut times = 0;
    for (at, (thread, call)) in calls.iter().enumerate() {
        let Some(file) = descriptor_of(call, "utimensat") else { continue };
        let mut later = calls[at + 1..].iter().filter(|(other, _)| other == thread).map(|(_, call)| *call);
        let next = later.find(|call| !call.starts_with("utimensat")).expect("a call follows");
        assert_eq!(descriptor_of(next, "fsync"), Some(file), "{next} follows {call}");
        times += 1;
    }
    assert!(times > 0, "no time was set:\n{log}");
}

/// The file that this call is made for, as in `fsync(7) = 0`.
fn descriptor_of<'a>(call: &'a str, name: &str) -> Option<&'a str> {
    call.strip_prefix(name)?.strip_prefix('(')?.split([',', ')']).next()
}
