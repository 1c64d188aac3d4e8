//! What a command is told, and what becomes of what it prints.

use lastword::UserTurn;
use lastword::model::AttachmentId;
use lastword::run::{BudgetSettings, CommandRunner, InheritEnv, OutputForm};
use serde_json::json;

use crate::agent::{Agent, until};
use crate::house::rows;

#[tokio::test]
async fn a_command_is_given_the_turn_as_one_line_of_json() {
    let agent = Agent::new("cat > $0/input; echo fine");
    let (run, end) = agent.house.answer("Where to, \"friend\"?\nBy the sea? \u{1f30a}").await;
    assert!(end.is_completed(), "{end:?}");
    let message = "Where to, \"friend\"?\nBy the sea? \u{1f30a}";
    let expected = json!({
        "message": message, "attachments": [], "context": [{"role": "user", "content": message}],
        "session_id": agent.house.session.as_str(), "run_id": run.as_str(), "agent_session_id": null, "attempt": 1,
    });
    assert_eq!(agent.json("input"), expected);
    assert_eq!(agent.written("input").lines().count(), 1);
}

#[tokio::test]
async fn a_command_is_given_stored_files_as_data_urls() {
    let agent = Agent::new("cat > $0/input; echo fine");
    let (store, session) = (&agent.house.store, &agent.house.session);
    let stored = store.put_attachment(session, b"abc", "image/png", None).unwrap().id.to_url();
    let gone = AttachmentId::of_bytes(b"never stored").to_url();
    let file = |url: &str| json!({"type": "file", "mediaType": "image/png", "filename": "a.png", "url": url});
    let given = json!([file(&stored), file(&gone), file("https://x/a.png"), "notes.txt"]);
    let turn = UserTurn { attachments: given.to_string(), ..UserTurn::text("What is this?") };
    let mut started = agent.house.supervisor.start(session, turn, None).await.unwrap();
    assert!(started.ended().await.is_completed());
    let expected = json!([file("data:image/png;base64,YWJj"), file(&gone), file("https://x/a.png"), "notes.txt"]);
    assert_eq!(agent.json("input")["attachments"], expected);
    let image = json!({"type": "image_url", "image_url": {"url": "data:image/png;base64,YWJj"}});
    assert_eq!(agent.json("input")["context"][0]["content"][1], image, "the context has it as a content part");
}

#[tokio::test]
async fn the_conversation_so_far_is_its_context() {
    let agent = Agent::new("cat > $0/input; echo one answer");
    agent.house.answer("one").await;
    agent.house.answer("two").await;
    let expected = json!([
        {"role": "user", "content": "one"}, {"role": "assistant", "content": "one answer"},
        {"role": "user", "content": "two"},
    ]);
    assert_eq!(agent.json("input")["context"], expected);
}

#[tokio::test]
async fn a_command_finds_its_folder_and_environment() {
    let agent =
        Agent::made(BudgetSettings::default(), "pwd; echo \"$MODE $LASTWORD_SESSION_ID $LASTWORD_RUN_ID\"", |runner| {
            CommandRunner {
                folder: Some("/".into()),
                environment: vec![("MODE".to_owned(), "chat".to_owned())],
                ..runner
            }
        });
    let (run, _) = agent.house.answer("hi").await;
    assert_eq!(agent.house.rows()[1].1, format!("/\nchat {} {run}", agent.house.session));
}

/// The test runner gives this process variables of its own (`CARGO_..`): they stand for a server's keys.
#[tokio::test]
async fn a_command_is_given_only_the_variables_that_are_named() {
    assert!(std::env::var_os("CARGO_PKG_NAME").is_some() && std::env::var_os("CARGO_MANIFEST_DIR").is_some());
    let names = |printed: &str| -> Vec<String> {
        let mut names: Vec<String> =
            printed.lines().filter_map(|line| Some(line.split_once('=')?.0.to_owned())).collect();
        names.sort();
        names
    };
    let is_given = |name: &str| {
        let is_needed = ["PATH", "HOME", "LANG", "LANGUAGE"].contains(&name) || name.starts_with("LC_");
        is_needed || ["LASTWORD_SESSION_ID", "LASTWORD_RUN_ID", "LASTWORD_GROUP", "MODE"].contains(&name)
    };
    // What the shell itself sets.
    let is_of_the_shell = |name: &str| ["PWD", "OLDPWD", "SHLVL", "_"].contains(&name);
    let run = async |inherit: &[&str]| {
        let agent = Agent::made(BudgetSettings::default(), "env > $0/env; echo hi", |runner| CommandRunner {
            environment: vec![("MODE".to_owned(), "chat".to_owned())],
            inherit_env: InheritEnv::of(inherit.iter().copied()).unwrap(),
            ..runner
        });
        assert!(agent.house.answer("hi").await.1.is_completed());
        names(&agent.written("env"))
    };
    let given = run(&[]).await;
    let odd: Vec<_> = given.iter().filter(|name| !is_given(name) && !is_of_the_shell(name)).collect();
    assert!(odd.is_empty(), "{odd:?}");
    for name in ["PATH", "MODE", "LASTWORD_SESSION_ID", "LASTWORD_RUN_ID"] {
        assert!(given.iter().any(|known| known == name), "{name}: {given:?}");
    }
    let given = run(&["CARGO_PKG_NAME", "CARGO_MANIFEST_*"]).await;
    let more: Vec<_> = given.iter().filter(|name| name.starts_with("CARGO")).collect();
    assert!(more.iter().all(|name| *name == "CARGO_PKG_NAME" || name.starts_with("CARGO_MANIFEST_")), "{more:?}");
    assert!(more.len() >= 2, "{more:?}");
}

