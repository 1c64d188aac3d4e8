//! The program is killed before each system call by which it changes the disk, answers, starts somebody or ends.
//!
//! A first run under strace tells which calls there are; then a fresh scene is put through one death each. Only the
//! program's own threads are traced: whoever becomes another program is let go. The threads take turns as they like, so
//! that now and then a death does not come; then the run is complete and is looked at as such.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::process::ExitStatusExt;
use std::process::Command;

use crate::aftermath::{self, is_complete};
use crate::process::{Ended, Process};
use crate::scene::{Scene, names};

/// Those that this machine does not have are passed over.
const CALLS: &str = "trace=?write,?pwrite64,?writev,?rename,?renameat,?renameat2,?fsync,?fdatasync,?open,?openat,?mkdir,\
                     ?mkdirat,?ftruncate,?utimensat,?unlink,?unlinkat,?clone,?clone3,?fork,?vfork,?pipe2,?close,?wait4,?waitid,?kill,\
                     ?exit_group";

/// How many calls of one name are died at. More are passed over evenly, but never the first and the last.
const DEATHS_A_CALL_MAX: usize = 25;

const SIGKILL: i32 = 9;

/// A system call: its name, and how many of that name its thread had made, itself included.
type Step = (String, usize);

/// Runs `lastword run` under strace; killed at a step, if one is given.
fn run_under_strace(scene: &Scene, more: &[&str], step: Option<&Step>) -> Ended {
    let plain = scene.run_command(&[&["--json"], more].concat());
    let mut traced = Command::new("strace");
    traced.args(["-f", "-b", "execve", "-o"]).arg(log(scene)).args(["-e", CALLS]);
    if let Some((call, count)) = step {
        traced.args(["-e", &format!("inject={call}:signal=KILL:when={count}")]);
    }
    traced.arg(plain.get_program()).args(plain.get_args());
    Process::start(traced).end()
}

fn log(scene: &Scene) -> std::path::PathBuf {
    scene.data.root().with_extension("strace")
}

/// The steps of an undisturbed run.
fn steps(scene: &Scene, more: &[&str]) -> Vec<Step> {
    let ended = run_under_strace(scene, more, None);
    assert_eq!(ended.code(), Some(0), "undisturbed, the run fails: {}", ended.stderr);
    let log = fs::read_to_string(log(scene)).expect("strace wrote its log");
    let each = calls_in(&log).into_iter().map(|(call, counts)| (call, thinned(counts)));
    each.flat_map(|(call, counts)| counts.into_iter().map(move |count| (call.clone(), count))).collect()
}

/// The calls in strace's log, whose lines begin with the thread, and at which counts they were made. Opening what is
/// there already is no step.
fn calls_in(log: &str) -> BTreeMap<String, Vec<usize>> {
    let mut made: BTreeMap<(&str, &str), usize> = BTreeMap::new();
    let mut calls: BTreeMap<String, Vec<usize>> = BTreeMap::new();
    for line in log.lines() {
        let Some((thread, call)) = line.split_once(' ') else { continue };
        let Some((name, args)) = call.trim_start().split_once('(') else { continue };
        // A call that another thread interrupted is told in two lines.
        if name.starts_with('<') {
            continue;
        }
        let count = made.entry((thread, name)).or_default();
        *count += 1;
        if !name.starts_with("open") || args.contains("O_CREAT") {
            calls.entry(name.to_owned()).or_default().push(*count);
        }
    }
    calls
}

fn thinned(mut counts: Vec<usize>) -> Vec<usize> {
    counts.sort_unstable();
    counts.dedup();
    let last = counts.len() - 1;
    match last < DEATHS_A_CALL_MAX {
        true => counts,
        false => (0..DEATHS_A_CALL_MAX).map(|at| counts[at * last / (DEATHS_A_CALL_MAX - 1)]).collect(),
    }
}

