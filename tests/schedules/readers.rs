//! Followers beside appenders: they miss nothing, see nothing twice, and are shown nothing that could be taken back.

use lastword::storage::sim::schedule::spawn;
use lastword::{After, Durability, RunId, Store, UserTurn};

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

/// A run of an outside producer with this lease and one event, which no process has open.
fn closed_run(world: &World, lease_seconds: f64) {
    let store = world.open();
    let turn = UserTurn { lease_seconds: Some(lease_seconds), ..UserTurn::text("x") };
    let run = store.begin_run(&session_id("a"), turn.with_run(RunId::parse("r").unwrap())).unwrap();
    assert!(world.append_durable(&run, "one."));
}

/// The follower looks, finds nothing and begins to wait; the run is opened at any moment of that.
#[test]
fn a_follower_of_a_run_that_is_opened_meanwhile_is_given_what_is_appended() {
    Trial::default().run(|world| {
        closed_run(world, 86_400.0);
        let store = world.open_later();
        let follow = store.follow(&session_id("a"), &RunId::parse("r").unwrap(), After::Start).unwrap();
        let follower = spawn("follower", move || follow.take(2).map(|event| event.unwrap().seq.unwrap()).sum::<u64>());
        let run = store.resume_run(&session_id("a"), &RunId::parse("r").unwrap()).unwrap();
        assert!(world.append(&run, "two."));
        assert_eq!(follower.join(), 3);
    });
}

/// A follower has the timer seal a run whose lease has lapsed. The producer is told so, or goes on as if nothing had been.
#[test]
fn a_producer_that_comes_back_before_its_run_is_sealed_goes_on() {
    Trial::default().run(|world| {
        closed_run(world, 10.0);
        let store = world.open_later();
        let (watching, reader) = (world.clone(), store.clone());
        let follower = spawn("follower", move || follow(&watching, &reader));
        let run = store.resume_run(&session_id("a"), &RunId::parse("r").unwrap()).unwrap();
        let was_sealed = run.is_sealed();
        if !was_sealed {
            assert!(world.append_durable(&run, "two."), "its lease was renewed, and it was sealed all the same");
            assert!(world.append(&run, "three."), "its lease was renewed, and it was sealed all the same");
            world.finish(&run);
        }
        let last = if was_sealed { 2 } else { 4 };
        assert_eq!(follower.join(), (1..=last).collect::<Vec<u64>>());
    });
}
