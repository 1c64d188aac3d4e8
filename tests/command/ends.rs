//! How a command ends decides how its run ends; what it complained about is kept.

use lastword::model::Object;
use lastword::run::{BudgetSettings, CommandRunner, RunFailure};

use crate::agent::Agent;
use crate::house::{rows, seconds_since};

/// What the command's exit left in the journal.
fn exit(agent: &Agent, run: &lastword::RunId) -> Object {
    let events = agent.house.events(run);
    let exit = events.iter().rfind(|event| event.name == "exit").expect("its exit is noted");
    Object::parse(exit.payload()).unwrap()
}

/// What is kept of the stderr of a run's commands.
fn stderr(agent: &Agent, run: &lastword::RunId) -> String {
    agent.house.store.stderr_tail(&agent.house.session, run).unwrap().unwrap_or_default()
}

fn journal(agent: &Agent, run: &lastword::RunId) -> std::path::PathBuf {
    agent.house.data().join(format!("_run_journal/{}/{run}.jsonl", agent.house.session))
}

#[tokio::test]
async fn exit_code_and_the_end_of_stderr_are_kept() {
    let agent = Agent::new("echo half; echo 'first trouble' >&2; echo 'the disk is on fire' >&2; exit 7");
    let (run, end) = agent.house.answer("hi").await;
    let Some(RunFailure { kind, message }) = end.failure else { panic!("it did not fail") };
    assert_eq!(kind, "command_failed");
    assert!(message.contains("exit code 7") && message.contains("its stderr is in the run's details"), "{message}");
    let (exit, last) = (exit(&agent, &run), agent.house.last_words(&run));
    assert_eq!((exit.get("exit_code"), last.get("exit_code")), (Some("7"), Some("7")));
    assert_eq!(stderr(&agent, &run), "first trouble\nthe disk is on fire\n");
    assert_eq!(last.text("close_reason").unwrap(), "exit");
    let journal = std::fs::read_to_string(journal(&agent, &run)).unwrap();
    let document = format!("{:?}", agent.house.transcript().messages().collect::<Vec<_>>());
    assert!(!journal.contains("trouble") && !journal.contains("fire") && !journal.contains("stderr_tail"), "{journal}");
    assert!(!document.contains("trouble") && !document.contains("fire"), "{document}");
    assert_eq!(agent.house.rows(), rows(&[("user", "hi"), ("assistant", "half"), ("notice", "command_failed")]));
}

#[tokio::test]
async fn complaints_of_a_command_that_succeeds_are_kept_too() {
    let agent = Agent::new("echo fine; echo 'deprecated' >&2");
    let (run, end) = agent.house.answer("hi").await;
    assert!(end.is_completed(), "{end:?}");
    assert_eq!(stderr(&agent, &run), "deprecated\n");
    assert_eq!(agent.house.complaints(), [("deprecated\n".to_owned(), false)]);
}

#[tokio::test]
async fn of_a_flood_on_stderr_the_end_is_kept() {
    let agent = Agent::new("head -c 3000000 /dev/zero | tr '\\000' y >&2; echo 'the end' >&2; exit 3");
    let (run, _) = agent.house.answer("hi").await;
    let tail = stderr(&agent, &run);
    assert!(tail.len() == 8 * 1024 && tail.ends_with("y\u{74}he end\n"), "{} bytes", tail.len());
}

#[tokio::test]
async fn stderr_of_all_attempts_is_kept() {
    let script =
        "echo x >> $0/starts; n=$(wc -l < $0/starts); echo \"trouble $n\" >&2; [ $n -ge 2 ] || exit 75; echo fine";
    let agent = Agent::new(script);
    let (run, end) = agent.house.answer("hi").await;
    assert!(end.is_completed(), "{end:?}");
    assert_eq!(stderr(&agent, &run), "trouble 1\ntrouble 2\n");
    assert_eq!(agent.house.complaints(), [("trouble 1\n".to_owned(), true), ("trouble 2\n".to_owned(), false)]);
}

#[tokio::test]
async fn stderr_of_a_command_that_is_stopped_is_kept() {
    let agent = Agent::new("echo why >&2; echo half; touch $0/said; sleep 600");
    let mut started = agent.house.start("hi").await;
    crate::agent::until("it has complained", || agent.folder.path().join("said").exists()).await;
    assert!(agent.house.supervisor.stop(&agent.house.session, started.run()).await.unwrap());
    started.gone().await;
    assert_eq!(stderr(&agent, started.run()), "why\n");
    assert_eq!(agent.house.complaints(), [("why\n".to_owned(), false)], "a command that is stopped has not failed");
}

#[tokio::test]
async fn an_end_that_is_no_error_is_no_failure_of_the_command() {
    let limit = r#"{"event":"apperror","payload":{"type":"tool_limit_reached","message":"m"}}"#;
    let agent = Agent::new(&format!("echo why >&2; echo '{limit}'"));
    agent.house.answer("hi").await;
    assert_eq!(agent.house.complaints(), [("why\n".to_owned(), false)]);
}