/// Kills the program at its steps, each time in a scene of its own, and looks at what is left.
fn check_every_step(begin: fn() -> Scene, more: &[&str], needed: &[&str]) {
    require_strace();
    let steps = steps(&begin(), more);
    for call in needed.iter().chain(&["write", "pwrite64", "fdatasync", "rename", "fsync", "openat", "exit_group"]) {
        assert!(steps.iter().any(|(name, _)| name == call), "no {call} was seen in {steps:?}");
    }
    let deaths = steps.iter().filter(|step| dies_and_is_sound(&begin(), more, step)).count();
    println!("{deaths} deaths at {} steps", steps.len());
    assert!(deaths * 2 > steps.len(), "only {deaths} deaths at {} steps", steps.len());
}

/// Kills the program at a step, looks at what is left, and says whether the death came.
fn dies_and_is_sound(scene: &Scene, more: &[&str], step: &Step) -> bool {
    let ended = run_under_strace(scene, more, Some(step));
    let is_dead = ended.status.signal() == Some(SIGKILL);
    // Shown by the test harness if the check fails.
    println!("{step:?}: {}", if is_dead { "killed" } else { "the death did not come" });
    if !is_dead {
        assert_eq!(ended.code(), Some(0), "{}", ended.stderr);
        assert!(is_complete(&ended.lines), "{:?}", ended.lines);
    }
    aftermath::check(scene, &ended.lines);
    is_dead
}

fn require_strace() {
    let found = Command::new("strace").arg("--version").output();
    assert!(found.is_ok(), "these tests need strace: install it (apt-get install strace)");
}

/// An agent that does a bit of everything.
fn busy_agent() -> Scene {
    Scene::with_agent(
        r#"
say reasoning '{"text":"Meer?"}'
token 'Ans '
say tool '{"tool_call_id":"t1","name":"map","preview":"Sète"}'
say tool_complete '{"tool_call_id":"t1","name":"map","preview":"gefunden","is_error":false}'
token 'Meer, '
token 'à Sète.'
"#,
    )
}

#[test]
fn killed_at_any_step_of_an_agents_answer_nothing_printed_is_lost_and_nobody_is_left_behind() {
    check_every_step(busy_agent, &[], &["mkdir", "unlink", "clone3"]);
}

#[test]
fn killed_at_any_step_of_the_demos_answer_nothing_printed_is_lost() {
    check_every_step(Scene::with_demo, &["--pace-ms", "0"], &[]);
}

/// A scene that has seen a run: the only folder that is created in the next one is that of the notes, once the agent
/// has been started.
fn with_a_turn_before() -> Scene {
    let scene = Scene::with_agent("token Ans; stay");
    scene.data.must(&["run", "trip", "--message", "Zuerst?", "--run", "r0"]);
    fs::remove_dir(scene.data.root().join("_groups")).expect("it is empty");
    scene
}

#[test]
fn a_command_that_was_started_and_not_noted_never_goes_to_work() {
    require_strace();
    let scene = with_a_turn_before();
    let ended = run_under_strace(&scene, &[], Some(&("mkdir".to_owned(), 1)));
    assert_eq!(ended.status.signal(), Some(SIGKILL), "it was not killed: {ended:?}");
    let log = fs::read_to_string(log(&scene)).expect("strace wrote its log");
    assert!(log.contains("_groups"), "it was not killed at the note: {log}");
    assert_eq!(names(&ended.lines), ["attempt"]);
    scene.wait_until_nobody_is_left();
    assert_eq!(scene.work("r1").len(), 0, "it was not let go");
    aftermath::check(&scene, &ended.lines);
}

#[test]
fn a_command_is_let_go_and_handed_its_message_in_one_piece() {
    require_strace();
    let scene = busy_agent();
    assert_eq!(run_under_strace(&scene, &[], None).code(), Some(0));
    let log = fs::read_to_string(log(&scene)).expect("strace wrote its log");
    assert!(log.contains(r#", "\n{\"message\":"#), "the gate is opened before there is anything to answer: {log}");
}
