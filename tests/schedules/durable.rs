//! Appenders that want their events durable, while the log is committed, tended and closed.

use lastword::Event;
use lastword::storage::sim::schedule::spawn;

use crate::world::{SMALL_LOG, TINY_LOG, Trial, World, key_of, log_of};

/// Two runs, each with its appender: every other event is durable before the next one.
fn two_runs(world: &World) {
    let store = world.open();
    let runs = [world.begin(&store, "a", "r"), world.begin(&store, "b", "r")];
    let appenders = runs.map(|run| {
        let world = world.clone();
        spawn("appender", move || {
            for number in 0..3 {
                assert!(world.append(&run, &format!("buffered {number}.")));
                assert!(world.append_durable(&run, &format!("durable {number}.")));
            }
        })
    });
    appenders.into_iter().for_each(|appender| appender.join());
}

#[test]
fn two_runs_whose_log_has_room() {
    let explored = Trial { log: log_of(4096, 4), ..Trial::default() }.run(two_runs);
    assert!(explored.choices > 100, "{explored:?}");
}

#[test]
fn two_runs_whose_log_is_tended_meanwhile() {
    Trial { log: SMALL_LOG, ..Trial::default() }.run(two_runs);
}

#[test]
fn two_runs_whose_log_is_full_again_and_again() {
    Trial { log: TINY_LOG, ..Trial::default() }.run(two_runs);
}

/// Three appenders of one run: what comes while another writes is written with the next write.
#[test]
fn three_appenders_of_one_run() {
    Trial::default().run(|world| {
        let store = world.open();
        let run = world.begin(&store, "a", "r");
        let appenders = ["x", "y", "z"].map(|name| {
            let (world, run) = (world.clone(), run.clone());
            spawn(name, move || {
                assert!(world.append_durable(&run, &format!("{name} 1.")));
                assert!(world.append(&run, &format!("{name} 2.")));
            })
        });
        appenders.into_iter().for_each(|appender| appender.join());
        world.append_durable(&run, "last.");
    });
}

/// Callbacks are called once each, in a thread of the store, and not before the event is durable.
#[test]
fn callbacks_beside_appenders_who_wait() {
    Trial::default().run(|world| {
        let store = world.open();
        let runs = [world.begin(&store, "a", "r"), world.begin(&store, "b", "r")];
        let called = std::sync::Arc::new(std::sync::atomic::AtomicU64::new(0));
        for number in 0..3 {
            let text = format!("called back {number}.");
            let appended = runs[0].append_durable(Event::token(&text)).unwrap();
            let (world, run, called, seq) = (world.clone(), key_of(&runs[0]), called.clone(), appended.last_seq);
            world.with_run(&runs[0], |acks| acks.appended.insert(seq, text));
            appended.on_durable(move |outcome| {
                outcome.unwrap().expect("it was asked for");
                world.note_durable(&run, seq);
                called.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
            });
        }
        world.append_durable(&runs[1], "waited for.");
        drop((runs, store));
        // A store that is closed has called all of them.
        assert_eq!(called.load(std::sync::atomic::Ordering::SeqCst), 3);
    });
}
