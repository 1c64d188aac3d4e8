//! Runs that are opened while a reader is at it: it is shown no more than it may be.

use lastword::{
    After, CommitOptions, Durability, Event, NewSession, Options, Outcome, ReadOptions, Run, Store, UserTurn,
};

use crate::scene::{RUN, Scene, id, run};

/// A closed run with one event, and a store in which no fsync is made unless it is asked for.
fn closed_run(scene: &Scene, durability: Durability) -> Store {
    let commit = CommitOptions { background: None, ..CommitOptions::default() };
    let options = Options { durability, commit, ..scene.options.clone() };
    let store = Store::open_on(scene.disk.clone(), &scene.root, options).unwrap();
    store.create(NewSession::titled("A talk").with_id(id())).unwrap();
    let turn = UserTurn { lease_seconds: Some(100.0), ..UserTurn::text("Where to?").with_run(run(RUN)) };
    store.begin_run(&id(), turn).unwrap().append(Event::token("To the sea")).unwrap();
    store
}

/// What adds to the run something that may not be shown, and what lets it be shown.
struct Addition {
    durability: Durability,
    add: fn(&Scene, &Run),
    let_it_be_shown: fn(&Scene, &Store),
}

const ADDITIONS: [Addition; 2] = [
    Addition {
        durability: Durability::Durable,
        add: |_, run| drop(run.append_durable(Event::token("side")).unwrap()),
        let_it_be_shown: |_, store| store.commit().unwrap(),
    },
    Addition {
        durability: Durability::Buffered,
        add: |scene, run| {
            scene.disk.refuse_sidecars(true);
            run.finish(Outcome::Completed).unwrap_err();
        },
        let_it_be_shown: |scene, store| {
            scene.disk.refuse_sidecars(false);
            store.get_session(&id()).unwrap();
        },
    },
];

/// Lets a look begin, adds something while it opens the journal, and gives what it saw.
fn look_meanwhile<T: Send>(
    scene: &Scene,
    store: &Store,
    addition: &Addition,
    look: impl FnOnce() -> T + Send,
) -> (T, Run) {
    let held = scene.disk.hold_next_journal_read();
    std::thread::scope(|scope| {
        let reader = scope.spawn(look);
        held.until_entered();
        let opened = store.resume_run(&id(), &run(RUN)).unwrap();
        (addition.add)(scene, &opened);
        held.release();
        (reader.join().unwrap(), opened)
    })
}

#[test]
fn a_read_of_a_run_that_is_opened_meanwhile_holds_no_event_that_may_be_taken_back() {
    type Look = fn(&Store) -> usize;
    let looks: [(&str, Look); 3] = [
        ("events", |store| store.read_events(&id(), &run(RUN), ReadOptions::default()).unwrap().events.len()),
        ("replay", |store| store.replay(&id(), None).unwrap().events.len()),
        ("summary", |store| store.run_summary(&id(), &run(RUN)).unwrap().unwrap().events as usize),
    ];
    for addition in &ADDITIONS {
        for (name, look) in looks {
            let scene = Scene::new();
            let store = closed_run(&scene, addition.durability);
            let (seen, _opened) = look_meanwhile(&scene, &store, addition, || look(&store));
            assert_eq!(seen, 1, "{name}, {:?}", addition.durability);
            (addition.let_it_be_shown)(&scene, &store);
            assert_eq!(look(&store), 2, "{name}, {:?}", addition.durability);
        }
    }
}

#[test]
fn a_follower_of_a_run_that_is_opened_meanwhile_is_given_no_event_that_may_be_taken_back() {
    for addition in &ADDITIONS {
        let scene = Scene::new();
        let store = closed_run(&scene, addition.durability);
        let mut follow = store.follow(&id(), &run(RUN), After::Start).unwrap();
        assert_eq!(follow.poll().unwrap().unwrap().seq, Some(1));
        assert!(follow.poll().unwrap().is_none());
        // It opens the journal again at its next look.
        follow.rest();
        let (seen, _opened) = look_meanwhile(&scene, &store, addition, || follow.poll().unwrap());
        assert!(seen.is_none(), "{:?}: {seen:?}", addition.durability);
        (addition.let_it_be_shown)(&scene, &store);
        assert_eq!(follow.poll().unwrap().unwrap().seq, Some(2), "{:?}", addition.durability);
    }
}
