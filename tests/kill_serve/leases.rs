//! Producers outside that die, and those that come back: who waits is told in bounded time, and who is alive loses nothing.

use std::time::{Duration, Instant};

use lastword::client::{Client, EventBatch};
use lastword::{Event, RunId, SessionId};

use crate::host::{Host, PATIENCE, begin, create, in_time, outside, read, run_id, runtime, session_id};
use crate::producers::batch_of;
use crate::verdict::{check_directory, check_seen, check_transcript, journal, names};
use crate::watchers::{watch_run, watch_session};

const SESSION: &str = "talk";
const QUIET: [&str; 2] = ["--log", "warn"];

/// The longest pause between two looks of those who wait, and some time for a slow machine.
const LOOK: Duration = Duration::from_secs(8);
/// A run that was begun in this process is not given up before.
const GRACE: Duration = Duration::from_secs(30);

fn words(texts: &[&str]) -> EventBatch {
    batch_of(&texts.iter().map(|text| (*text).to_owned()).collect::<Vec<_>>())
}

/// Begins a run with a lease, and says a few words.
async fn say_something(client: &Client, session: &SessionId, run: &RunId, lease_seconds: f64, said: &[&str]) {
    create(client, session).await;
    begin(client, session, &outside(run, "Wohin?", Some(lease_seconds))).await;
    if !said.is_empty() {
        let appended = client.producer(session, run, 0).append(words(said)).await;
        assert_eq!(appended.expect("it is appended"), 1..=said.len() as u64);
    }
}

#[test]
fn a_producer_that_died_before_the_server_did_is_given_up_when_its_lease_lapses() {
    let mut host = Host::start(&QUIET);
    let (runtime, client) = (runtime(), host.client());
    let (session, run) = (session_id(SESSION), run_id("r1"));
    runtime.block_on(say_something(&client, &session, &run, 2.0, &["Ans ", "Meer."]));
    let said = Instant::now();
    let of_run = runtime.spawn(watch_run(client.clone(), session.clone(), run.clone()));
    let of_session = runtime.spawn(watch_session(client.clone(), session.clone(), run.clone()));
    std::thread::sleep(Duration::from_millis(300));
    host.kill();
    host.revive();
    let seen = runtime.block_on(in_time("the run is closed", Duration::from_secs(2) + LOOK, of_run)).expect("it sees");
    let ended = seen.ended_at.expect("it has ended").duration_since(said);
    assert!(ended > Duration::from_millis(1_800), "it was given up within its lease, after {ended:?}");
    let of_session = runtime.block_on(in_time("the session says so", LOOK, of_session)).expect("it sees");
    let late = runtime.block_on(async { client.producer(&session, &run, 2).append(words(&["Zu spät."])).await });
    assert_eq!(late.expect_err("it is too late").code(), Some("sealed"));
    let shown = runtime.block_on(read(&client, &session));
    host.stop();
    let lines = journal(&host.data, SESSION, "r1");
    assert_eq!(names(&lines), ["token", "token", "apperror"]);
    [&seen, &of_session].iter().for_each(|seen| check_seen(seen, &run, &lines));
    check_transcript(&shown, &[("Wohin?", &lines)]);
    check_directory(&host.data);
}

#[test]
fn a_producer_that_dies_while_the_server_lives_is_given_up_after_the_grace() {
    let mut host = Host::start(&QUIET);
    let (runtime, client) = (runtime(), host.client());
    let (session, run, silent) = (session_id(SESSION), run_id("r1"), session_id("silent"));
    runtime.block_on(say_something(&client, &session, &run, 1.0, &["Ans ", "Meer."]));
    runtime.block_on(say_something(&client, &silent, &run, 1.0, &[]));
    let began = Instant::now();
    let watch = |session: &SessionId| runtime.spawn(watch_run(client.clone(), session.clone(), run.clone()));
    let (of_run, of_silent) = (watch(&session), watch(&silent));
    let seen = runtime.block_on(in_time("the run is closed", GRACE + LOOK, of_run)).expect("it sees");
    let ended = seen.ended_at.expect("it has ended").duration_since(began);
    assert!(ended > GRACE - Duration::from_secs(2), "it was given up within the grace, after {ended:?}");
    let of_silent = runtime.block_on(in_time("the silent run is let go", LOOK, of_silent)).expect("it sees");
    assert!(of_silent.of(&run).is_empty(), "{of_silent:?}");
    let shown = runtime.block_on(read(&client, &session));
    host.stop();
    let lines = journal(&host.data, SESSION, "r1");
    check_seen(&seen, &run, &lines);
    check_transcript(&shown, &[("Wohin?", &lines)]);
}

