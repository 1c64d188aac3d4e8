//! SIGTERM, once and more than once, while runs are at work.

use std::time::{Duration, Instant};

use lastword::Event;
use lastword::client::EventBatch;

use crate::host::{Host, PATIENCE, answered, begin, create, demo, in_time, outside, read, run_id, runtime, session_id};
use crate::producers::batch_of;
use crate::table::Signal;
use crate::verdict::{check_directory, check_seen, check_transcript, journal, names, texts};
use crate::watchers::{watch_run, watch_session};

const SESSION: &str = "talk";
const SOON: Duration = Duration::from_secs(10);

#[test]
fn a_run_that_is_at_work_may_end_and_nobody_may_begin_another() {
    let mut host = Host::start(&["--pace-ms", "8", "--log", "warn"]);
    let (runtime, client) = (runtime(), host.client());
    let (session, run) = (session_id(SESSION), run_id("r1"));
    runtime.block_on(async {
        create(&client, &session).await;
        create(&client, &session_id("other")).await;
        begin(&client, &session, &demo(&run, "Wohin?")).await;
    });
    let watching = runtime.spawn(watch_run(client.clone(), session.clone(), run.clone()));
    let of_session = runtime.spawn(watch_session(client.clone(), session.clone(), run.clone()));
    std::thread::sleep(Duration::from_millis(200));
    host.signal(Signal::TERM);
    runtime.block_on(async {
        in_time("it drains", SOON, async { while client.is_ready().await.is_ok() {} }).await;
        for new in [demo(&run_id("r2"), "Und dann?"), outside(&run_id("r3"), "Und dann?", None)] {
            let refused = client.begin_run(&session_id("other"), &new).await.expect_err("no turn is begun");
            assert_eq!((refused.status(), refused.code()), (Some(503), Some("draining")), "{refused}");
        }
    });
    let ended = host.end();
    assert_eq!((ended.code(), ended.stderr.as_str()), (Some(0), ""));
    // They were told over the connections that they had: there is no server any more.
    let seen = runtime.block_on(in_time("the end was told", Duration::from_secs(1), watching)).expect("it sees");
    let of_session =
        runtime.block_on(in_time("the end was told", Duration::from_secs(1), of_session)).expect("it sees");
    assert_eq!(seen.ends[0].state, "completed");
    let lines = journal(&host.data, SESSION, "r1");
    [&seen, &of_session].iter().for_each(|seen| check_seen(seen, &run, &lines));
    check_directory(&host.data);
}

#[test]
fn the_second_signal_cuts_runs_off_and_what_had_arrived_is_kept() {
    let mut host = Host::start(&["--pace-ms", "50", "--log", "warn"]);
    let (runtime, client) = (runtime(), host.client());
    let (session, run) = (session_id(SESSION), run_id("r1"));
    runtime.block_on(async {
        create(&client, &session).await;
        begin(&client, &session, &demo(&run, "Wohin?")).await;
    });
    let watching = runtime.spawn(watch_run(client.clone(), session.clone(), run.clone()));
    std::thread::sleep(Duration::from_millis(2_300));
    host.signal(Signal::TERM);
    std::thread::sleep(Duration::from_millis(300));
    let asked_again = Instant::now();
    host.signal(Signal::TERM);
    let ended = host.end();
    assert!(asked_again.elapsed() < SOON, "it took {:?}", asked_again.elapsed());
    assert_eq!(ended.code(), Some(0), "{}", ended.stderr);
    assert!(ended.stderr.contains("1 of 1 runs were cut off"), "{}", ended.stderr);
    let seen = runtime.block_on(in_time("the end was told", Duration::from_secs(1), watching)).expect("it sees");
    let lines = journal(&host.data, SESSION, "r1");
    check_seen(&seen, &run, &lines);
    assert_eq!(names(&lines).last().map(String::as_str), Some("apperror"));
    assert!(!texts(&lines, "token").is_empty());
    check_directory(&host.data);
    let shown = host.data.must(&["show", SESSION, "--json"]).lines.concat();
    let shown: serde_json::Value = serde_json::from_str(&shown).expect("a session is JSON");
    assert!(crate::verdict::rows(&shown).iter().any(|(role, _)| role == "notice"), "{shown}");
}

