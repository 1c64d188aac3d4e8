//! Very many followers to whom nothing happens: kilobytes each, and next to no work.

use std::time::Duration;

use tokio::io::AsyncReadExt;
use tokio::net::TcpStream;
use tokio::time::sleep;

use crate::served::Served;
use crate::wire::{Caller, begin_run, open_stream};
use crate::{alone, runtime, size};

/// Bytes that a follower may cost.
const FOLLOWER_BYTES_MAX: f64 = 40_000.0;
/// What a thousand of them may cost of a processor.
const WORK_MAX: f64 = 0.1;
/// After so long a silence the server has let go of what it can do without.
const REST: Duration = Duration::from_secs(4);

/// Opens so many followers of so many runs, and sees what they cost.
async fn follow_in_silence(followers: usize, runs: usize) -> (f64, f64) {
    let served = Served::start(&["--connections-max", "16384"]);
    let mut caller = Caller::connect(served.address).await;
    for run in 0..runs {
        begin_run(&mut caller, &format!("s{run}")).await;
    }
    sleep(REST).await;
    let before = served.memory();
    let mut streams = Vec::new();
    for nth in 0..followers {
        streams.push(followed(&served, nth % runs).await);
    }
    sleep(REST).await;
    let bytes_each = served.memory().saturating_sub(before) as f64 / followers as f64;
    let seconds = size("LASTWORD_LOAD_IDLE_SECONDS", 3) as f64;
    let worked = served.worked();
    sleep(Duration::from_secs_f64(seconds)).await;
    let work = (served.worked() - worked) / seconds;
    eprintln!(
        "{followers} idle followers of {runs} runs: {:.1} KB each, {:.2} % of a processor",
        bytes_each / 1e3,
        work * 100.0
    );
    drop(streams);
    (bytes_each, work)
}

async fn followed(served: &Served, run: usize) -> TcpStream {
    let mut stream = open_stream(served.address, &format!("s{run}"), None).await.unwrap();
    let mut buffer = [0; 2048];
    let read = stream.read(&mut buffer).await.unwrap();
    assert!(buffer[..read].starts_with(b"HTTP/1.1 200 "), "{}", String::from_utf8_lossy(&buffer[..read]));
    stream
}

fn check(runs_part: usize) {
    let _turn = alone();
    let followers = size("LASTWORD_LOAD_IDLE", 1_000);
    let runs = (followers / runs_part).max(1);
    let (bytes_each, work) = runtime().block_on(follow_in_silence(followers, runs));
    assert!(bytes_each <= FOLLOWER_BYTES_MAX, "a follower costs {bytes_each} bytes");
    let work_max = WORK_MAX * (followers as f64 / 1e3).max(1.0);
    assert!(work <= work_max, "followers to whom nothing happens keep the server busy: {work}");
}

#[test]
fn idle_followers_of_one_run_cost_kilobytes_and_no_work() {
    check(usize::MAX);
}

#[test]
fn idle_followers_of_many_runs_cost_kilobytes_and_no_work() {
    check(10);
}
