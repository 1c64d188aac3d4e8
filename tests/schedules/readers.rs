//! Followers beside appenders: they miss nothing, see nothing twice, and are shown nothing that could be taken back.

use lastword::storage::sim::schedule::spawn;
use lastword::{After, Durability, RunId, Store};

use crate::world::{Trial, World, session_id};

/// Follows a run to its end, and notes how far it has come.
fn follow(world: &World, store: &Store) -> Vec<u64> {
    let key = ("a".to_owned(), "r".to_owned());
    let mut seqs = Vec::new();
    for event in store.follow(&session_id("a"), &RunId::parse("r").unwrap(), After::Start).unwrap() {
        let seq = event.unwrap().seq.unwrap();
        seqs.push(seq);
        world.with_acks(|acks| acks.runs.entry(key.clone()).or_default().shown_to = seq);
    }
    seqs
}

/// A follower that is there from the beginning, and one that comes when it comes.
fn two_followers(world: &World) {
    let store = world.open();
    let run = world.begin(&store, "a", "r");
    let followers = ["early", "late"].map(|name| {
        let (world, store) = (world.clone(), store.clone());
        spawn(name, move || follow(&world, &store))
    });
    assert!(world.append(&run, "one."));
    assert!(world.append_durable(&run, "two."));
    assert!(world.append(&run, "three."));
    world.finish(&run);
    for follower in followers {
        assert_eq!(follower.join(), [1, 2, 3, 4]);
    }
}

#[test]
fn followers_see_every_event_once_and_the_end() {
    Trial::default().run(two_followers);
}

#[test]
fn followers_of_a_durable_store_see_nothing_that_a_power_cut_could_take() {
    Trial { durability: Durability::Durable, ..Trial::default() }.run(two_followers);
}

/// Two durable appends whose tickets are settled in either order, by either thread.
#[test]
fn with_two_durable_appends_outstanding_each_is_shown_when_it_is_durable() {
    Trial { durability: Durability::Durable, ..Trial::default() }.run(|world| {
        let store = world.open();
        let run = world.begin(&store, "a", "r");
        let appenders = ["x.", "y."].map(|text| {
            let (world, run) = (world.clone(), run.clone());
            spawn(text, move || assert!(world.append_durable(&run, text)))
        });
        let (watching, reader) = (world.clone(), store.clone());
        let follower = spawn("follower", move || follow(&watching, &reader));
        appenders.into_iter().for_each(|appender| appender.join());
        world.finish(&run);
        assert_eq!(follower.join(), [1, 2, 3]);
    });
}
