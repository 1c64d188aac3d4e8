//! Runners, and runs as they are listed, shown and stopped.

use std::sync::Barrier;
use std::thread;
use std::time::Duration;

use lastword::http::Tokens;
use lastword::run::{CommandRunner, Config, DemoRunner, Outlet, Producing, Prompt, Runner, Runners};
use lastword::{Options, RunId, SessionId};
use serde_json::{Value, json};

use crate::house::{DONE, House, token};
use crate::wire::{Ask, ask};

#[derive(Debug)]
struct Oracle;

impl Runner for Oracle {
    fn produce(&self, _: Prompt, _: Outlet) -> Producing {
        unreachable!("no turn asks it")
    }
}

#[test]
fn runners_are_listed_with_their_kind_and_one_default() {
    let config = r#"
        default_runner = "agent"
        [runners.agent]
        kind = "command"
        command = ["true"]
        [runners.gpt]
        kind = "openai"
        base_url = "http://127.0.0.1:9/v1"
        model = "m"
    "#;
    let runners = Config::parse(config).unwrap().runners.with("oracle", Oracle);
    let house = House::of(Options::default(), runners, |_| {});
    let listed = |name: &str, kind: &str, default: bool| json!({ "name": name, "kind": kind, "default": default });
    let expected = [
        listed("agent", "command", true),
        listed("demo", "demo", false),
        listed("gpt", "openai", false),
        listed("oracle", "custom", false),
    ];
    assert_eq!(house.get("/v1/runners").expect(200).json(), json!({ "runners": expected }));
}

#[test]
fn without_a_configuration_the_demo_is_the_default_runner() {
    let expected = json!({ "runners": [{ "name": "demo", "kind": "demo", "default": true }] });
    assert_eq!(House::new().get("/v1/runners").expect(200).json(), expected);
}

const USAGE: &str = r#"{"event":"usage","payload":{"input_tokens":3,"output_tokens":4,"model":"m"}}"#;
const WRITE: &str = "0123456789abcdef";
const READ: &str = "fedcba9876543210";

/// A run as it is shown.
#[track_caller]
fn shown(house: &House, session: &str, run: &str) -> Value {
    house.get(&format!("/v1/sessions/{session}/runs/{run}")).expect(200).json()
}

/// The list of a session's runs.
#[track_caller]
fn listed(house: &House, session: &str, query: &str) -> Value {
    house.get(&format!("/v1/sessions/{session}/runs{query}")).expect(200).json()
}

#[track_caller]
fn begin(house: &House, session: &str, run: &str) {
    let path = format!("/v1/sessions/{session}/runs");
    house.post(&path, json!({ "message": "Where to?", "run_id": run })).expect(202);
}

fn ids(list: &Value) -> Vec<&str> {
    list["runs"].as_array().unwrap().iter().map(|run| run["run_id"].as_str().unwrap()).collect()
}

fn usage(tokens: [Option<u64>; 3]) -> Value {
    json!({ "input_tokens": tokens[0], "output_tokens": tokens[1], "total_tokens": tokens[2] })
}

fn usage_at_least(tokens: [Option<u64>; 3]) -> Value {
    let mut unknown = usage([None; 3]);
    unknown["at_least"] = usage(tokens);
    unknown
}

