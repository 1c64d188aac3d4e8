//! Followers: nothing missed, nothing shown too early, always let go.

use std::sync::mpsc;
use std::time::Duration;

use lastword::{After, Event, List, Outcome, RunId, RunState};

use crate::fixture::{fixture, in_time};

#[test]
fn a_follower_gets_what_was_there_and_what_comes_until_the_end() {
    let fixture = fixture();
    let run = fixture.begin("x");
    run.append(Event::token("before")).unwrap();
    let follow = fixture.store.follow(&fixture.id, run.id(), After::Start).unwrap();
    let (told, seen) = mpsc::channel();
    let follower = std::thread::spawn(move || {
        for event in follow {
            told.send(event.unwrap().name).unwrap();
        }
    });
    let next = || seen.recv_timeout(Duration::from_secs(20)).unwrap();
    assert_eq!(next(), "token");
    run.append(Event::reasoning("then")).unwrap();
    assert_eq!(next(), "reasoning");
    run.finish(Outcome::Completed).unwrap();
    assert_eq!(next(), "done");
    follower.join().unwrap();
}

#[test]
fn a_follower_who_sees_the_end_finds_the_answer_saved() {
    let fixture = fixture();
    for number in 0..20 {
        let run = fixture.begin(&format!("prompt {number}"));
        let follow = fixture.store.follow(&fixture.id, run.id(), After::Start).unwrap();
        let (store, id) = (fixture.store.clone(), fixture.id.clone());
        let follower = std::thread::spawn(move || {
            assert_eq!(follow.last().unwrap().unwrap().name, "done");
            store.get_session(&id).unwrap().len(List::Messages)
        });
        run.append(Event::token("answer")).unwrap();
        run.finish(Outcome::Completed).unwrap();
        assert_eq!(follower.join().unwrap(), (number + 1) * 2);
    }
}

#[test]
fn followers_begin_behind_their_cursor() {
    let fixture = fixture();
    let run = fixture.begin("x");
    (0..5).for_each(|_| drop(run.append(Event::token("t")).unwrap()));
    run.finish(Outcome::Completed).unwrap();
    let seqs = |after| -> Vec<u64> {
        fixture.store.follow(&fixture.id, run.id(), after).unwrap().map(|event| event.unwrap().seq.unwrap()).collect()
    };
    assert_eq!(seqs(After::Seq(4)), [5, 6]);
    assert_eq!(seqs(After::Start), [1, 2, 3, 4, 5, 6]);
    assert!(seqs(After::Seq(99)).is_empty());
    let missing = RunId::parse("missing").unwrap();
    assert!(fixture.store.follow(&fixture.id, &missing, After::Start).is_err());
}

/// The journal is so long that the place of a cursor in a journal of ours would be found by halving it.
#[test]
fn a_follower_of_another_programs_run_gets_later_numbers_that_stand_before_its_cursor() {
    let fixture = fixture();
    let text = "x".repeat(20_000);
    let line = |seq: u64| format!("{{\"seq\":{seq},\"event\":\"token\",\"payload\":{{\"text\":\"{text}\"}}}}\n");
    let lines: String = (61..=120).chain(1..=60).map(line).collect();
    let folder = fixture.folder.path().join("_run_journal").join(fixture.id.as_str());
    std::fs::create_dir_all(&folder).unwrap();
    std::fs::write(folder.join("theirs.jsonl"), lines).unwrap();
    let theirs = RunId::parse("theirs").unwrap();
    let mut follow = fixture.store.follow(&fixture.id, &theirs, After::Seq(60)).unwrap();
    let seqs: Vec<u64> = std::iter::from_fn(|| follow.poll().unwrap()).map(|event| event.seq.unwrap()).collect();
    assert_eq!(seqs, (61..=120).collect::<Vec<_>>());
}

#[test]
fn a_slow_follower_catches_up_and_slows_nobody() {
    let fixture = fixture();
    let run = fixture.begin("x");
    let mut follow = fixture.store.follow(&fixture.id, run.id(), After::Start).unwrap();
    for _ in 0..3000 {
        run.append(Event::token(&"x".repeat(300))).unwrap();
    }
    run.finish(Outcome::Completed).unwrap();
    assert_eq!(
        follow.by_ref().map(|event| event.unwrap().seq.unwrap()).collect::<Vec<_>>(),
        (1..=3001).collect::<Vec<_>>()
    );
    assert!(follow.next().is_none());
}