#[test]
fn a_producer_that_goes_on_within_its_lease_loses_nothing() {
    let mut host = Host::start(&QUIET);
    let (runtime, client) = (runtime(), host.client());
    let (session, run) = (session_id(SESSION), run_id("r1"));
    runtime.block_on(say_something(&client, &session, &run, 6.0, &["Ans "]));
    let watching = runtime.spawn(watch_run(client.clone(), session.clone(), run.clone()));
    let mut producer = client.producer(&session, &run, 1);
    producer.patience = PATIENCE;
    for (word, seq) in ["Meer, ", "à ", "Sète."].iter().zip(2_u64..) {
        host.kill();
        host.revive();
        std::thread::sleep(Duration::from_millis(700));
        // Whoever reads meanwhile leaves a live run alone.
        let shown = runtime.block_on(read(&client, &session));
        assert_eq!(shown["active_stream_id"], "r1");
        let appended = runtime.block_on(producer.append(words(&[word])));
        assert_eq!(appended.expect("it goes on"), seq..=seq);
    }
    runtime.block_on(producer.append(EventBatch::from(&[Event::done()][..]))).expect("it ends");
    let seen = runtime.block_on(in_time("the end is told", LOOK, watching)).expect("it sees");
    assert_eq!(seen.ends[0].state, "completed");
    let shown = runtime.block_on(read(&client, &session));
    host.stop();
    let lines = journal(&host.data, SESSION, "r1");
    assert_eq!(names(&lines), ["token", "token", "token", "token", "done"]);
    check_seen(&seen, &run, &lines);
    check_transcript(&shown, &[("Wohin?", &lines)]);
    check_directory(&host.data);
}

#[test]
fn a_producer_that_says_that_it_is_alive_may_be_silent_for_longer_than_its_lease() {
    let mut host = Host::start(&QUIET);
    let (runtime, client) = (runtime(), host.client());
    let (session, run) = (session_id(SESSION), run_id("r1"));
    runtime.block_on(say_something(&client, &session, &run, 2.0, &["Ans "]));
    let watching = runtime.spawn(watch_run(client.clone(), session.clone(), run.clone()));
    host.kill();
    host.revive();
    let mut producer = client.producer(&session, &run, 1);
    (producer.renew_every, producer.patience) = (Duration::from_millis(500), PATIENCE);
    let silence = tokio::time::sleep;
    runtime
        .block_on(async { producer.wait_for(silence(Duration::from_secs(5))).await })
        .expect("the run is not sealed");
    let rest = [Event::token("Meer."), Event::done()];
    assert_eq!(runtime.block_on(producer.append(&rest[..])).expect("it goes on"), 2..=3);
    let seen = runtime.block_on(in_time("the end is told", LOOK, watching)).expect("it sees");
    host.stop();
    check_seen(&seen, &run, &journal(&host.data, SESSION, "r1"));
}

/// Whoever has seen the last event and not that it was the last is told how the run ended.
#[test]
fn a_follower_that_comes_back_behind_the_last_event_is_told_how_the_run_ended() {
    let mut host = Host::start(&QUIET);
    let (runtime, client) = (runtime(), host.client());
    let (session, run) = (session_id(SESSION), run_id("r1"));
    runtime.block_on(say_something(&client, &session, &run, 30.0, &["Ans Meer."]));
    runtime.block_on(client.producer(&session, &run, 1).append(&[Event::done()][..])).expect("it ends");
    for is_new in [false, true] {
        if is_new {
            host.kill();
            host.revive();
        }
        let mut follow = client.follow(&session, &run, 2, lastword::client::FollowOptions { patience: PATIENCE });
        let told = runtime.block_on(in_time("the end is told", LOOK, follow.next())).expect("it is told");
        let Some(lastword::client::Told::Ended(end)) = told else { panic!("{told:?}") };
        assert_eq!((end.state.as_str(), end.last_seq), ("completed", Some(2)));
    }
}
