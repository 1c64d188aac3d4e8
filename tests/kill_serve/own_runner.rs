//! The server dies while its own runner answers: whoever looked on sees all of it and an end, and the talk goes on.

use std::time::{Duration, Instant};

use lastword::client::{Client, NewRun};
use lastword::{RunId, SessionId};

use crate::dice::Dice;
use crate::host::{Host, begin, create, demo, in_time, read, run_id, runtime, session_id};
use crate::verdict::{check_directory, check_seen, journal, names, rows, texts};
use crate::watchers::{Seen, watch_run, watch_session};

const SESSION: &str = "talk";
const MESSAGE: &str = "Wohin? Où aller? どこへ?";
const PACE: [&str; 4] = ["--pace-ms", "5", "--log", "warn"];

/// How soon whoever waits is told of the end, once the server is back.
const END_WITHIN: Duration = Duration::from_secs(10);

async fn look_on(client: Client, session: SessionId, run: RunId) -> (Vec<Seen>, Seen) {
    let of_run = || tokio::spawn(watch_run(client.clone(), session.clone(), run.clone()));
    let (first, second) = (of_run(), of_run());
    let of_session = tokio::spawn(watch_session(client.clone(), session.clone(), run.clone()));
    let broken = "no follower breaks";
    (vec![first.await.expect(broken), second.await.expect(broken)], of_session.await.expect(broken))
}

/// The words of a text, as rows and events have them in common: white space at the edges of rows is not kept.
fn squashed(text: &str) -> String {
    text.split_whitespace().collect()
}

/// Kills the server so long after a run began, and looks at what everybody saw. Says whether the run was cut.
fn die_after(delay: Duration, is_hasty: bool) -> bool {
    let mut host = Host::start(&PACE);
    let (runtime, client) = (runtime(), host.client());
    let (session, run, next) = (session_id(SESSION), run_id("r1"), run_id("r2"));
    runtime.block_on(async {
        create(&client, &session).await;
        begin(&client, &session, &demo(&run, MESSAGE)).await;
    });
    let looking = runtime.spawn(look_on(client.clone(), session.clone(), run.clone()));
    std::thread::sleep(delay);
    host.kill();
    host.revive();
    let revived = Instant::now();
    if is_hasty {
        runtime.block_on(async { client.begin_run(&session, &demo(&next, "Und dann?")).await }).expect("it is begun");
    }
    let (of_run, of_session) =
        runtime.block_on(in_time("all see the end", END_WITHIN, looking)).expect("nobody breaks");
    for seen in of_run.iter().chain([&of_session]) {
        let ended = seen.ended_at.expect("it has ended");
        assert!(ended.saturating_duration_since(revived) < END_WITHIN);
    }
    if !is_hasty {
        runtime.block_on(async { client.begin_run(&session, &demo(&next, "Und dann?")).await }).expect("it is begun");
    }
    let second = runtime.block_on(in_time(
        "the next answer ends",
        END_WITHIN,
        look_on(client.clone(), session.clone(), next.clone()),
    ));
    let shown = runtime.block_on(read(&client, &session));
    host.stop();
    let lines = journal(&host.data, SESSION, "r1");
    of_run.iter().chain([&of_session]).for_each(|seen| check_seen(seen, &run, &lines));
    let next_lines = journal(&host.data, SESSION, "r2");
    second.0.iter().chain([&second.1]).for_each(|seen| check_seen(seen, &next, &next_lines));
    assert_eq!(second.1.end_of(&next).map(|end| end.state.as_str()), Some("completed"));
    check_directory(&host.data);
    check_rows(&shown, &lines, &next_lines)
}

/// The transcript has the words of the first run, once, and a marker if it was cut; then the second run.
fn check_rows(shown: &serde_json::Value, lines: &[String], next_lines: &[String]) -> bool {
    let rows = rows(shown);
    let second = rows.iter().position(|(_, content)| content == "Und dann?").expect("the second turn is there");
    let (first, second) = rows.split_at(second);
    let is_cut = names(lines).last().is_some_and(|name| name == "apperror");
    let of = |rows: &[(String, String)], wanted: &str| -> String {
        squashed(
            &rows.iter().filter(|(role, _)| role == wanted).map(|(_, content)| content.as_str()).collect::<String>(),
        )
    };
    assert_eq!(of(first, "user"), squashed(MESSAGE));
    assert_eq!(of(first, "assistant"), squashed(&texts(lines, "token").concat()), "{rows:#?}");
    assert_eq!(first.iter().filter(|(role, _)| role == "notice").count(), usize::from(is_cut), "{rows:#?}");
    assert_eq!(of(second, "assistant"), squashed(&texts(next_lines, "token").concat()), "{rows:#?}");
    assert!(second.iter().all(|(role, _)| role != "notice"), "{rows:#?}");
    is_cut
}

