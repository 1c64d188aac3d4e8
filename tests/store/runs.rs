//! Runs: from the prompt to the saved answer, by one or many threads, over restarts.

use std::collections::HashSet;
use std::sync::Barrier;
use std::sync::mpsc;

use lastword::{
    AppendError, Durability, Event, List, NewSession, Options, Outcome, Run, RunId, SaveOptions, Store, StoreError,
    UserTurn,
};

use serde_json::json;

use crate::fixture::{Fixture, fixture, in_time, pairs};

#[test]
fn a_turn_is_pending_until_it_ends_and_then_in_the_transcript() {
    let fixture = fixture();
    let run = fixture.begin("Where to?");
    let pending = fixture.store.get_session(&fixture.id).unwrap();
    assert_eq!(pending.pending_turn().unwrap().message, "Where to?");
    assert_eq!(pending.active_run().unwrap(), run.id().as_str());
    run.append(Event::reasoning("thinking")).unwrap();
    run.append(Event::token("To the ")).unwrap();
    run.append(Event::tool("t1", "map", &json!({})).with_preview("looking")).unwrap();
    run.append(Event::tool_complete("t1", "map", &json!(null), false)).unwrap();
    run.append(Event::token("sea.")).unwrap();
    run.finish(Outcome::Completed).unwrap();
    assert_eq!(fixture.rows(), pairs(&[("user", "Where to?"), ("assistant", "To the"), ("assistant", "sea.")]));
    let session = fixture.store.get_session(&fixture.id).unwrap();
    assert!(session.pending_turn().is_none() && session.active_run().is_none());
    let card = session.tool_cards().next().unwrap();
    assert_eq!((card.name().as_ref(), card.row_index(), card.is_done()), ("map", Some(1), true));
    assert_eq!(session.message(1).unwrap().reasoning().unwrap(), "thinking");
    assert!(session.texts(List::Messages).all(|row| !row.contains("_recovered")));
    assert_eq!(pending.len(List::Messages), 0, "a snapshot does not change");
}

#[test]
fn a_session_without_a_title_takes_the_words_of_its_first_message_in_the_save_of_the_turn() {
    let fixture = fixture();
    for (given, title) in [("Untitled", "Where to go?"), (" ", "Where to go?"), ("A trip", "A trip")] {
        let id = fixture.store.create(NewSession::titled(given)).unwrap();
        let run = fixture.store.begin_run(&id, UserTurn::text(" Where\nto  go?")).unwrap();
        assert_eq!(fixture.store.metadata(&id).unwrap().title(), title);
        run.finish(Outcome::Completed).unwrap();
        // A title that was taken back stays taken back: this is not the first message.
        fixture.store.update(&id, SaveOptions::default(), |session| session.set_text("title", "Untitled")).unwrap();
        fixture.store.begin_run(&id, UserTurn::text("More")).unwrap().finish(Outcome::Completed).unwrap();
        assert_eq!(fixture.store.get_session(&id).unwrap().title(), "Untitled");
    }
}

#[test]
fn a_stopped_run_keeps_its_partial_answer_and_says_so() {
    let fixture = fixture();
    let run = fixture.begin("x");
    run.append(Event::token("half an")).unwrap();
    run.finish(Outcome::InterruptedByUser).unwrap();
    let session = fixture.store.get_session(&fixture.id).unwrap();
    let marker = session.message(2).unwrap();
    assert_eq!(session.message(1).unwrap().content(), "half an");
    assert!(marker.is_error() && marker.content().contains("You stopped"));
    assert!(marker.fields().get("_pending_journal_recovery").is_none(), "nothing is armed");
}

#[test]
fn a_failed_run_keeps_its_partial_answer_and_the_producers_words() {
    let fixture = fixture();
    let run = fixture.begin("x");
    run.append(Event::token("half")).unwrap();
    run.fail("rate_limit", "Too many requests.").unwrap();
    let marker = fixture.store.get_session(&fixture.id).unwrap().message(2).unwrap();
    assert_eq!(
        (marker.content().as_ref(), marker.fields().text("type").unwrap().as_ref()),
        ("Too many requests.", "rate_limit")
    );
}