#[tokio::test]
async fn a_declared_failure_is_read_in_either_spelling() {
    for payload in [r#"{"type":"quota","message":"It is used up."}"#, r#"{"code":"quota","error":"It is used up."}"#] {
        let agent = Agent::new(&format!(r#"echo '{{"event":"error","payload":{payload}}}'"#));
        let (run, end) = agent.house.answer("hi").await;
        assert!(end.has_failed_as("quota"), "{end:?}");
        assert_eq!(agent.house.last_words(&run).text("message").as_deref(), Some("It is used up."), "{payload}");
    }
}

#[tokio::test]
async fn stderr_of_a_command_that_stalls_is_that_of_a_failure() {
    let (first, next) = (BudgetSettings::default(), BudgetSettings::default());
    for (budgets, script) in [
        (BudgetSettings { first_event_seconds: Some(0.3), ..first }, "echo why >&2; sleep 600"),
        (BudgetSettings { idle_seconds: Some(0.3), ..next }, "echo why >&2; echo half; sleep 600"),
    ] {
        let agent = Agent::with(budgets, script);
        let (run, end) = agent.house.answer("hi").await;
        assert!(end.has_failed_as("timeout"), "{end:?}");
        assert!(stderr(&agent, &run).starts_with("why\n"), "{script}");
        let complaints = agent.house.complaints();
        assert!(!complaints.is_empty() && complaints.iter().all(|(text, has_failed)| text == "why\n" && *has_failed));
    }
}

#[cfg(unix)]
#[tokio::test]
async fn the_record_that_holds_stderr_is_private() {
    use std::os::unix::fs::PermissionsExt;
    let agent = Agent::new("echo secret >&2; echo fine");
    let (run, _) = agent.house.answer("hi").await;
    let record = agent.house.data().join(format!("_run_journal/{}/_{run}.run", agent.house.session));
    assert!(std::fs::read_to_string(&record).unwrap().contains("secret"));
    assert_eq!(std::fs::metadata(&record).unwrap().permissions().mode() & 0o777, 0o600);
}

#[tokio::test]
async fn a_command_that_a_signal_ends_has_no_exit_code() {
    let agent = Agent::new("echo half; kill -9 $$");
    let (run, end) = agent.house.answer("hi").await;
    assert!(end.has_failed_as("command_killed"), "{end:?}");
    let exit = exit(&agent, &run);
    assert_eq!((exit.get("exit_code"), exit.text("ended_by").unwrap().as_ref()), (Some("null"), "signal 9"));
}

#[tokio::test]
async fn a_command_that_is_not_there_is_named_and_not_asked_again() {
    let agent = Agent::made(BudgetSettings::default(), "", |_| CommandRunner {
        command: vec!["no-such-agent-anywhere".to_owned()],
        ..CommandRunner::default()
    });
    let (run, end) = agent.house.answer("hi").await;
    let Some(RunFailure { kind, message }) = end.failure else { panic!("it did not fail") };
    assert_eq!(kind, "command_not_found");
    assert!(message.contains("no-such-agent-anywhere") && message.contains("configuration"), "{message}");
    assert_eq!(agent.house.names(&run), ["attempt", "exit", "apperror"]);
}

#[tokio::test]
async fn a_folder_that_is_not_there_is_a_failure_to_start() {
    let agent = Agent::made(BudgetSettings::default(), "echo hi", |runner| CommandRunner {
        folder: Some("/no/such/folder".into()),
        ..runner
    });
    let (_, end) = agent.house.answer("hi").await;
    assert!(end.has_failed_as("command_not_started"), "{end:?}");
}

#[tokio::test]
async fn success_without_a_word_is_a_failure() {
    let agent = Agent::new("exit 0");
    let (_, end) = agent.house.answer("hi").await;
    assert!(end.has_failed_as("empty_answer"), "{end:?}");
}

#[tokio::test]
async fn exit_code_75_asks_for_another_attempt_until_something_was_shown() {
    let agent = Agent::new("echo x >> $0/starts; [ $(wc -l < $0/starts) -ge 3 ] || exit 75; echo third time");
    let (run, end) = agent.house.answer("hi").await;
    assert!(end.is_completed(), "{end:?}");
    assert_eq!(agent.starts(), 3);
    let names = agent.house.names(&run);
    assert_eq!(names.iter().filter(|name| *name == "attempt_end").count(), 2, "{names:?}");
    assert_eq!(agent.house.rows(), rows(&[("user", "hi"), ("assistant", "third time")]));
    let agent = Agent::new("echo x >> $0/starts; echo seen; exit 75");
    let (_, end) = agent.house.answer("hi").await;
    assert!(end.failure.is_some(), "{end:?}");
    assert_eq!(agent.starts(), 1);
}

#[tokio::test]
async fn a_command_says_itself_how_its_answer_ends() {
    let agent = Agent::new(
        r#"echo x >> $0/starts
           echo '{"event":"apperror","payload":{"type":"quota","message":"Come back tomorrow.","plan":"free"}}'
           echo 'behind the end nothing counts'; exit 4"#,
    );
    let (run, end) = agent.house.answer("hi").await;
    let Some(RunFailure { kind, message }) = end.failure else { panic!("it did not fail") };
    assert_eq!((kind.as_str(), message.as_str(), agent.starts()), ("quota", "Come back tomorrow.", 1));
    let last = agent.house.last_words(&run);
    assert_eq!((last.text("plan").unwrap().as_ref(), last.get("exit_code")), ("free", Some("4")));
    assert_eq!(agent.house.rows(), rows(&[("user", "hi"), ("notice", "quota")]));
}

#[tokio::test]
async fn a_declared_failure_that_may_pass_is_tried_again() {
    let agent = Agent::new(
        r#"echo x >> $0/starts
           [ $(wc -l < $0/starts) = 1 ] && echo '{"event":"apperror","payload":{"type":"busy","retryable":true}}' && exit 1
           echo better"#,
    );
    assert!(agent.house.answer("hi").await.1.is_completed());
    assert_eq!(agent.house.rows(), rows(&[("user", "hi"), ("assistant", "better")]));
}

#[tokio::test]
async fn a_command_that_is_done_and_does_not_go_is_made_to() {
    let agent = Agent::new(r#"echo $$ > $0/pid; echo all; echo '{"event":"done"}'; sleep 600"#);
    let begin = tokio::time::Instant::now();
    let (run, end) = agent.house.answer("hi").await;
    assert!(end.is_completed(), "{end:?}");
    assert!(seconds_since(begin) < 20.0);
    assert_eq!(agent.house.names(&run).last().unwrap(), "done");
    assert!(!crate::agent::is_alive(&agent.line("pid").await));
}

#[tokio::test]
async fn a_child_that_holds_on_to_stdout_does_not_keep_the_run_and_goes_with_it() {
    let agent = Agent::new("sleep 600 & echo $! > $0/child; echo all");
    let begin = tokio::time::Instant::now();
    let (_, end) = agent.house.answer("hi").await;
    assert!(end.is_completed(), "{end:?}");
    assert!(seconds_since(begin) < 20.0);
    assert!(!crate::agent::is_alive(&agent.line("child").await));
    assert_eq!(agent.house.rows(), rows(&[("user", "hi"), ("assistant", "all")]));
}

#[tokio::test]
async fn a_child_that_goes_on_talking_does_not_keep_the_run_open() {
    let agent = Agent::new("(while :; do echo log; sleep 0.2; done) & echo $! > $0/child; echo all");
    let begin = tokio::time::Instant::now();
    let (_, end) = agent.house.answer("hi").await;
    assert!(end.is_completed(), "{end:?}");
    assert!(seconds_since(begin) < 20.0, "{} s", seconds_since(begin));
    assert!(!crate::agent::is_alive(&agent.line("child").await));
    assert!(agent.house.rows()[1].1.contains("all"));
}

#[tokio::test]
async fn a_child_without_a_mark_ends_with_its_group_too() {
    let agent = Agent::new("env -i sleep 600 > /dev/null 2>&1 & echo $! > $0/child; echo all");
    let (_, end) = agent.house.answer("hi").await;
    assert!(end.is_completed(), "{end:?}");
    assert!(!crate::agent::is_alive(&agent.line("child").await));
    assert_eq!(agent.noted(), 0);
}

#[tokio::test]
async fn a_failure_that_is_too_long_for_a_line_is_told_in_brief() {
    const LONG: usize = lastword::limits::LINE_BYTES_MAX - 8_000;
    let agent = Agent::new(&format!(
        r#"printf '{{"event":"apperror","payload":{{"type":"long","retryable":true,"x":"'
           head -c {LONG} /dev/zero | tr '\000' x
           printf '"}}}}\n'; head -c 9000 /dev/zero | tr '\000' y >&2"#
    ));
    let (run, end) = agent.house.answer("hi").await;
    assert!(end.has_failed_as("long"), "{end:?}");
    let names = agent.house.names(&run);
    assert_eq!(names.iter().filter(|name| *name == "attempt").count(), 3, "{names:?}");
}

#[tokio::test]
async fn a_process_of_its_own_that_never_stops_complaining_does_not_keep_the_run() {
    let agent = Agent::new("setsid sh -c 'echo $$ > '$0'/stray; exec yes >&2' & sleep 0.3; echo all");
    let begin = tokio::time::Instant::now();
    let (run, end) = agent.house.answer("hi").await;
    assert!(end.is_completed(), "{end:?}");
    assert!(seconds_since(begin) < 20.0, "{} s", seconds_since(begin));
    assert!(stderr(&agent, &run).len() <= 8 * 1024);
    // It left the group, and is nobody's but this test's.
    let stray = agent.line("stray").await;
    let _ = std::process::Command::new("kill").args(["-9", &stray]).status();
}