#[test]
fn a_run_that_takes_longer_than_it_is_given_is_cut_off_by_itself() {
    let mut host = Host::start(&["--pace-ms", "200", "--drain-seconds", "0.5", "--log", "warn"]);
    let (runtime, client) = (runtime(), host.client());
    let (session, run) = (session_id(SESSION), run_id("r1"));
    runtime.block_on(async {
        create(&client, &session).await;
        begin(&client, &session, &demo(&run, "Wohin?")).await;
    });
    let watching = runtime.spawn(watch_run(client.clone(), session.clone(), run.clone()));
    std::thread::sleep(Duration::from_millis(500));
    let asked = Instant::now();
    let ended = host.stop();
    assert!(asked.elapsed() < SOON, "it took {:?}", asked.elapsed());
    assert!(ended.stderr.contains("1 of 1 runs were cut off"), "{}", ended.stderr);
    let seen = runtime.block_on(in_time("the end was told", Duration::from_secs(1), watching)).expect("it sees");
    check_seen(&seen, &run, &journal(&host.data, SESSION, "r1"));
}

#[test]
fn a_producer_outside_goes_on_after_a_restart_where_it_was() {
    let mut host = Host::start(&["--log", "warn"]);
    let (runtime, client) = (runtime(), host.client());
    let (session, run) = (session_id(SESSION), run_id("r1"));
    runtime.block_on(async {
        create(&client, &session).await;
        begin(&client, &session, &outside(&run, "Wohin?", None)).await;
    });
    let watching = runtime.spawn(watch_run(client.clone(), session.clone(), run.clone()));
    let mut producer = client.producer(&session, &run, 0);
    producer.patience = PATIENCE;
    let said = |text: &str| batch_of(&[text.to_owned()]);
    runtime.block_on(producer.append(said("Ans "))).expect("it is appended");
    let asked = Instant::now();
    host.stop();
    assert!(asked.elapsed() < SOON, "nobody waits for a producer outside, but it took {:?}", asked.elapsed());
    // Whoever appends to a server that is away waits for it.
    let waiting = runtime.spawn(async move {
        let numbers = producer.append(said("Meer.")).await;
        (producer, numbers)
    });
    std::thread::sleep(Duration::from_millis(200));
    host.revive();
    let (mut producer, numbers) = runtime.block_on(waiting).expect("it does not break");
    assert_eq!(numbers.expect("it goes on"), 2..=2);
    let repeated = runtime.block_on(answered(|| {
        let options = lastword::client::AppendOptions { expect_seq: Some(2), ..Default::default() };
        let (client, batch, session, run) = (client.clone(), said("Meer."), session.clone(), run.clone());
        async move { client.append(&session, &run, &batch, options).await }
    }));
    assert_eq!(repeated.expect("the same may be sent again"), 2);
    runtime.block_on(producer.append(EventBatch::from(&[Event::done()][..]))).expect("it ends");
    let seen = runtime.block_on(in_time("the end is told", SOON, watching)).expect("it sees");
    let shown = runtime.block_on(read(&client, &session));
    host.stop();
    let lines = journal(&host.data, SESSION, "r1");
    assert_eq!(texts(&lines, "token"), ["Ans ", "Meer."]);
    check_seen(&seen, &run, &lines);
    check_transcript(&shown, &[("Wohin?", &lines)]);
    check_directory(&host.data);
}

#[test]
fn followers_of_silent_streams_do_not_keep_a_server_from_its_end() {
    let mut host = Host::start(&["--log", "warn"]);
    let (runtime, client) = (runtime(), host.client());
    let session = session_id(SESSION);
    runtime.block_on(create(&client, &session));
    let watching: Vec<_> =
        (0..5).map(|_| runtime.spawn(watch_session(client.clone(), session.clone(), run_id("never")))).collect();
    std::thread::sleep(Duration::from_millis(200));
    let asked = Instant::now();
    host.stop();
    assert!(asked.elapsed() < Duration::from_secs(4), "it took {:?}", asked.elapsed());
    watching.iter().for_each(tokio::task::JoinHandle::abort);
}
