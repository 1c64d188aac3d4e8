//! Readers of the answer who leave, or who stay and do not read. Neither stops the run, and neither keeps the program.

use std::io::{BufRead, BufReader};
use std::process::Child;
use std::time::{Duration, Instant};

use crate::aftermath::{self, is_complete};
use crate::data::RUN;
use crate::scene::{Scene, names};
use crate::table::{Signal, signal, wait_until};

/// More than a pipe holds, in words.
const LONG: &str = r#"
i=0
while [ $i -lt 1500 ]; do i=$((i + 1)); token "wort-$i-wort-wort-wort-wort-wort-wort-wort-wort-wort-wort-wort-wort "; done
"#;

/// Nobody waits longer for a program that should end.
fn exit_code_soon(child: &mut Child) -> Option<i32> {
    let deadline = Instant::now() + Duration::from_secs(20);
    while child.try_wait().expect("a child can be waited for").is_none() {
        if Instant::now() > deadline {
            let _ = child.kill();
            panic!("the program does not end");
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    child.wait().expect("a child can be waited for").code()
}

/// Somebody presses Ctrl-C until it helps: one of them may still be heard by the run, which is about to end.
fn exit_code_when_pressed(child: &mut Child) -> Option<i32> {
    for _ in 0..2 {
        signal(child.id(), Signal::INT);
        std::thread::sleep(Duration::from_millis(200));
    }
    exit_code_soon(child)
}

fn wait_until_sealed(scene: &Scene, last: &str) {
    let is_last = || names(&scene.journalled(RUN)).last().is_some_and(|name| name == last);
    wait_until("the run has ended", is_last);
}

#[test]
fn a_reader_who_leaves_after_the_first_line_does_not_stop_the_run() {
    let scene = Scene::with_agent(&format!("token Ans; reached; sleep 0.3; {LONG}"));
    let mut run = scene.piped(&["--json"]);
    let mut first = String::new();
    BufReader::new(run.stdout.take().expect("a pipe")).read_line(&mut first).expect("it says something");
    assert_eq!(exit_code_soon(&mut run), Some(0));
    assert!(is_complete(&scene.journalled(RUN)));
    aftermath::check(&scene, &[first.trim_end().to_owned()]);
}

#[test]
fn readers_who_leave_both_pipes_do_not_change_the_exit_code() {
    let scene = Scene::with_agent("token Ans; reached; sleep 0.3; exit 7");
    let mut run = scene.piped(&[]);
    drop((run.stdout.take(), run.stderr.take()));
    assert_eq!(exit_code_soon(&mut run), Some(1));
    aftermath::check(&scene, &[]);
}

/// The run has ended, its reader is stuck, and a signal ends the program.
fn check_stuck_reader(deed: &str, given: Signal) {
    let scene = Scene::with_agent(deed);
    let mut run = scene.piped(&[]);
    wait_until_sealed(&scene, "done");
    std::thread::sleep(Duration::from_millis(300));
    assert!(run.try_wait().expect("a child can be waited for").is_none(), "it waits for its reader");
    signal(run.id(), given);
    assert_eq!(exit_code_soon(&mut run), Some(1), "not all was printed");
    aftermath::check(&scene, &[]);
}

#[test]
fn a_reader_who_does_not_read_keeps_nothing_but_the_printing_and_ctrl_c_gives_that_up() {
    check_stuck_reader(LONG, Signal::INT);
}

#[test]
fn sigterm_gives_up_printing_too() {
    check_stuck_reader(LONG, Signal::TERM);
}

#[test]
fn thoughts_that_nobody_reads_are_given_up_as_well() {
    check_stuck_reader(
        &format!("token() {{ say reasoning \"{{\\\"text\\\":\\\"$1\\\"}}\"; }}\n{LONG}\necho Ja."),
        Signal::INT,
    );
}

#[test]
fn a_stuck_reader_and_a_stubborn_agent_are_left_together() {
    let scene = Scene::with_agent(&format!("trap '' TERM; (sleep 600) & {LONG} stay"));
    let mut run = scene.piped(&[]);
    scene.wait_until_reached();
    signal(run.id(), Signal::INT);
    wait_until_sealed(&scene, "cancel");
    assert_eq!(exit_code_when_pressed(&mut run), Some(1));
    scene.wait_until_nobody_is_left();
    aftermath::check(&scene, &[]);
}

#[test]
fn a_reader_who_is_late_gets_every_word() {
    let scene = Scene::with_agent(LONG);
    let run = scene.piped(&[]);
    wait_until_sealed(&scene, "done");
    let output = run.wait_with_output().expect("a child can be waited for");
    assert_eq!(output.status.code(), Some(0));
    let text = String::from_utf8(output.stdout).expect("an answer is text");
    assert_eq!(text.split_whitespace().count(), 1500);
    assert!(text.ends_with("wort \n"), "its last line is ended");
}
