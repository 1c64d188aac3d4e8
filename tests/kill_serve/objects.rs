//! Files that this user may not write, and a trash on another file system: each costs one session, in real processes on real
//! files. A superuser gives up its privileges first.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::Path;
use std::process::Command;

use crate::data::{Data, RUN, SESSION, token};
use crate::host::Host;
use crate::process::{Ended, Process};
use crate::small_disk::on_a_small_disk;
use crate::storage::ask as request;

/// Becomes the program after it, without the right to pass over permissions.
const WITHOUT_PRIVILEGES: [&str; 3] = ["setpriv", "--bounding-set=-all", "--inh-caps=-all"];

fn command(data: &Data, args: &[&str]) -> Command {
    let inner = data.command(args);
    let is_root = fs::metadata("/proc/self").expect("a process has an owner").uid() == 0;
    let wrapper: &[&str] = if is_root { &WITHOUT_PRIVILEGES } else { &["env"] };
    let mut command = Command::new(wrapper[0]);
    command.args(&wrapper[1..]).arg(inner.get_program()).args(inner.get_args());
    command
}

fn ask(data: &Data, args: &[&str]) -> Ended {
    Process::start(command(data, args)).end()
}

fn allow(path: &Path, mode: u32) {
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
}

/// A run whose durable events only the commit log holds: its process was killed, and the machine lost the journal's pages.
fn with_events_in_the_log() -> Data {
    let data = Data::with_turn();
    let mut process = data.start(&["append", SESSION, RUN, "--durability", "durable"]);
    for number in 1..=3 {
        process.send(&token(&format!("word {number} ")));
        assert_eq!(process.next_line(), Some(format!("{{\"seq\":{number}}}")));
    }
    process.kill();
    drop(process);
    fs::File::options().write(true).open(data.journal()).unwrap().set_len(0).unwrap();
    data
}

#[test]
fn a_journal_that_may_not_be_written_costs_its_own_run_alone() {
    for mode in [0o400, 0o000] {
        let data = with_events_in_the_log();
        allow(&data.journal(), mode);
        // Everything else works, and tells what does not.
        let created = ask(&data, &["new", "--id", "other"]);
        assert_eq!(created.code(), Some(0), "{mode:o}: {}", created.stderr);
        let records = data.root().join(format!("_kept/{SESSION}/{RUN}.records"));
        assert!(records.exists(), "{mode:o}: the events are kept apart");
        let refused = Process::start(command(&data, &["append", SESSION, RUN])).end();
        assert_ne!(refused.code(), Some(0));
        assert!(refused.stderr.contains(".records"), "{mode:o}: {}", refused.stderr);
        let checked = ask(&data, &["check"]);
        assert_eq!(checked.code(), Some(1), "{mode:o}: {:?}", checked.lines);
        assert!(checked.lines.concat().contains("log_not_replayed"), "{mode:o}: {:?}", checked.lines);
        let repaired = ask(&data, &["repair", "--apply"]);
        assert_eq!(repaired.code(), Some(4), "{mode:o}: it says that not all could be done: {:?}", repaired.lines);
        let shown = ask(&data, &["tail", SESSION, RUN]);
        assert_eq!(shown.lines.len(), 3, "{mode:o}: readers see them: {}", shown.stderr);
        allow(&data.journal(), 0o600);
        let repaired = ask(&data, &["repair", "--apply"]);
        assert_eq!(repaired.code(), Some(0), "{mode:o}: {:?} {}", repaired.lines, repaired.stderr);
        let texts: Vec<String> = data.sound_tail().into_iter().map(|shown| shown.text).collect();
        assert_eq!(texts[..3], ["word 1 ", "word 2 ", "word 3 "], "{mode:o}");
        assert!(!records.exists(), "{mode:o}");
    }
}

#[test]
fn a_session_stays_deleted_although_its_trash_lies_on_another_file_system() {
    let name = "objects::a_session_stays_deleted_although_its_trash_lies_on_another_file_system";
    on_a_small_disk(name, "1m", |disk| {
        let data = Data::with_turn();
        symlink(disk, data.root().join("_trash")).unwrap();
        let mut host = Host::on(data, &[]);
        host.revive();
        let path = format!("/v1/sessions/{SESSION}");
        let deleted = request(&host.address(), "DELETE", &path, "");
        assert_eq!(deleted.status, 204, "although its files could not be moved: {deleted:?}");
        assert_eq!(request(&host.address(), "GET", &path, "").status, 404);
        // What could not be moved prevents no opening, by a server or another writer.
        let said = host.stop().stderr;
        assert!(said.contains("deleted_leftover"), "{said}");
        host.revive();
        assert_eq!(request(&host.address(), "GET", &path, "").status, 404);
        let created = request(&host.address(), "POST", "/v1/sessions", r#"{"session_id":"other"}"#);
        assert_eq!(created.status, 201, "{created:?}");
        host.stop();
        let checked = ask(&host.data, &["check"]);
        assert!(checked.lines.concat().contains("deleted_leftover"), "{:?}", checked.lines);
        let repaired = ask(&host.data, &["repair", "--apply"]);
        assert_eq!(repaired.code(), Some(4), "{:?}", repaired.lines);
        fs::remove_file(host.data.root().join("_trash")).unwrap();
        let repaired = ask(&host.data, &["repair", "--apply"]);
        assert_eq!(repaired.code(), Some(0), "{:?} {}", repaired.lines, repaired.stderr);
        assert!(!host.data.journal().exists(), "with a trash of its own the rest is moved there");
    });
}
