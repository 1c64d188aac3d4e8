//! Ctrl-C, a second one, and SIGTERM: how the program is ended by people and by machines that mean well.

use std::time::Duration;

use crate::aftermath;
use crate::process::Process;
use crate::scene::{Scene, event, names, next_lines};
use crate::table::{NOBODY, Signal, signal};

/// An agent has said a word and stays, the program gets a signal, and has printed one line more.
fn signalled(deed: &str, first: Signal) -> (Scene, Process, Vec<String>) {
    let scene = Scene::with_agent(deed);
    let run = scene.start();
    let mut printed = next_lines(&run, 2);
    assert_eq!(names(&printed), ["attempt", "token"]);
    scene.wait_until_reached();
    signal(run.id(), first);
    printed.extend(next_lines(&run, 1));
    (scene, run, printed)
}

#[test]
fn ctrl_c_stops_the_answer_keeps_what_had_arrived_and_ends_the_whole_group() {
    let (scene, run, mut printed) = signalled("(sleep 600) & token Ans; stay", Signal::INT);
    let ended = run.end();
    assert_eq!(scene.survivors(), NOBODY, "nobody outlives the program");
    assert_eq!(scene.notes().len(), 0);
    assert_eq!(ended.code(), Some(1), "{}", ended.stderr);
    assert!(ended.stderr.contains("stopped"), "{}", ended.stderr);
    printed.extend(ended.lines);
    assert_eq!(names(&printed), ["attempt", "token", "cancel"]);
    assert_eq!(event(&printed[2])["payload"]["close_reason"], "stopped_by_user");
    aftermath::check(&scene, &printed);
}

#[test]
fn an_agent_that_does_not_heed_sigterm_is_gone_when_the_program_has_ended() {
    let (scene, run, printed) = signalled("trap '' TERM; (sleep 600) & token Ans; stay", Signal::INT);
    let ended = run.end();
    assert_eq!((ended.code(), scene.survivors()), (Some(1), vec![]), "{}", ended.stderr);
    aftermath::check(&scene, &printed);
}

#[test]
fn a_second_ctrl_c_does_not_wait_for_an_agent_that_takes_its_time() {
    let (scene, run, printed) = signalled("trap '' TERM; (sleep 600) & token Ans; stay", Signal::INT);
    signal(run.id(), Signal::INT);
    let ended = run.end();
    assert_eq!(scene.notes().len(), 1, "nobody waited to see the agent go");
    assert_eq!(ended.code(), Some(1), "{}", ended.stderr);
    scene.wait_until_nobody_is_left();
    aftermath::check(&scene, &printed);
}

#[test]
fn ctrl_c_before_the_first_event_and_between_attempts_stops_the_run_too() {
    for (deed, events) in [("stay", 1), ("exit 75", 3)] {
        let scene = Scene::with_agent(deed);
        let run = scene.start();
        let mut printed = next_lines(&run, events);
        signal(run.id(), Signal::INT);
        let ended = run.end();
        assert_eq!((ended.code(), scene.survivors()), (Some(1), vec![]), "{}", ended.stderr);
        printed.extend(ended.lines);
        assert_eq!(names(&printed).last().map(String::as_str), Some("cancel"));
        aftermath::check(&scene, &printed);
    }
}

#[test]
fn sigterm_ends_the_run_with_a_word_that_says_why() {
    let (scene, run, printed) = signalled("(sleep 600) & token Ans; stay", Signal::TERM);
    let ended = run.end();
    assert_eq!((ended.code(), scene.survivors()), (Some(1), vec![]), "{}", ended.stderr);
    assert_eq!(names(&printed)[2..], ["apperror"]);
    assert_eq!(event(&printed[2])["payload"]["close_reason"], "shutdown");
    aftermath::check(&scene, &printed);
}

#[test]
fn a_terminal_that_goes_away_ends_nothing() {
    let scene = Scene::with_agent("token Ans; reached; until [ -e \"$SCENE/go\" ]; do sleep 0.02; done; token Meer");
    let run = scene.start();
    scene.wait_until_reached();
    signal(run.id(), Signal::HUP);
    scene.let_go();
    let ended = run.end();
    assert_eq!(ended.code(), Some(0), "{}", ended.stderr);
    assert_eq!(names(&ended.lines), ["attempt", "token", "token", "exit", "done"]);
    aftermath::check(&scene, &ended.lines);
}

#[test]
fn a_program_that_was_stopped_for_longer_than_a_budget_calls_nobody_silent() {
    let scene = Scene::with_agent("reached; until [ -e \"$SCENE/go\" ]; do sleep 0.02; done; token Ans");
    let run = Process::start(scene.run_command(&["--json", "--ttfb-timeout-seconds", "9"]));
    scene.wait_until_reached();
    signal(run.id(), Signal::STOP);
    std::thread::sleep(Duration::from_secs(10));
    signal(run.id(), Signal::CONT);
    // Long enough for a watchdog that was fooled.
    std::thread::sleep(Duration::from_secs(1));
    scene.let_go();
    let ended = run.end();
    assert_eq!(ended.code(), Some(0), "{}", ended.stderr);
    assert_eq!(names(&ended.lines), ["attempt", "token", "exit", "done"]);
    aftermath::check(&scene, &ended.lines);
}
