//! Notes of process groups that are written by hand: whoever they mean is ended by the next writer, and nobody else.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};

use serde_json::{Value, json};

use crate::scene::Scene;
use crate::table::{Signal, boot_id, is_alive, marked, signal, started_ticks, wait_until};

/// The name of a note, which is also the mark of its processes. Nobody else's is the same.
fn token() -> String {
    format!("{:032x}", std::process::id())
}

/// A process of ours that nobody has to end, in a group of its own.
struct Sleeper(Child);

impl Sleeper {
    fn start() -> Self {
        Sleeper(group("exec sleep 600").spawn().expect("a shell can be started"))
    }

    fn id(&self) -> u32 {
        self.0.id()
    }
}

impl Drop for Sleeper {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A shell that does this in a group of its own.
fn group(deed: &str) -> Command {
    let mut command = Command::new("/bin/sh");
    command.args(["-c", deed]).process_group(0);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    command
}

/// A note of a group that is at work now, left by a writer that is not.
fn note(id: u32, ticks: u64) -> Value {
    json!({
        "token": token(), "id": id, "started_ticks": ticks, "boot_id": boot_id(), "session_id": "trip", "run_id": "r1",
        "owner_id": id, "owner_started_ticks": 1,
    })
}

/// Leaves a note, starts a writer, and gives what it said.
fn reap(note: &str) -> String {
    let scene = Scene::with_demo();
    let folder = scene.data.root().join("_groups");
    fs::create_dir(&folder).expect("the data can be written");
    fs::set_permissions(&folder, fs::Permissions::from_mode(0o700)).expect("the folder is ours");
    fs::write(folder.join(token()), note).expect("the data can be written");
    let said = scene.data.must(&["new"]).stderr;
    assert_eq!(scene.notes().len(), 0, "a note that means nobody any more goes: {said}");
    said
}

#[test]
fn a_group_that_a_note_means_is_ended_and_told() {
    let sleeper = Sleeper::start();
    let said = reap(&note(sleeper.id(), started_ticks(sleeper.id())).to_string());
    assert!(!is_alive(sleeper.id()));
    assert!(said.contains(&sleeper.id().to_string()) && said.contains("r1") && said.contains("ended"), "{said}");
}

#[test]
fn a_repair_ends_them_too() {
    let scene = Scene::with_agent("token Ans; stay");
    let mut run = scene.start();
    scene.wait_until_reached();
    run.kill();
    drop(run);
    assert!(!scene.survivors().is_empty(), "there is somebody to end");
    scene.data.must(&["repair", "--apply"]);
    assert!(scene.survivors().is_empty());
    assert_eq!(scene.notes().len(), 0);
}

#[test]
fn a_stranger_who_has_the_number_now_is_left_alone() {
    let sleeper = Sleeper::start();
    assert_eq!(reap(&note(sleeper.id(), started_ticks(sleeper.id()) - 1).to_string()), "");
    assert!(is_alive(sleeper.id()));
}

#[test]
fn a_note_of_another_boot_means_nobody() {
    let sleeper = Sleeper::start();
    let mut note = note(sleeper.id(), started_ticks(sleeper.id()));
    note["boot_id"] = json!("00000000-0000-0000-0000-000000000000");
    assert_eq!(reap(&note.to_string()), "");
    assert!(is_alive(sleeper.id()));
}

#[test]
fn half_a_note_goes_and_means_nobody() {
    let sleeper = Sleeper::start();
    let note = note(sleeper.id(), started_ticks(sleeper.id())).to_string();
    assert_eq!(reap(&note[..note.len() / 2]), "");
    assert!(is_alive(sleeper.id()));
}

/// A group whose first process is gone. The other two carry a mark each: that of the note, and another.
struct Orphans {
    id: u32,
    started_ticks: u64,
    marks: [String; 2],
}

impl Orphans {
    fn start() -> Self {
        let marks = ["", "not-"].map(|prefix| format!("LASTWORD_GROUP={prefix}{}", token()));
        let deed = format!("{} sleep 600 & {} sleep 600 & read go", marks[0], marks[1]);
        let mut first = group(&deed).stdin(Stdio::piped()).spawn().expect("a shell can be started");
        let orphans = Orphans { id: first.id(), started_ticks: started_ticks(first.id()), marks };
        wait_until("both have started", || orphans.left() == [1, 1]);
        drop(first.stdin.take());
        first.wait().expect("a child can be waited for");
        orphans
    }

    /// How many there are of each mark.
    fn left(&self) -> [usize; 2] {
        [0, 1].map(|at: usize| marked(&self.marks[at]).len())
    }
}

impl Drop for Orphans {
    fn drop(&mut self) {
        self.marks.iter().flat_map(|mark| marked(mark)).for_each(|id| signal(id, Signal::KILL));
    }
}

#[test]
fn of_a_group_without_its_first_process_only_those_are_ended_that_carry_the_mark() {
    let orphans = Orphans::start();
    let said = reap(&note(orphans.id, orphans.started_ticks).to_string());
    assert_eq!(orphans.left(), [0, 1], "{said}");
    assert!(said.contains(&orphans.id.to_string()), "{said}");
}