#[tokio::test]
async fn plain_text_is_the_answer() {
    let agent = Agent::new("printf 'To the '; sleep 0.1; printf 's\\303'; sleep 0.1; printf '\\251a.\\n'");
    let (run, _) = agent.house.answer("hi").await;
    assert_eq!(agent.house.rows(), rows(&[("user", "hi"), ("assistant", "To the s\u{e9}a.")]));
    assert_eq!(
        agent.house.names(&run).iter().filter(|name| *name == "token").count(),
        3,
        "it does not wait for a line"
    );
}

#[tokio::test]
async fn lines_that_are_events_are_events() {
    let agent = Agent::new(
        r#"echo '{"event":"reasoning","payload":{"text":"hm"}}'
           echo '{"event":"token","payload":{"text":"Let me look."}}'
           echo '{"event":"tool","payload":{"name":"map","preview":"sea","tool_call_id":"c1"}}'
           echo '{"event":"tool_complete","payload":{"name":"map","tool_call_id":"c1","preview":"blue"}}'
           echo 'A plain line.'
           echo '{"event":"something_new","payload":{"x":1}}'
           echo '{"event":"done"}'"#,
    );
    let (run, end) = agent.house.answer("hi").await;
    assert!(end.is_completed(), "{end:?}");
    let names = ["attempt", "reasoning", "token", "tool", "tool_complete", "token", "something_new", "exit", "done"];
    assert_eq!(agent.house.names(&run), names);
    assert_eq!(
        agent.house.rows(),
        rows(&[("user", "hi"), ("assistant", "Let me look."), ("assistant", "A plain line.")])
    );
    assert_eq!(agent.house.transcript().message(1).unwrap().reasoning().unwrap(), "hm");
}

#[tokio::test]
async fn a_last_line_without_its_line_feed_counts_like_any_other() {
    let agent = Agent::new(r#"printf 'A word. '; printf '\n{"event":"token","payload":{"text":"The last."}}'"#);
    let (_, end) = agent.house.answer("hi").await;
    assert!(end.is_completed(), "{end:?}");
    assert!(agent.house.rows()[1].1.ends_with("The last."), "{:?}", agent.house.rows());
    let agent = Agent::new(r#"echo half; printf '{"event":"apperror","payload":{"type":"quota"}}'"#);
    let (_, end) = agent.house.answer("hi").await;
    assert!(end.has_failed_as("quota"), "{end:?}");
}

#[tokio::test]
async fn json_that_is_no_event_is_shown_as_it_comes_and_is_kept_by_a_stop() {
    let agent = Agent::new(r#"printf '{"city": "'; sleep 0.2; printf 'S\303\250te'; touch $0/said; sleep 600"#);
    let started = agent.house.start("hi").await;
    until("it has spoken", || agent.folder.path().join("said").exists()).await;
    until("it is written", || agent.house.names(started.run()).len() >= 3).await;
    agent.house.supervisor.stop(&agent.house.session, started.run()).await.unwrap();
    assert_eq!(agent.house.rows()[1].1, "{\"city\": \"S\u{e8}te");
}

#[tokio::test]
async fn what_looks_like_an_event_is_text_if_everything_is() {
    let agent = Agent::made(BudgetSettings::default(), r#"echo '{"event":"done"}'; echo more"#, |runner| {
        CommandRunner { output: OutputForm::Text, ..runner }
    });
    agent.house.answer("hi").await;
    assert_eq!(agent.house.rows()[1].1, "{\"event\":\"done\"}\nmore");
}

#[tokio::test]
async fn bytes_that_are_no_text_harm_nobody() {
    let agent = Agent::new("printf 'a\\377\\000b\\355\\240\\200\\n{\"event\":\\377}\\nend'");
    let (_, end) = agent.house.answer("hi").await;
    assert!(end.is_completed(), "{end:?}");
    let said = agent.house.rows()[1].1.clone();
    assert!(said.starts_with("a\u{fffd}\0b") && said.ends_with("end"), "{said:?}");
}

#[tokio::test]
async fn megabytes_without_a_line_feed_arrive_whole() {
    const BYTES: usize = 5 << 20;
    let agent = Agent::new(&format!("head -c {BYTES} /dev/zero | tr '\\000' x"));
    let (_, end) = agent.house.answer("hi").await;
    assert!(end.is_completed(), "{end:?}");
    let said = agent.house.rows()[1].1.clone();
    assert!(said.len() == BYTES && said.bytes().all(|byte| byte == b'x'), "{} bytes", said.len());
}

#[tokio::test]
async fn a_command_that_reads_nothing_is_not_waited_for() {
    let agent = Agent::new("exec < /dev/null; echo short");
    let (_, end) = agent.house.answer(&"long ".repeat(200_000)).await;
    assert!(end.is_completed(), "{end:?}");
    assert_eq!(agent.house.rows()[1].1, "short");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_commands_answer_at_once_each_in_its_own_session() {
    let agent = Agent::new("read -r line; sleep 0.2; echo \"$LASTWORD_SESSION_ID\"");
    let mut started = Vec::new();
    for at in 0..40 {
        let session = agent.house.store.create(lastword::NewSession::titled(&at.to_string())).unwrap();
        let turn = lastword::UserTurn::text("hi");
        started.push((session.clone(), agent.house.supervisor.start(&session, turn, None).await.unwrap()));
    }
    for (session, mut run) in started {
        assert!(run.ended().await.is_completed());
        run.gone().await;
        let transcript = agent.house.store.get_session(&session).unwrap();
        assert_eq!(transcript.message(1).unwrap().content(), session.as_str());
    }
    assert_eq!(agent.noted(), 0);
}
