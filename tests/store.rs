//! The store as its users see it: sessions, runs, followers, many threads at once, on real files.

use std::collections::HashSet;
use std::sync::mpsc;
use std::sync::{Arc, Barrier};
use std::time::Duration;

use lastword::{
    After, AppendError, Cursor, Durability, Event, List, NewSession, Options, Outcome, ReadOptions, ReplayStatus, Row,
    Run, RunId, SaveIntent, SaveOptions, SessionId, SidecarError, Store, StoreError, UserTurn,
};

struct Fixture {
    folder: tempfile::TempDir,
    store: Store,
    id: SessionId,
}

fn fixture() -> Fixture {
    let folder = tempfile::tempdir().unwrap();
    let store = Store::open(folder.path(), Options::default()).unwrap();
    let id = store.create(NewSession::titled("A title")).unwrap();
    Fixture { folder, store, id }
}

impl Fixture {
    fn begin(&self, prompt: &str) -> Run {
        self.store.begin_run(&self.id, UserTurn::text(prompt)).unwrap()
    }

    fn rows(&self) -> Vec<(String, String)> {
        let session = self.store.get_session(&self.id).unwrap();
        session.messages().map(|row| (row.role().into_owned(), row.content().into_owned())).collect()
    }

    fn seqs(&self, run: &RunId) -> Vec<u64> {
        let found = self.store.read_events(&self.id, run, ReadOptions::default()).unwrap();
        found.events.iter().map(|event| event.seq.unwrap()).collect()
    }
}

fn pairs(rows: &[(&str, &str)]) -> Vec<(String, String)> {
    rows.iter().map(|(role, content)| (role.to_string(), content.to_string())).collect()
}