#[test]
fn attachments_and_source_reach_the_users_row() {
    let fixture = fixture();
    let turn = UserTurn {
        attachments: r#"[{"name":"a.png"}]"#.into(),
        source: Some("telegram".into()),
        ..UserTurn::text("look")
    };
    fixture.store.begin_run(&fixture.id, turn).unwrap().finish(Outcome::Completed).unwrap();
    let row = fixture.store.get_session(&fixture.id).unwrap().message(0).unwrap();
    assert_eq!(row.fields().get("attachments"), Some(r#"[{"name":"a.png"}]"#));
    assert_eq!(row.fields().text("_source").unwrap(), "telegram");
}

#[test]
fn a_session_answers_one_turn_at_a_time() {
    let fixture = fixture();
    let run = fixture.begin("first");
    let refused = fixture.store.begin_run(&fixture.id, UserTurn::text("second")).unwrap_err();
    assert!(matches!(refused, StoreError::RunInProgress { .. }), "{refused}");
    run.finish(Outcome::Completed).unwrap();
    fixture.begin("second");
}

#[test]
fn a_run_id_is_used_once() {
    let fixture = fixture();
    let name = RunId::parse("mine").unwrap();
    let turn = || UserTurn::text("x").with_run(name.clone());
    fixture.store.begin_run(&fixture.id, turn()).unwrap().finish(Outcome::Completed).unwrap();
    assert!(matches!(fixture.store.begin_run(&fixture.id, turn()), Err(StoreError::RunTaken { .. })));
}

#[test]
fn a_run_goes_on_in_the_next_process() {
    let Fixture { folder, store, id } = fixture();
    let run = store.begin_run(&id, UserTurn::text("x")).unwrap();
    run.append(Event::token("a")).unwrap();
    let name = run.id().clone();
    drop((run, store));
    let store = Store::open(folder.path(), Options::default()).unwrap();
    let run = store.resume_run(&id, &name).unwrap();
    assert_eq!(run.append(Event::token("b")).unwrap().last_seq, 2);
    run.finish(Outcome::Completed).unwrap();
    assert_eq!(store.get_session(&id).unwrap().message(1).unwrap().content(), "ab");
}

#[test]
fn two_handles_of_one_run_share_its_numbers() {
    let fixture = fixture();
    let run = fixture.begin("x");
    let again = fixture.store.resume_run(&fixture.id, run.id()).unwrap();
    assert_eq!(run.append(Event::token("a")).unwrap().last_seq, 1);
    assert_eq!(again.append(Event::token("b")).unwrap().last_seq, 2);
    assert_eq!(run.append(Event::token("c")).unwrap().last_seq, 3);
}

#[test]
fn many_threads_append_without_a_gap_or_a_repeat() {
    let fixture = fixture();
    let run = fixture.begin("x");
    let barrier = Barrier::new(8);
    let acknowledged: Vec<u64> = std::thread::scope(|scope| {
        let append = |writer: usize| {
            let (run, barrier) = (run.clone(), &barrier);
            move || -> Vec<u64> {
                barrier.wait();
                let durability = if writer.is_multiple_of(4) { Durability::Durable } else { Durability::Buffered };
                let event = |number| Event::token(&format!("{writer}:{number} "));
                (0..100).map(|number| run.append_all(&[event(number)], durability).unwrap().last_seq).collect()
            }
        };
        let threads: Vec<_> = (0..8).map(|writer| scope.spawn(append(writer))).collect();
        threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect()
    });
    assert_eq!(acknowledged.iter().collect::<HashSet<_>>().len(), 800, "a number was given twice");
    assert_eq!(fixture.seqs(run.id()), (1..=800).collect::<Vec<_>>());
}

#[test]
fn a_batch_is_taken_whole_or_not_at_all() {
    let fixture = fixture();
    let run = fixture.begin("x");
    let batch = [Event::token("a"), Event::done(), Event::token("b")];
    let refused = run.append_all(&batch, Durability::Buffered).unwrap_err();
    assert!(matches!(refused, StoreError::Append(AppendError::Sealed { .. })), "{refused}");
    assert!(fixture.seqs(run.id()).is_empty());
    let batch = [Event::token("a"), Event::done(), Event::new("stream_end", "{}").unwrap()];
    let appended = run.append_all(&batch, Durability::Buffered).unwrap();
    assert_eq!((appended.first_seq, appended.last_seq), (1, 3));
    assert!(run.is_sealed() && run.append(Event::new("stream_end", "{}").unwrap()).is_err());
    assert_eq!(fixture.rows().len(), 2);
}

#[test]
fn a_store_told_to_be_durable_shows_nothing_that_is_not() {
    let folder = tempfile::tempdir().unwrap();
    let options = Options { durability: Durability::Durable, ..Options::default() };
    let store = Store::open(folder.path(), options).unwrap();
    let id = store.create(NewSession::titled("t")).unwrap();
    let run = store.begin_run(&id, UserTurn::text("x")).unwrap();
    let proof = run.append(Event::token("a")).unwrap().wait().unwrap();
    assert!(proof.is_some());
    let (told, heard) = mpsc::channel();
    run.append_durable(Event::token("b")).unwrap().on_durable(move |done| told.send(done.is_ok()).unwrap());
    assert!(heard.recv().unwrap());
}

#[test]
fn more_runs_than_open_files_all_get_their_events() {
    const PLACES: usize = 100;
    let Fixture { folder, store, id } = fixture();
    drop(store);
    let options = Options { open_journals_max: PLACES, ..Options::default() };
    let fixture = Fixture { store: Store::open(folder.path(), options).unwrap(), folder, id };
    let before = open_files();
    let runs: Vec<Run> = (0..PLACES + 300)
        .map(|number| fixture.store.adopt_run(&fixture.id, &RunId::parse(&format!("r{number}")).unwrap()).unwrap())
        .collect();
    for _ in 0..2 {
        runs.iter().for_each(|run| drop(run.append(Event::token("x")).unwrap()));
    }
    assert!(open_files() < before + PLACES + 150, "{} files are open", open_files());
    assert!(runs.iter().all(|run| fixture.seqs(run.id()) == [1, 2]));
}

#[test]
fn a_turn_that_was_sealed_but_not_folded_is_folded_by_the_next() {
    let Fixture { folder, store, id } = fixture();
    let run = store.begin_run(&id, UserTurn::text("first")).unwrap();
    run.append(Event::token("answer")).unwrap();
    let name = run.id().clone();
    drop((run, store));
    let path = folder.path().join(format!("_run_journal/{id}/{name}.jsonl"));
    let done = format!(
        "{{\"event_id\":\"{name}:2\",\"seq\":2,\"run_id\":\"{name}\",\"session_id\":\"{id}\",\"event\":\"done\",\"terminal\":true,\"terminal_state\":\"completed\",\"payload\":{{}}}}\n"
    );
    let journal = std::fs::read_to_string(&path).unwrap() + &done;
    std::fs::write(&path, journal).unwrap();
    let store = Store::open(folder.path(), Options::default()).unwrap();
    store.begin_run(&id, UserTurn::text("second")).unwrap().finish(Outcome::Completed).unwrap();
    let session = store.get_session(&id).unwrap();
    let contents: Vec<_> = session.messages().map(|row| row.content().into_owned()).collect();
    assert_eq!(contents, ["first", "answer", "second"]);
}

#[test]
fn appenders_never_wait_for_themselves() {
    let fixture = fixture();
    let run = fixture.begin("x");
    let threads: Vec<_> = (0..4)
        .map(|_| {
            let run = run.clone();
            move || (0..3000).for_each(|_| drop(run.append(Event::token("x")).unwrap()))
        })
        .collect();
    in_time(move || {
        let threads: Vec<_> = threads.into_iter().map(std::thread::spawn).collect();
        threads.into_iter().for_each(|thread| thread.join().unwrap());
    });
    assert_eq!(run.last_seq(), 12_000);
}

#[test]
fn the_active_run_is_not_removed() {
    let fixture = fixture();
    let run = fixture.begin("x");
    assert_eq!(fixture.store.remove_run(&fixture.id, run.id()).unwrap_err().code(), "run_in_progress");
}

#[test]
fn a_run_id_that_happens_to_stand_in_a_text_is_free() {
    let fixture = fixture();
    fixture.begin("run 1 of many").finish(Outcome::Completed).unwrap();
    for name in ["1", fixture.id.as_str()] {
        let turn = || UserTurn::text(name).with_run(RunId::parse(name).unwrap());
        fixture.store.begin_run(&fixture.id, turn()).unwrap().finish(Outcome::Completed).unwrap();
        let again = fixture.store.begin_run(&fixture.id, turn());
        assert!(matches!(again, Err(StoreError::RunTaken { .. })), "{again:?}");
    }
}

#[test]
fn a_journal_that_another_program_changed_behind_its_writer_is_not_written_over() {
    let fixture = fixture();
    let run = fixture.begin("x");
    let path = fixture.folder.path().join(format!("_run_journal/{}/{}.jsonl", fixture.id, run.id()));
    std::fs::write(&path, "{\"seq\":1,\"event\":\"token\"}\n").unwrap();
    let refused = run.append(Event::token("mine")).unwrap_err();
    assert!(format!("{:?}", refused.storage()).contains("another program"), "{refused:?}");
    assert_eq!(
        fixture.store.resume_run(&fixture.id, run.id()).unwrap().append(Event::token("mine")).unwrap().last_seq,
        2
    );
}

#[test]
fn the_number_of_a_damaged_line_is_not_given_again() {
    let Fixture { folder, store, id } = fixture();
    let run = store.begin_run(&id, UserTurn::text("x")).unwrap();
    run.append_all(&[Event::token("a"), Event::token("b"), Event::token("c")], Durability::Buffered).unwrap();
    let name = run.id().clone();
    drop((run, store));
    let path = folder.path().join(format!("_run_journal/{id}/{name}.jsonl"));
    let mut bytes = std::fs::read(&path).unwrap();
    let in_last_line = bytes.len() - 40;
    bytes[in_last_line] ^= 1;
    std::fs::write(&path, bytes).unwrap();
    let store = Store::open(folder.path(), Options::default()).unwrap();
    assert_eq!(store.resume_run(&id, &name).unwrap().append(Event::token("d")).unwrap().last_seq, 4);
}

fn open_files() -> usize {
    std::fs::read_dir("/proc/self/fd").map_or(0, Iterator::count)
}

#[test]
fn a_removed_run_takes_no_more_events() {
    let fixture = fixture();
    let name = RunId::parse("imported").unwrap();
    let run = fixture.store.adopt_run(&fixture.id, &name).unwrap();
    run.append(Event::token("x")).unwrap();
    fixture.store.remove_run(&fixture.id, &name).unwrap();
    assert_eq!(run.append(Event::token("late")).unwrap_err().code(), "fenced");
    assert_eq!(run.append_durable(Event::token("late")).unwrap_err().code(), "fenced");
    assert_eq!(run.finish(Outcome::Completed).unwrap_err().code(), "fenced");
    assert!(!fixture.store.has_run(&fixture.id, &name).unwrap());
    assert!(fixture.store.resume_run(&fixture.id, &name).is_err());
}