fn check(seed: u64, is_hasty: bool) {
    let mut dice = Dice(seed);
    let mut cut = 0;
    for _ in 0..3 {
        let delay = Duration::from_millis(30) + dice.millis(900);
        println!("seed {seed}: killed after {delay:?}");
        cut += usize::from(die_after(delay, is_hasty));
    }
    assert!(cut > 0, "nobody died in the middle of an answer");
}

#[test]
fn an_answer_that_the_servers_death_cut_is_seen_whole_up_to_there_and_ends_soon() {
    check(1, false);
}

#[test]
fn the_next_turn_can_be_begun_as_soon_as_the_server_is_back() {
    check(2, true);
}

/// Also a key in the server's own environment does not get to its commands, and so not into its log.
#[test]
fn the_server_logs_the_stderr_of_a_command_that_fails_with_the_run_and_gives_it_none_of_its_keys() {
    let data = crate::data::Data::nowhere();
    data.must(&["new", "--id", SESSION]);
    let config = data.root().join("_lastword.toml");
    let script = "printf 'laut \\033[31m'>&2; env >&2; exit 7";
    let text = format!("[runners.agent]\nkind = \"command\"\ncommand = [\"/bin/sh\", \"-c\", {script:?}]\n");
    std::fs::write(&config, text).expect("the data can be written");
    let mut host = Host::on(data, &["--log", "warn"]).with("SOME_API_KEY", "sk-4711");
    host.revive();
    let (runtime, client) = (runtime(), host.client());
    let (session, run) = (session_id(SESSION), run_id("r1"));
    let asked = NewRun { runner: Some("agent".to_owned()), ..demo(&run, MESSAGE) };
    runtime.block_on(begin(&client, &session, &asked));
    let seen = watch_run(client.clone(), session.clone(), run.clone());
    runtime.block_on(in_time("the end is told", END_WITHIN, seen));
    let log = host.stop().stderr;
    let warned = log.lines().find(|line| line.contains("a command failed")).unwrap_or_else(|| panic!("{log}"));
    assert!(warned.contains("WARN") && warned.contains("run=r1") && warned.contains("laut"), "{log}");
    assert!(!log.contains('\u{1b}'), "nothing that a terminal obeys: {log}");
    assert!(!log.contains("4711"), "{log}");
    let kept = std::fs::read_to_string(host.data.root().join(format!("_run_journal/{SESSION}/_r1.run")));
    let kept = kept.expect("the record can be read");
    assert!(kept.contains("laut") && kept.contains("LASTWORD_RUN_ID=r1") && !kept.contains("4711"), "{kept}");
    check_directory(&host.data);
}

#[test]
fn a_death_before_the_first_word_leaves_the_prompt_and_a_marker() {
    let mut host = Host::start(&["--pace-ms", "5000", "--log", "warn"]);
    let (runtime, client) = (runtime(), host.client());
    let (session, run) = (session_id(SESSION), run_id("r1"));
    runtime.block_on(async {
        create(&client, &session).await;
        begin(&client, &session, &demo(&run, MESSAGE)).await;
    });
    host.kill();
    host.revive();
    let seen = watch_run(client.clone(), session.clone(), run.clone());
    let seen = runtime.block_on(in_time("the end is told", END_WITHIN, seen));
    let shown = runtime.block_on(read(&client, &session));
    let roles: Vec<String> = rows(&shown).into_iter().map(|(role, _)| role).collect();
    assert_eq!((roles.first().map(String::as_str), roles.last().map(String::as_str)), (Some("user"), Some("notice")));
    host.stop();
    let lines = host.data.must(&["tail", SESSION, "r1"]).lines;
    let told: Vec<&String> = seen.of(&run).iter().map(|(_, line)| line).collect();
    assert_eq!(told, lines.iter().collect::<Vec<_>>());
}