#[test]
fn a_run_of_an_outside_producer_is_shown_from_its_beginning_to_its_end() {
    let house = House::new();
    house.run("a", "r1");
    let run = shown(&house, "a", "r1");
    assert_eq!((&run["state"], &run["last_seq"], &run["usage"]), (&json!("unknown"), &json!(0), &usage([None; 3])));
    assert!(run["began_at"].is_f64() && run["ended_at"].is_null() && run["first_event_at"].is_null(), "{run}");

    house.append("a", "r1", &format!("{}\n{USAGE}", token("To the sea"))).expect(200);
    let run = shown(&house, "a", "r1");
    assert_eq!((&run["state"], &run["last_seq"], &run["model"]), (&json!("running"), &json!(2), &json!("m")));
    assert_eq!(run["usage"], usage_at_least([Some(3), Some(4), Some(7)]));
    assert!(run["first_event_at"].as_f64() >= run["began_at"].as_f64() && run["ended_at"].is_null(), "{run}");

    house.append("a", "r1", DONE).expect(200);
    let mut run = shown(&house, "a", "r1");
    let times = ["began_at", "first_event_at", "ended_at"].map(|key| run[key].take().as_f64().expect("a time"));
    assert!(times.is_sorted() && times[0] > 1e9, "{times:?}");
    let expected = json!({
        "run_id": "r1", "state": "completed", "runner": null, "model": "m", "began_at": null, "first_event_at": null,
        "ended_at": null, "last_seq": 3, "attempts": null, "usage": usage([Some(3), Some(4), Some(7)]), "close_reason": null,
    });
    assert_eq!(run, expected);
    house.append("a", "r1", r#"{"event":"stream_end"}"#).expect(200);
    assert_eq!(shown(&house, "a", "r1")["last_seq"], 4);
}

#[test]
fn a_list_has_the_newest_run_last_and_sums_over_all_of_them() {
    let house = House::new();
    house.session("a");
    assert_eq!(listed(&house, "a", ""), json!({ "runs": [], "usage": usage([Some(0), Some(0), Some(0)]) }));
    for run in ["z", "y", "x"] {
        begin(&house, "a", run);
        house.append("a", run, &format!("{}\n{USAGE}\n{DONE}", token("x"))).expect(200);
    }
    let all = listed(&house, "a", "");
    assert_eq!((ids(&all), &all["usage"]), (vec!["z", "y", "x"], &usage([Some(9), Some(12), Some(21)])));
    assert_eq!(all["runs"][1], shown(&house, "a", "y"));
    for (query, expected) in [
        ("?limit=2", vec!["y", "x"]),
        ("?limit=1&before=y", vec!["z"]),
        ("?before=x", vec!["z", "y"]),
        ("?before=z", vec![]),
    ] {
        let page = listed(&house, "a", query);
        assert_eq!((ids(&page), &page["usage"]), (expected, &all["usage"]), "{query}");
    }
    for (query, status) in
        [("?limit=0", 400), ("?limit=1001", 400), ("?limit=x", 400), ("?before=nowhere", 404), ("?before=..", 404)]
    {
        house.get(&format!("/v1/sessions/a/runs{query}")).expect(status);
    }
}

#[test]
fn the_usage_of_a_run_that_did_not_end_by_itself_is_not_known() {
    let house = House::new();
    house.session("a");
    let ends = [
        (r#"{"event":"cancel"}"#, "interrupted-by-user", json!("stopped_by_user")),
        (
            r#"{"event":"apperror","payload":{"type":"busy","message":"m","close_reason":"exit"}}"#,
            "errored",
            json!("exit"),
        ),
        (r#"{"event":"error","payload":{"message":"m"}}"#, "errored", Value::Null),
        (r#"{"event":"apperror","payload":{"type":"interrupted"}}"#, "interrupted-by-crash", json!("producer_gone")),
    ];
    for (nth, (end, state, close_reason)) in ends.iter().enumerate() {
        let run = format!("r{nth}");
        begin(&house, "a", &run);
        house.append("a", &run, &format!("{}\n{USAGE}\n{end}", token("x"))).expect(200);
        let shown = shown(&house, "a", &run);
        assert_eq!((&shown["state"], &shown["close_reason"]), (&json!(state), close_reason), "{shown}");
        assert_eq!(shown["usage"], usage_at_least([Some(3), Some(4), Some(7)]), "{shown}");
        assert!(shown["ended_at"].is_f64() && shown["last_seq"] == 3, "{shown}");
    }
    begin(&house, "a", "limit");
    let limit = r#"{"event":"done","payload":{"terminal_state":"tool_limit_reached","usage":{"input_tokens":1,"output_tokens":1}}}"#;
    house.append("a", "limit", limit).expect(200);
    let run = shown(&house, "a", "limit");
    assert_eq!((&run["state"], &run["usage"]), (&json!("tool_limit_reached"), &usage([Some(1), Some(1), Some(2)])));
    begin(&house, "a", "silent");
    house.append("a", "silent", DONE).expect(200);
    assert_eq!(shown(&house, "a", "silent")["usage"], usage([None; 3]));
    assert_eq!(listed(&house, "a", "")["usage"], usage_at_least([Some(13), Some(17), Some(30)]));
    // A chat says the same.
    let messages = house.get("/api/chat/a/messages").expect(200).json();
    let usage_of = |run: &str| {
        let message = messages.as_array().unwrap().iter().find(|message| message["id"] == run).unwrap();
        message["metadata"]["lastword"]["usage"].clone()
    };
    assert_eq!(usage_of("r0"), Value::Null);
}

#[test]
fn a_run_of_the_server_is_shown_with_its_runner_and_attempts() {
    let script = "[ -e $0/x ] || { touch $0/x; exit 75; }; echo hi";
    let folder = tempfile::tempdir().unwrap();
    let house = House::of(Options::default(), with_agent(script, &folder), |_| {});
    answer(&house, "a", "r1");
    let run = shown(&house, "a", "r1");
    assert_eq!(
        (&run["state"], &run["runner"], &run["attempts"]),
        (&json!("completed"), &json!("agent"), &json!(2)),
        "{run}"
    );
    assert!(run.get("stderr_tail").is_none(), "{run}");
}

#[test]
fn what_is_not_there_is_not_found() {
    let house = House::new();
    house.run("a", "r1");
    for path in ["none/runs", "none/runs/r1", "..%2Fa/runs", "a/runs/r2", "a/runs/..", "a/runs/%2e%2e", "a/runs/r%201"]
    {
        house.get(&format!("/v1/sessions/{path}")).expect(404);
    }
    house.append("a", "r1", DONE).expect(200);
    house.send(&ask("DELETE", "/v1/sessions/a")).expect(204);
    for path in ["a/runs", "a/runs/r1"] {
        assert_eq!(house.get(&format!("/v1/sessions/{path}")).expect(404).code(), "not_found");
    }
}

fn with_agent(script: &str, folder: &tempfile::TempDir) -> Runners {
    let words = ["/bin/sh", "-c", script, folder.path().to_str().unwrap()];
    let command = words.map(str::to_owned).to_vec();
    Runners::default().with("agent", CommandRunner { command, ..CommandRunner::default() })
}

/// Lets the agent answer, with full rights, until its run has ended.
#[track_caller]
fn answer(house: &House, session: &str, run: &str) {
    let with = |ask: Ask| ask.header("authorization", &format!("Bearer {WRITE}"));
    house.send(&with(ask("POST", "/v1/sessions")).json(json!({ "session_id": session })));
    let turn = json!({ "message": "hi", "run_id": run, "runner": "agent" });
    house.send(&with(ask("POST", &format!("/v1/sessions/{session}/runs"))).json(turn)).expect(202);
    let path = format!("/v1/sessions/{session}/runs/{run}/events?follow=true");
    house.send(&with(ask("GET", &path))).expect(200);
}

/// A secret that a command prints on stderr.
const SECRET: &str = "sk-very-secret";

#[test]
fn stderr_is_in_the_runs_details_for_full_rights_and_nowhere_else() {
    for (exit, state) in [(7, "errored"), (0, "completed")] {
        let folder = tempfile::tempdir().unwrap();
        let runners = with_agent(&format!("echo hi; echo 'first {SECRET}' >&2; echo last >&2; exit {exit}"), &folder);
        let text = format!("{WRITE}\n{READ} read-only\n");
        let house = House::of(Options::default(), runners, |options| options.tokens = Tokens::parse(&text).unwrap());
        answer(&house, "a", "r1");
        let get = |path: &str, token: &str| {
            house.send(&ask("GET", path).header("authorization", &format!("Bearer {token}"))).expect(200)
        };
        let run = get("/v1/sessions/a/runs/r1", WRITE).json();
        assert_eq!(
            (&run["state"], &run["stderr_tail"]),
            (&json!(state), &json!(format!("first {SECRET}\nlast\n"))),
            "{run}"
        );
        assert!(get("/v1/sessions/a/runs/r1", READ).json().get("stderr_tail").is_none());
        for path in [
            "/v1/sessions/a/runs",
            "/v1/sessions/a/runs/r1/events",
            "/v1/sessions/a",
            "/v1/sessions",
            "/api/chat/a/messages",
            "/v1/check",
        ] {
            let answer = get(path, WRITE);
            assert!(
                !answer.text().contains(SECRET) && !answer.text().contains("stderr_tail"),
                "{path}: {}",
                answer.text()
            );
        }
        if exit != 0 {
            let events = get("/v1/sessions/a/runs/r1/events", WRITE);
            assert!(events.text().contains("its stderr is in the run's details"), "{}", events.text());
        }
    }
}

/// Sends this many stops at once, and something else with them. Gives how many said that they stopped the run.
#[track_caller]
fn stop_at_once(house: &House, session: &str, run: &str, stops: usize, meanwhile: impl FnOnce() + Send) -> usize {
    let stop = ask("POST", &format!("/v1/sessions/{session}/runs/{run}/stop"));
    let barrier = Barrier::new(stops + 1);
    let stopped = thread::scope(|scope| {
        let send = || {
            barrier.wait();
            house.send(&stop).expect(200).json()["stopped"].as_bool().unwrap()
        };
        let sent: Vec<_> = (0..stops).map(|_| scope.spawn(send)).collect();
        barrier.wait();
        meanwhile();
        sent.into_iter().map(|sent| sent.join().unwrap()).filter(|stopped| *stopped).count()
    });
    assert_eq!(house.send(&stop).expect(200).json()["stopped"], false, "it had ended before");
    stopped
}

const STOPS: usize = 32;

#[test]
fn of_many_stops_of_a_run_of_the_server_one_is_told_that_it_stopped_it() {
    let slow = DemoRunner { pace: Duration::from_millis(20) };
    let house = House::of(Options::default(), Runners::default().with_demo(slow), |_| {});
    for nth in 0..6 {
        let session = format!("s{nth}");
        house.session(&session);
        let turn = json!({ "message": "hi", "run_id": "r", "runner": "demo" });
        house.post(&format!("/v1/sessions/{session}/runs"), turn).expect(202);
        assert_eq!(stop_at_once(&house, &session, "r", STOPS, || {}), 1, "{session}");
        let run = shown(&house, &session, "r");
        assert_eq!((&run["state"], &run["close_reason"]), (&json!("interrupted-by-user"), &json!("stopped_by_user")));
    }
}

#[test]
fn of_many_stops_of_an_outside_producers_run_one_is_told_that_it_stopped_it() {
    let house = House::new();
    for nth in 0..6 {
        let session = format!("s{nth}");
        house.run(&session, "r");
        house.tokens(&session, "r", &["half"]);
        assert_eq!(stop_at_once(&house, &session, "r", STOPS, || {}), 1, "{session}");
        let run = shown(&house, &session, "r");
        assert_eq!((&run["state"], &run["close_reason"]), (&json!("interrupted-by-user"), &json!("stopped_by_user")));
    }
}

/// Whichever comes first: the stop that ended the run is the only one that says so, and none does if the run ended by itself.
#[test]
fn a_run_that_ends_by_itself_while_it_is_stopped_is_stopped_by_one_or_by_none() {
    let quick = DemoRunner { pace: Duration::ZERO };
    let house = House::of(Options::default(), Runners::default().with_demo(quick), |_| {});
    let expected = |session: &str| match shown(&house, session, "r")["state"].as_str().unwrap() {
        "completed" => 0,
        "interrupted-by-user" => 1,
        other => panic!("{other}"),
    };
    for nth in 0..12 {
        let outside = format!("o{nth}");
        house.run(&outside, "r");
        let end = || drop(house.append(&outside, "r", DONE));
        assert_eq!(stop_at_once(&house, &outside, "r", 8, end), expected(&outside), "{outside}");

        let own = format!("s{nth}");
        house.session(&own);
        let turn = json!({ "message": "hi", "run_id": "r", "runner": "demo" });
        house.post(&format!("/v1/sessions/{own}/runs"), turn).expect(202);
        assert_eq!(stop_at_once(&house, &own, "r", 8, || {}), expected(&own), "{own}");
    }
}

/// A stop through the server and one of a program that has the store, too.
#[test]
fn a_stop_of_the_store_and_stops_of_the_server_are_counted_together() {
    let slow = DemoRunner { pace: Duration::from_millis(20) };
    let house = House::of(Options::default(), Runners::default().with_demo(slow), |_| {});
    for nth in 0..6 {
        let name = format!("s{nth}");
        house.session(&name);
        let turn = json!({ "message": "hi", "run_id": "r", "runner": "demo" });
        house.post(&format!("/v1/sessions/{name}/runs"), turn).expect(202);
        let (session, run) = (SessionId::parse(&name).unwrap(), RunId::parse("r").unwrap());
        let mut by_store = false;
        let by_server =
            stop_at_once(&house, &name, "r", 8, || by_store = house.store.stop_run(&session, &run).unwrap());
        assert_eq!(by_server + usize::from(by_store), 1, "{name}: {by_server} of the server");
    }
}

/// A `stream_end` may follow a `done`, and changes nothing of how the run ended.
#[test]
fn a_run_has_one_end_in_lists_streams_and_headers_whatever_its_stream_end_says() {
    const LIMIT: &str = r#"{"terminal_state":"tool_limit_reached"}"#;
    for (nth, (done, after, expected)) in
        [(LIMIT, "{}", "tool_limit_reached"), ("{}", LIMIT, "completed")].into_iter().enumerate()
    {
        let (house, session) = (House::new(), format!("s{nth}"));
        house.run(&session, "r");
        house.tokens(&session, "r", &["one"]);
        let line = |event: &str, payload: &str| format!(r#"{{"event":"{event}","payload":{payload}}}"#);
        house.append(&session, "r", &line("done", done)).expect(200);
        house.append(&session, "r", &line("stream_end", after)).expect(200);
        assert_eq!(shown(&house, &session, "r")["state"], expected);
        for query in ["", "?after=1", "?after=2", "?after=3"] {
            let lines = house.get(&format!("/v1/sessions/{session}/runs/r/events{query}"));
            assert_eq!(lines.header("lastword-run-state"), Some(expected), "{query}");
            let end = house.follow(&session, "r", query).whole();
            assert!(end.text().contains(&format!(r#""state":"{expected}""#)), "{query}: {}", end.text());
        }
    }
}
