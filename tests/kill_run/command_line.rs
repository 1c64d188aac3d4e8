//! What `lastword run` prints, and how it says no.

use std::process::Command;

use crate::data::{PROMPT, RUN, SESSION};
use crate::process::{Ended, Process};
use crate::scene::{PLAIN_ANSWER, Scene, names};

const AGAIN: [&str; 4] = ["run", SESSION, "--message", "Noch einmal?"];

/// Gives a command that is refused, and leaves the session as it was.
fn refused(scene: &Scene, args: &[&str], code: i32) -> Ended {
    let before = scene.data.stored();
    let ended = scene.data.ask(args);
    assert_eq!(ended.code(), Some(code), "{args:?}: {}", ended.stderr);
    assert_eq!(ended.lines, [] as [&str; 0], "{args:?}");
    assert_eq!(scene.data.stored(), before, "{args:?} changed the session");
    ended
}

/// What is on stdout and on stderr when a run of an agent that does this has ended well.
fn printed(deed: &str) -> (String, String) {
    let scene = Scene::with_agent(deed);
    let output = scene.run_command(&[]).output().expect("lastword can be started");
    let text = |bytes| String::from_utf8(bytes).expect("it prints text");
    let (stdout, stderr) = (text(output.stdout), text(output.stderr));
    assert_eq!(output.status.code(), Some(0), "{stderr}");
    (stdout, stderr)
}

#[test]
fn the_answer_and_nothing_else_is_on_stdout() {
    let (stdout, stderr) = printed(
        r#"
say reasoning '{"text":"Meer?"}'
token 'Ans  '
say tool '{"tool_call_id":"t1","name":"map","preview":"wo ist es"}'
say tool_complete '{"tool_call_id":"t1","name":"map","preview":"gefunden"}'
say usage '{"total_tokens":7}'
token 'Meer,\n'
printf ' %s\n' 'à Sète.'
echo laut >&2
"#,
    );
    assert_eq!(stdout, "Ans  Meer,\n à Sète.\n");
    assert_eq!(stderr, "Meer?\n[map: wo ist es]\n[map answered: gefunden]\n");
}

/// What a command complains about belongs to those who run it, not to readers of the conversation.
#[test]
fn the_stderr_of_a_command_that_fails_is_on_the_terminal_and_not_in_the_conversation() {
    let scene = Scene::with_agent("token Ans; printf 'sehr \\033[31mlaut\\n' >&2; exit 7");
    let output = scene.run_command(&[]).output().expect("lastword can be started");
    let said = String::from_utf8(output.stderr).expect("it prints text");
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("sehr \u{fffd}[31mlaut\n") && said.contains("its stderr is in the run's details"), "{said}");
    let shown = scene.data.must(&["show", SESSION, "--json"]).lines.concat();
    let events = scene.data.must(&["tail", SESSION, RUN]).lines.concat();
    assert!(events.contains("\"exit_code\":7"), "{events}");
    assert!(!shown.contains("laut") && !events.contains("laut"), "{shown}\n{events}");
}

#[test]
fn the_last_line_of_an_answer_is_ended() {
    assert_eq!(printed("token Ans").0, "Ans\n");
}

#[test]
fn what_was_streamed_already_is_not_printed_again() {
    let (stdout, _) = printed(
        r#"
token Eins.
say interim_assistant '{"text":"Eins.","already_streamed":true}'
say interim_assistant '{"text":" Zwei.","already_streamed":false}'
token Drei.
"#,
    );
    assert_eq!(stdout, "Eins. Zwei.\n\nDrei.\n");
}

#[test]
fn with_json_the_lines_of_the_journal_are_on_stdout() {
    let scene = Scene::with_agent("token Ans");
    let ended = scene.start().end();
    assert_eq!((ended.code(), ended.stderr.as_str()), (Some(0), ""));
    assert_eq!(ended.lines, scene.journalled(RUN));
    assert_eq!(names(&ended.lines), ["attempt", "token", "exit", "done"]);
}

#[test]
fn an_unknown_runner_is_refused_with_the_names_of_those_that_exist() {
    let scene = Scene::with_agent(":");
    let ended = refused(&scene, &[&AGAIN[..], &["--runner", "nobody"]].concat(), 2);
    assert!(["nobody", "agent", "demo"].iter().all(|name| ended.stderr.contains(name)), "{}", ended.stderr);
    assert_eq!(scene.journalled(RUN), [] as [&str; 0]);
}

