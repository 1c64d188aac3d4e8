//! Outside producers that die, and those that come back: readers are told in bounded time, and a live producer loses nothing.

use std::time::{Duration, Instant};

use lastword::client::{Client, EventBatch};
use lastword::{Event, RunId, SessionId};

use crate::host::{Host, PATIENCE, begin, create, in_time, outside, read, run_id, runtime, session_id};
use crate::producers::batch_of;
use crate::verdict::{check_directory, check_seen, check_transcript, journal, names};
use crate::watchers::{watch_run, watch_session};

const SESSION: &str = "talk";
const QUIET: [&str; 2] = ["--log", "warn"];

/// Timers, and some time for a slow machine.
const LOOK: Duration = Duration::from_secs(8);
/// A run is not dead before this much time has passed since it began.
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

/// The two ways to die take the same time, so they are waited for together.
#[test]
fn a_producer_that_dies_is_given_up_when_its_lease_has_lapsed_and_30_s_have_passed_since_its_run_began() {
    let (runtime, mut host, mut restarted) = (runtime(), Host::start(&QUIET), Host::start(&QUIET));
    let (session, run, silent) = (session_id(SESSION), run_id("r1"), session_id("silent"));
    let (client, other) = (host.client(), restarted.client());
    let began = Instant::now();
    runtime.block_on(say_something(&client, &session, &run, 1.0, &["Ans ", "Meer."]));
    runtime.block_on(say_something(&client, &silent, &run, 1.0, &[]));
    runtime.block_on(say_something(&other, &session, &run, 2.0, &["Ans ", "Meer."]));
    let watch = |client: &Client, of: &SessionId| runtime.spawn(watch_run(client.clone(), of.clone(), run.clone()));
    let (of_run, of_silent, of_restarted) =
        (watch(&client, &session), watch(&client, &silent), watch(&other, &session));
    let of_session = runtime.spawn(watch_session(other.clone(), session.clone(), run.clone()));
    std::thread::sleep(Duration::from_millis(300));
    restarted.kill();
    restarted.revive();
    let all = [of_run, of_silent, of_restarted, of_session].map(|watching| {
        let seen = runtime.block_on(in_time("the run ends", GRACE + LOOK, watching)).expect("it sees");
        let lived = seen.ended_at.expect("it has ended").duration_since(began);
        assert!(lived > GRACE - Duration::from_millis(500), "it was given up within the grace, after {lived:?}");
        seen
    });
    let [of_run, of_silent, of_restarted, of_session] = &all;
    assert!(of_silent.of(&run).is_empty(), "{of_silent:?}");
    assert_eq!(of_silent.ends[0].state, "orphaned");
    for (host, client, seen) in
        [(&mut host, &client, &[of_run][..]), (&mut restarted, &other, &[of_restarted, of_session])]
    {
        let late = runtime.block_on(async { client.producer(&session, &run, 2).append(words(&["Zu spät."])).await });
        assert_eq!(late.expect_err("it is too late").code(), Some("sealed"));
        let shown = runtime.block_on(read(client, &session));
        host.stop();
        let lines = journal(&host.data, SESSION, "r1");
        assert_eq!(names(&lines), ["token", "token", "apperror"]);
        seen.iter().for_each(|seen| check_seen(seen, &run, &lines));
        check_transcript(&shown, &[("Wohin?", &lines)]);
    }
    check_directory(&restarted.data);
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
        // A read meanwhile leaves a live run alone.
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

/// A reader that has seen the last event, and not that it was the last, is told how the run ended.
#[test]
fn a_follower_that_comes_back_after_the_last_event_is_told_how_the_run_ended() {
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
