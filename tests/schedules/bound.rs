//! The background interval, on the schedule's clock: what no appender waits for is durable in time.

use std::time::Duration;

use lastword::storage::sim::Crash;
use lastword::storage::sim::schedule::{Explorer, now, sleep, spawn};

use crate::world::{SMALL_LOG, Trial, World, key_of, log_of};

/// How long a sync takes.
const SYNC: Duration = Duration::from_millis(4);

fn trial() -> Trial {
    let usual = Trial::default();
    // Here time passes only when every thread waits: an interval that is over is over.
    Trial { explorer: Explorer { early_timeouts: false, ..usual.explorer }, log: log_of(4096, 4), ..usual }
}

/// Appends, and comes back after the interval and the syncs that may be under way: the line survives a power cut.
fn append_and_check(world: &World, run: &lastword::Run, text: &str) {
    let began = now().unwrap();
    assert!(world.append(run, text));
    let interval = SMALL_LOG.background.unwrap();
    // A commit that has just begun, and the one that this line is part of.
    sleep(interval + 2 * SYNC);
    let seq = run.last_seq();
    let disk = world.disk.copy();
    disk.power_cut(Crash::LoseAll);
    let is_there = disk.files().values().any(|bytes| String::from_utf8_lossy(bytes).contains(text));
    let waited = now().unwrap() - began;
    assert!(is_there, "{text:?}, event {seq}, is not durable after {waited:?}\n{}", world.disk.log().join("\n"));
    assert!(waited < interval * 2, "the schedule held this thread up for {waited:?}");
    world.note_durable(&key_of(run), seq);
}

#[test]
fn what_no_appender_waits_for_is_durable_within_the_interval() {
    trial().run(|world| {
        world.disk.set_sync_time(SYNC);
        let store = world.open();
        let run = world.begin(&store, "a", "r");
        for number in 0..3 {
            append_and_check(world, &run, &format!("line {number}."));
            sleep(Duration::from_millis(number * 7));
        }
    });
}

/// Lines of both runs arrive at every moment of the other's commits: before, while and after they are synced.
#[test]
fn a_line_that_is_written_during_a_commit_is_durable_within_the_interval() {
    trial().run(|world| {
        world.disk.set_sync_time(SYNC);
        let store = world.open();
        let runs = [world.begin(&store, "a", "r"), world.begin(&store, "b", "r")];
        let busy = {
            let (world, run) = (world.clone(), runs[1].clone());
            spawn("busy", move || {
                for number in 0..12 {
                    assert!(world.append_durable(&run, &format!("durable {number}.")));
                }
            })
        };
        for number in 0..3 {
            append_and_check(world, &runs[0], &format!("line {number}."));
            append_and_check(world, &runs[1], &format!("beside {number}."));
        }
        busy.join();
    });
}