#[test]
fn a_follower_of_a_deleted_session_is_let_go() {
    let fixture = fixture();
    let run = fixture.begin("x");
    run.append(Event::token("seen")).unwrap();
    let mut follow = fixture.store.follow(&fixture.id, run.id(), After::Start).unwrap();
    assert_eq!(follow.next().unwrap().unwrap().name, "token");
    fixture.store.delete(&fixture.id).unwrap();
    assert!(follow.next().is_none());
    assert_eq!(run.append(Event::token("late")).unwrap_err().code(), "fenced");
    assert_eq!(run.finish(Outcome::Completed).unwrap_err().code(), "fenced");
    assert_eq!(fixture.store.get_session(&fixture.id).unwrap_err().code(), "not_found");
}

/// The handle of the run knows that there is more than the follower has read.
#[test]
fn a_follower_of_a_deleted_session_is_given_what_was_appended_before_it_ends() {
    let fixture = fixture();
    let run = fixture.begin("x");
    run.append(Event::token("seen")).unwrap();
    let mut follow = fixture.store.follow(&fixture.id, run.id(), After::Start).unwrap();
    assert_eq!(follow.poll().unwrap().unwrap().seq, Some(1));
    assert!(follow.poll().unwrap().is_none());
    run.append(Event::token("not seen yet")).unwrap();
    fixture.store.delete(&fixture.id).unwrap();
    assert_eq!(follow.ended().unwrap(), None, "there is something to read");
    assert_eq!(follow.poll().unwrap().unwrap().seq, Some(2));
    assert!(follow.poll().unwrap().is_none());
    assert_eq!(follow.ended().unwrap(), Some(RunState::Gone));
}

/// After `done` one more event may come, and a follower that has seen `done` does not wait for it.
#[test]
fn a_follower_does_not_end_between_two_events_of_an_end() {
    let fixture = fixture();
    let run = fixture.begin("x");
    run.append(Event::done()).unwrap();
    let mut follow = fixture.store.follow(&fixture.id, run.id(), After::Start).unwrap();
    assert_eq!(follow.poll().unwrap().unwrap().name, "done");
    assert!(follow.poll().unwrap().is_none());
    run.append(Event::new("stream_end", "{}").unwrap()).unwrap();
    assert_eq!(follow.ended().unwrap(), None, "there is something to read");
    assert_eq!(follow.poll().unwrap().unwrap().name, "stream_end");
    assert_eq!(follow.ended().unwrap(), Some(RunState::Ended(Outcome::Completed)));
}

#[test]
fn a_follower_that_rests_goes_on_after_the_last_event_that_it_gave_out() {
    for given in 0..=4 {
        let fixture = fixture();
        let run = fixture.begin("x");
        (0..3).for_each(|_| drop(run.append(Event::token("t")).unwrap()));
        run.finish(Outcome::Completed).unwrap();
        let mut follow = fixture.store.follow(&fixture.id, run.id(), After::Start).unwrap();
        let mut seqs: Vec<u64> = (0..given).map(|_| follow.poll().unwrap().unwrap().seq.unwrap()).collect();
        // A second time changes nothing.
        follow.rest();
        follow.rest();
        seqs.extend(std::iter::from_fn(|| follow.poll().unwrap()).map(|event| event.seq.unwrap()));
        assert_eq!(seqs, [1, 2, 3, 4], "after {given}");
    }
}

#[test]
fn a_follower_is_let_go_although_the_answer_could_not_be_saved() {
    let fixture = fixture();
    let run = fixture.begin("x");
    run.append(Event::token("x")).unwrap();
    std::fs::write(fixture.folder.path().join(format!("{}.json", fixture.id)), b"{broken").unwrap();
    assert_eq!(run.finish(Outcome::Completed).unwrap_err().code(), "corrupt_json");
    let follow = fixture.store.follow(&fixture.id, run.id(), After::Start).unwrap();
    assert_eq!(in_time(move || follow.count()), 2);
}

#[test]
fn a_follower_of_a_removed_run_is_let_go() {
    let fixture = fixture();
    let name = RunId::parse("imported").unwrap();
    fixture.store.adopt_run(&fixture.id, &name).unwrap().append(Event::token("x")).unwrap();
    let follow = fixture.store.follow(&fixture.id, &name, After::Start).unwrap();
    fixture.store.remove_run(&fixture.id, &name).unwrap();
    assert_eq!(in_time(move || follow.count()), 1);
}

/// A lost wake-up would cost a follower 200 ms; ten thousand answers one by one would take half an hour.
#[test]
fn no_wake_up_of_a_follower_is_lost() {
    let fixture = fixture();
    let run = fixture.begin("x");
    let follow = fixture.store.follow(&fixture.id, run.id(), After::Start).unwrap();
    let (told, seen) = mpsc::channel();
    std::thread::spawn(move || {
        for event in follow {
            let _ = told.send(event.unwrap().seq.unwrap());
        }
    });
    in_time(move || {
        for number in 1..=10_000 {
            run.append(Event::token("x")).unwrap();
            assert_eq!(seen.recv().unwrap(), number);
        }
    });
}