#[test]
fn a_turn_is_pending_until_it_ends_and_then_in_the_transcript() {
    let fixture = fixture();
    let run = fixture.begin("Where to?");
    let pending = fixture.store.get_session(&fixture.id).unwrap();
    assert_eq!(pending.pending_turn().unwrap().message, "Where to?");
    assert_eq!(pending.active_run().unwrap(), run.id().as_str());
    run.append(Event::reasoning("thinking")).unwrap();
    run.append(Event::token("To the ")).unwrap();
    run.append(Event::tool("t1", "map", "looking")).unwrap();
    run.append(Event::tool_complete("t1", "map", false)).unwrap();
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
fn a_stopped_run_keeps_its_partial_answer_and_says_so() {
    let fixture = fixture();
    let run = fixture.begin("x");
    run.append(Event::token("half an")).unwrap();
    run.finish(Outcome::Stopped).unwrap();
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
    run.finish(Outcome::Failed { kind: "rate_limit".into(), message: "Too many requests.".into() }).unwrap();
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
fn of_two_changes_of_one_version_the_second_is_a_conflict() {
    let fixture = fixture();
    let first = fixture.store.get_session(&fixture.id).unwrap();
    let (mut one, mut two) = ((*first).clone(), (*first).clone());
    one.set_text("title", "one");
    two.set_text("title", "two");
    let saved = fixture.store.save(&one, SaveOptions::default()).unwrap();
    let conflict = fixture.store.save(&two, SaveOptions::default()).unwrap_err();
    assert!(matches!(conflict, StoreError::Sidecar(SidecarError::Conflict { .. })));
    assert_eq!(fixture.store.get_session(&fixture.id).unwrap().revision(), saved.revision());
    assert_eq!(fixture.store.get_session(&fixture.id).unwrap().title(), "one");
}

#[test]
fn fifty_updates_at_once_all_count() {
    let fixture = fixture();
    let barrier = Arc::new(Barrier::new(50));
    let threads: Vec<_> = (0..50)
        .map(|number| {
            let (store, id, barrier) = (fixture.store.clone(), fixture.id.clone(), barrier.clone());
            std::thread::spawn(move || {
                barrier.wait();
                let row = Row::user(&number.to_string(), number);
                store.update(&id, SaveOptions::default(), |session| session.push_message(&row).unwrap()).unwrap();
            })
        })
        .collect();
    threads.into_iter().for_each(|thread| thread.join().unwrap());
    let contents: HashSet<_> = fixture.rows().into_iter().map(|(_, content)| content).collect();
    assert_eq!(contents.len(), 50);
}

#[test]
fn a_shrinking_save_needs_stated_intent() {
    let fixture = fixture();
    fixture.begin("x").finish(Outcome::Completed).unwrap();
    let mut shorter = (*fixture.store.get_session(&fixture.id).unwrap()).clone();
    shorter.truncate(List::Messages, 0).unwrap();
    let refused = fixture.store.save(&shorter, SaveOptions::default()).unwrap_err();
    assert!(matches!(refused, StoreError::Sidecar(SidecarError::WouldShrink { from: 1, to: 0, .. })), "{refused}");
    assert_eq!(fixture.rows().len(), 1);
    let meant = SaveOptions { intent: SaveIntent::Shrink, ..SaveOptions::default() };
    fixture.store.save(&shorter, meant).unwrap();
    assert!(fixture.rows().is_empty());
}

#[test]
fn a_damaged_sidecar_is_replaced_only_on_demand_and_then_kept() {
    let fixture = fixture();
    let session = (*fixture.store.get_session(&fixture.id).unwrap()).clone();
    let path = fixture.folder.path().join(format!("{}.json", fixture.id));
    std::fs::write(&path, b"\xff garbage").unwrap();
    assert_eq!(fixture.store.get_session(&fixture.id).unwrap_err().code(), "corrupt_utf8");
    assert_eq!(fixture.store.save(&session, SaveOptions::default()).unwrap_err().code(), "conflict");
    let again = NewSession::titled("again").with_id(fixture.id.clone());
    assert_eq!(fixture.store.create(again).unwrap_err().code(), "exists");
    assert_eq!(std::fs::read(&path).unwrap(), b"\xff garbage");
    let replace = SaveOptions { intent: SaveIntent::Replace, ..SaveOptions::default() };
    fixture.store.save(&session, replace).unwrap();
    let kept = std::fs::read_dir(fixture.folder.path().join("_kept").join(fixture.id.as_str())).unwrap();
    let kept: Vec<_> = kept.map(|entry| std::fs::read(entry.unwrap().path()).unwrap()).collect();
    assert_eq!(kept, [b"\xff garbage".to_vec()]);
    assert_eq!(fixture.store.get_session(&fixture.id).unwrap().title(), "A title");
}

#[test]
fn a_deleted_id_does_not_come_back() {
    let fixture = fixture();
    let stale = (*fixture.store.get_session(&fixture.id).unwrap()).clone();
    fixture.store.delete(&fixture.id).unwrap();
    assert_eq!(fixture.store.save(&stale, SaveOptions::default()).unwrap_err().code(), "deleted");
    let again = NewSession::titled("again").with_id(fixture.id.clone());
    assert_eq!(fixture.store.create(again).unwrap_err().code(), "deleted");
    assert_eq!(fixture.store.delete(&fixture.id).unwrap_err().code(), "not_found");
    assert!(fixture.store.list().unwrap().is_empty());
}

#[test]
fn a_list_is_sorted_by_change_and_one_bad_file_does_not_block_it() {
    let fixture = fixture();
    let newer = fixture.store.create(NewSession::titled("newer")).unwrap();
    std::fs::write(fixture.folder.path().join("bad.json"), b"[").unwrap();
    std::fs::write(fixture.folder.path().join(".DS_Store"), b"x").unwrap();
    let listed = fixture.store.list().unwrap();
    let ids: Vec<_> = listed.iter().map(|entry| entry.id.as_str()).collect();
    assert_eq!(ids, [newer.as_str(), fixture.id.as_str(), "bad"]);
    assert_eq!(listed[2].metadata.as_ref().unwrap_err().code(), "corrupt_json");
    fixture.store.update(&fixture.id, SaveOptions::default(), |session| session.set("pinned", "true")).unwrap();
    assert_eq!(fixture.store.list().unwrap()[0].id, fixture.id);
}

#[test]
fn more_runs_than_open_files_all_get_their_events() {
    let fixture = fixture();
    let runs: Vec<Run> = (0..lastword::limits::OPEN_JOURNALS_MAX + 40)
        .map(|number| fixture.store.adopt_run(&fixture.id, &RunId::parse(&format!("r{number}")).unwrap()).unwrap())
        .collect();
    for _ in 0..2 {
        runs.iter().for_each(|run| drop(run.append(Event::token("x")).unwrap()));
    }
    assert!(open_files() < lastword::limits::OPEN_JOURNALS_MAX + 100, "{} files are open", open_files());
    assert!(runs.iter().all(|run| fixture.seqs(run.id()) == [1, 2]));
}

fn open_files() -> usize {
    std::fs::read_dir("/proc/self/fd").map_or(0, Iterator::count)
}

#[test]
fn replay_goes_on_behind_a_cursor_and_names_what_is_wrong_with_it() {
    let fixture = fixture();
    for prompt in ["one", "two"] {
        let run = fixture
            .store
            .begin_run(&fixture.id, UserTurn::text(prompt).with_run(RunId::parse(prompt).unwrap()))
            .unwrap();
        run.append(Event::token(prompt)).unwrap();
        run.finish(Outcome::Completed).unwrap();
    }
    let replay = |cursor: &str| fixture.store.replay(&fixture.id, Some(&Cursor::parse(cursor))).unwrap();
    let ids = |cursor: &str| -> Vec<String> {
        let replay = replay(cursor);
        assert_eq!(replay.status, ReplayStatus::Ok, "{cursor}");
        replay.events.iter().map(|(run, event)| event.event_id(run)).collect()
    };
    assert_eq!(ids("one:0"), ["one:1", "one:2", "two:1", "two:2"]);
    assert_eq!(ids("one:2"), ["two:1", "two:2"]);
    assert_eq!(ids("two:2"), [""; 0]);
    for (cursor, status) in [
        ("", ReplayStatus::CursorInvalid),
        ("one:x", ReplayStatus::CursorInvalid),
        ("o/e:1", ReplayStatus::CursorInvalid),
        ("three:1", ReplayStatus::CursorRunMissing),
        ("one:9", ReplayStatus::CursorEventMissing),
    ] {
        assert_eq!(replay(cursor).status, status, "{cursor:?}");
    }
    assert_eq!(fixture.store.replay(&fixture.id, None).unwrap().events.len(), 4);
}

#[test]
fn replay_says_when_a_journal_is_damaged_foreign_too_long_or_has_gaps() {
    let fixture = fixture();
    let folder = fixture.folder.path().join("_run_journal").join(fixture.id.as_str());
    std::fs::create_dir_all(&folder).unwrap();
    let line = |session: &str, seq: u64, text: &str| {
        format!(
            "{{\"event_id\":\"r:{seq}\",\"seq\":{seq},\"run_id\":\"r\",\"session_id\":\"{session}\",\"event\":\"token\",\"payload\":\"{text}\"}}\n"
        )
    };
    let id = fixture.id.as_str();
    let long = "x".repeat(1024 * 1024);
    let status = |journal: String| {
        std::fs::write(folder.join("r.jsonl"), journal).unwrap();
        fixture.store.replay(&fixture.id, Some(&Cursor::parse("r:1"))).unwrap().status.as_str()
    };
    assert_eq!(status(line(id, 1, "") + &line(id, 2, "")), "ok");
    assert_eq!(status(line(id, 1, "") + "garbage\n" + &line(id, 2, "")), "replay_malformed");
    assert_eq!(status(line(id, 1, "") + &line(id, 3, "")), "replay_noncontiguous");
    assert_eq!(status(line("other", 1, "") + &line("other", 2, "")), "cursor_session_mismatch");
    assert_eq!(status((1..=6).map(|seq| line(id, seq, &long)).collect()), "replay_limit_bytes");
    assert_eq!(status((1..=5000).map(|seq| line(id, seq, "")).collect()), "replay_limit_rows");
    assert_eq!(status(line(id, 1, "") + &line(id, 2, "") + "{\"seq\":3"), "ok", "an unfinished line is no trouble");
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
fn unknown_keys_inside_rows_and_cards_survive_a_turn() {
    let fixture = fixture();
    let odd = r#"{"role":"user","content":[{"type":"image"}],"x-custom":{"deep":[1.50,"\ud800"]}}"#;
    let card = r#"{"tid":"t","vendor":{"k":null}}"#;
    fixture
        .store
        .update(&fixture.id, SaveOptions::default(), |session| {
            session.push_item(List::Messages, odd).unwrap();
            session.push_item(List::ToolCalls, card).unwrap();
            session.push_item(List::ContextMessages, odd).unwrap();
            session.set("application_key", r#"{"nested": [true]}"#);
        })
        .unwrap();
    fixture.begin("next").finish(Outcome::Completed).unwrap();
    let session = fixture.store.get_session(&fixture.id).unwrap();
    assert_eq!(session.texts(List::Messages).next(), Some(odd));
    assert_eq!(session.texts(List::ToolCalls).next(), Some(card));
    assert_eq!(session.get("application_key"), Some(r#"{"nested": [true]}"#));
    assert_eq!(session.len(List::ContextMessages), 2, "the model's view goes on with the turn");
}

#[cfg(unix)]
#[test]
fn files_and_folders_are_for_their_owner_alone() {
    use std::os::unix::fs::PermissionsExt;
    let fixture = fixture();
    let run = fixture.begin("x");
    run.finish(Outcome::Completed).unwrap();
    fixture.store.delete(&fixture.id).unwrap();
    let mut folders = vec![fixture.folder.path().to_owned()];
    let mut seen = 0;
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap()) {
            let metadata = entry.metadata().unwrap();
            let mode = metadata.permissions().mode() & 0o777;
            assert_eq!(mode, if metadata.is_dir() { 0o700 } else { 0o600 }, "{}", entry.path().display());
            if metadata.is_dir() {
                folders.push(entry.path());
            }
            seen += 1;
        }
    }
    assert!(seen >= 8, "only {seen} names");
}

/// Runs something that must not take for ever.
fn in_time<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    let (told, heard) = mpsc::channel();
    std::thread::spawn(move || told.send(work()));
    heard.recv_timeout(Duration::from_secs(30)).expect("it never ends")
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

#[test]
fn the_active_run_is_not_removed() {
    let fixture = fixture();
    let run = fixture.begin("x");
    assert_eq!(fixture.store.remove_run(&fixture.id, run.id()).unwrap_err().code(), "run_in_progress");
}

#[test]
fn what_is_not_json_is_not_saved() {
    let fixture = fixture();
    let refused = fixture.store.update(&fixture.id, SaveOptions::default(), |session| session.set("model", "gpt"));
    assert_eq!(refused.unwrap_err().code(), "invalid_argument");
    let refused = fixture.store.update(&fixture.id, SaveOptions::default(), |session| {
        session.push_item(List::Messages, "{\"role\":").unwrap();
    });
    assert_eq!(refused.unwrap_err().code(), "invalid_argument");
    assert_eq!(fixture.store.get_session(&fixture.id).unwrap().title(), "A title");
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