#[test]
fn a_missing_session_is_the_answer_no() {
    let scene = Scene::with_agent(":");
    let ended = refused(&scene, &["run", "nowhere", "--message", PROMPT], 1);
    assert!(ended.stderr.contains("nowhere"), "{}", ended.stderr);
    assert!(!scene.data.root().join("nowhere.json").exists());
}

#[test]
fn a_broken_configuration_is_refused_by_name() {
    for text in ["default_runner = ", "speed = 1\n", "default_runner = \"nobody\"\n", "[runners.x]\nkind = \"magic\"\n"]
    {
        let scene = Scene::with_agent(":");
        scene.configure(text);
        let ended = refused(&scene, &AGAIN, 2);
        assert!(ended.stderr.contains("_lastword.toml"), "{text:?}: {}", ended.stderr);
    }
    let scene = Scene::with_agent(":");
    let ended = refused(&scene, &[&AGAIN[..], &["--config", "no/such/file.toml"]].concat(), 2);
    assert!(ended.stderr.contains("no/such/file.toml"), "{}", ended.stderr);
}

#[test]
fn beside_another_writer_the_program_is_busy() {
    let scene = Scene::with_agent("token Ans; stay");
    let mut run = scene.start();
    scene.wait_until_reached();
    refused(&scene, &AGAIN, 3);
    assert!(!scene.survivors().is_empty(), "whoever is refused ends nobody");
    run.kill();
}

#[test]
fn the_id_of_a_run_is_taken_once() {
    let scene = Scene::with_agent("token Ans");
    scene.data.must(&[&AGAIN[..], &["--run", RUN]].concat());
    let ended = refused(&scene, &[&AGAIN[..], &["--run", RUN]].concat(), 1);
    assert!(ended.stderr.contains(RUN), "{}", ended.stderr);
    assert_eq!(scene.work(RUN).len(), 1);
}

/// A command with a variable in its environment.
fn with(mut command: Command, name: &str, value: &str) -> Command {
    command.env(name, value);
    command
}

#[test]
fn a_flag_wins_over_the_file_and_the_file_over_the_environment() {
    let scene = Scene::with_agent("sleep 600");
    let silent = |file: &str, flags: &[&str]| {
        let agent = "kind = \"command\"\ncommand = [\"/bin/sleep\", \"600\"]";
        scene.configure(&format!("[runs]\nattempts_max = 1\n[runners.silent]\n{agent}\n{file}"));
        let command = scene.data.command(&[&AGAIN[..], &["--runner", "silent"], flags].concat());
        let ended = Process::start(with(command, "LASTWORD_TTFB_TIMEOUT_SECONDS", "0.25")).end();
        assert_eq!(ended.code(), Some(1));
        ended.stderr
    };
    assert!(silent("", &[]).contains("within 0.25 s (TTFB"), "the environment, where nothing else is said");
    assert!(silent("ttfb_timeout_seconds = 0.5", &[]).contains("within 0.5 s (TTFB"));
    let flag = ["--ttfb-timeout-seconds", "0.75"];
    assert!(silent("ttfb_timeout_seconds = 600", &flag).contains("within 0.75 s (TTFB"));
}

#[test]
fn a_runner_that_is_configured_as_the_demo_stays_what_it_is() {
    let scene = Scene::with_demo();
    scene.configure("[runners.demo]\nkind = \"command\"\ncommand = [\"/bin/echo\", \"mine\"]\n");
    let command = scene.data.command(&AGAIN);
    let ended = Process::start(with(command, "LASTWORD_DEMO_PACE_MS", "1")).end();
    assert_eq!(ended.lines, ["mine"], "{}", ended.stderr);
}

#[test]
fn an_answer_that_fails_is_the_answer_no_and_says_why() {
    let scene = Scene::with_agent("token Ans; echo 'kein Netz' >&2; exit 7");
    let ended = scene.start().end();
    assert_eq!(ended.code(), Some(1));
    assert!(ended.stderr.contains("exit code 7") && ended.stderr.contains("kein Netz"), "{}", ended.stderr);
    assert_eq!(scene.data.must(&[&AGAIN[..], &["--run", "r2"]].concat()).lines, [PLAIN_ANSWER]);
}
