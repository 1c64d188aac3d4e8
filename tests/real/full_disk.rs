//! A disk that is really full: appends, saves and commands say so, nothing half-written is shown, and the same store goes
//! on when there is room.

use std::fs;
use std::path::Path;
use std::process::Command;

use lastword::{Durability, Event, NewSession, Options, Outcome, ReadOptions, Run, RunId, SessionId, Store, UserTurn};
use serde_json::Value;

use crate::data::visit;
use crate::process::{Ended, Process};
use crate::small_disk::{Filler, on_a_small_disk};

const PROMPT: &str = "Où aller?";
/// Leaves less than a megabyte of four beside the commit log; enough for what the runs still want when it is gone.
const FILLER_BYTES: usize = 2_300_000;

fn session_id(name: &str) -> SessionId {
    SessionId::parse(name).expect("a good id")
}

/// A run, and the events of it that were acknowledged.
struct Answer {
    /// None between two stores.
    run: Option<Run>,
    session: SessionId,
    id: RunId,
    durability: Durability,
    taken: Vec<Event>,
}

impl Answer {
    fn begin(store: &Store, name: &str, durability: Durability) -> Self {
        let session = session_id(name);
        store.create(NewSession::titled(name).with_id(session.clone())).expect("there is room for a session");
        let run = store.begin_run(&session, UserTurn::text(PROMPT)).expect("there is room for a run");
        Answer { session, id: run.id().clone(), run: Some(run), durability, taken: Vec::new() }
    }

    fn run(&self) -> &Run {
        self.run.as_ref().expect("it is open")
    }

    /// Appends an event and notes it if it is acknowledged; otherwise the disk is full, and says so.
    fn append(&mut self, event: Event) -> bool {
        match self.run().append_all(std::slice::from_ref(&event), self.durability) {
            Ok(appended) => {
                assert_eq!(appended.last_seq, self.taken.len() as u64 + 1);
                appended.wait().expect("what was appended becomes durable on a full disk too");
                self.taken.push(event);
                true
            }
            Err(error) => {
                assert_eq!(error.code(), "no_space", "{error}");
                assert!(error.storage().expect("the disk is to blame").is_no_space());
                false
            }
        }
    }

    fn append_until_full(&mut self, event: &Event) {
        while self.append(event.clone()) {}
    }

    /// Every acknowledged event is there, once, and nothing else.
    fn check(&self, store: &Store) {
        let found = store.read_events(&self.session, &self.id, ReadOptions::default());
        let found = found.expect("a journal can be read");
        assert!(found.damage.is_empty(), "{:?}", found.damage);
        assert!(found.events.iter().map(|event| event.seq).eq((1..=self.taken.len() as u64).map(Some)));
        let there = found.events.iter().map(|event| (event.name.as_str(), event.payload()));
        assert!(there.eq(self.taken.iter().map(|event| (event.name(), event.payload()))), "not what was sent");
    }

    fn finish(&mut self) {
        let end = self.run().finish(Outcome::Completed).expect("there is room again");
        assert_eq!(end.last_seq, self.taken.len() as u64 + 1);
        self.taken.push(Event::done());
    }

    /// The answer is in the transcript, whole.
    fn check_saved(&self, store: &Store) {
        let tokens = self.taken.iter().filter(|event| event.name() == "token");
        let text = |event: &Event| serde_json::from_str::<Value>(event.payload()).expect("JSON")["text"].clone();
        let answer: String = tokens.map(|event| text(event).as_str().expect("a text").to_owned()).collect();
        let session = store.get_session(&self.session).expect("the session is there");
        let rows: Vec<_> =
            session.messages().map(|row| (row.role().into_owned(), row.content().into_owned())).collect();
        assert!(rows == [("user".into(), PROMPT.into()), ("assistant".into(), answer)], "not the whole answer");
    }
}

/// No sidecar is there but those named, each whole; and no file that was not finished.
fn check_files(root: &Path, sessions: &[&str]) {
    let mut names = Vec::new();
    visit(root, &mut |path| {
        let name = path.file_name().expect("a file has a name").to_string_lossy().into_owned();
        assert!(!name.starts_with("_tmp-"), "{name} was left behind");
        if name.ends_with(".json") {
            let text = fs::read(path).expect("it can be read");
            assert!(serde_json::from_slice::<Value>(&text).is_ok(), "{name} is not whole");
            names.push(name);
        }
    });
    names.sort();
    let mut expected: Vec<String> = sessions.iter().map(|name| format!("{name}.json")).collect();
    expected.push("_lastword.json".to_owned());
    expected.sort();
    assert_eq!(names, expected);
}

/// Large events, then small ones, then one that is shorter than the end of a run, so that nothing fits any more.
fn fill_up(answers: &mut [Answer]) {
    let events = [Event::token(&"漢é🦀".repeat(2_000)), Event::token("é "), Event::new("x", "{}").expect("an event")];
    for event in &events {
        answers.iter_mut().for_each(|answer| answer.append_until_full(event));
    }
}

fn refused<T: std::fmt::Debug>(result: Result<T, lastword::StoreError>) {
    let error = result.expect_err("the disk is full");
    assert_eq!(error.code(), "no_space", "{error}");
}

#[test]
fn the_same_store_and_the_same_runs_go_on_when_a_full_disk_has_room_again() {
    let name = "full_disk::the_same_store_and_the_same_runs_go_on_when_a_full_disk_has_room_again";
    on_a_small_disk(name, "4m", |disk| {
        let root = disk.join("data");
        let store = Store::open(&root, Options::default()).expect("an empty disk has room");
        let durabilities = [("buffered", Durability::Buffered), ("durable", Durability::Durable)];
        let mut answers = durabilities.map(|(name, durability)| Answer::begin(&store, name, durability));
        store.create(NewSession::titled("idle").with_id(session_id("idle"))).expect("there is room");
        answers.iter_mut().for_each(|answer| assert!(answer.append(Event::token("Ans Meer"))));
        store.commit().expect("there is room for the log");
        assert_eq!(fs::read_dir(root.join("_commit_log")).expect("there is a log").count(), 1);

        let filler = Filler::of(disk, FILLER_BYTES);
        fill_up(&mut answers);
        let late = || UserTurn::text(PROMPT).with_run(RunId::parse("late").expect("a good id"));
        refused(store.create(NewSession::titled("one more").with_id(session_id("more"))));
        refused(store.begin_run(&session_id("idle"), late()));
        answers.iter().for_each(|answer| refused(answer.run().finish(Outcome::Completed)));
        store.commit().expect("what is there becomes durable on a full disk too");
        let reader = Store::open_read_only(&root, Options::default()).expect("a full disk can be read");
        answers.iter().for_each(|answer| answer.check(&reader));
        check_files(&root, &["buffered", "durable", "idle"]);

        drop(filler);
        for answer in &mut answers {
            assert!(answer.append(Event::token("und dann heim.")), "there is room again");
            answer.finish();
            answer.check_saved(&store);
            answer.run = None;
        }
        store.begin_run(&session_id("idle"), late()).expect("a run that found no room can be begun again");
        drop(store);
        let store = Store::open(&root, Options::default()).expect("the directory can be opened");
        assert_eq!(store.findings(), []);
        answers.iter().for_each(|answer| answer.check(&store));
        answers.iter().for_each(|answer| answer.check_saved(&store));
        check_files(&root, &["buffered", "durable", "idle"]);
    });
}

#[test]
fn a_store_that_was_closed_on_a_full_disk_opens_there_and_has_everything() {
    let name = "full_disk::a_store_that_was_closed_on_a_full_disk_opens_there_and_has_everything";
    on_a_small_disk(name, "4m", |disk| {
        let root = disk.join("data");
        let open = || Store::open(&root, Options::default()).expect("the directory can be opened");
        let store = open();
        let mut answers = [Answer::begin(&store, "durable", Durability::Durable)];
        assert!(answers[0].append(Event::token("Ans Meer")));
        let filler = Filler::of(disk, FILLER_BYTES);
        fill_up(&mut answers);
        let [mut answer] = answers;
        answer.run = None;
        drop(store);
        let store = open();
        answer.check(&store);
        answer.run = Some(store.resume_run(&answer.session, &answer.id).expect("the run goes on"));
        assert!(!answer.append(Event::token("und dann heim.")), "the disk is still full");
        drop(filler);
        assert!(answer.append(Event::token("und dann heim.")), "there is room again");
        answer.finish();
        answer.check_saved(&store);
    });
}

fn lastword(root: &Path, args: &[&str], input: &str) -> Ended {
    let mut command = Command::new(env!("CARGO_BIN_EXE_lastword"));
    command.arg("--data").arg(root).args(args);
    let mut process = Process::start(command);
    process.feed(input.lines().map(str::to_owned).collect::<Vec<_>>().into_iter());
    process.end()
}

#[test]
fn a_command_on_a_full_disk_exits_with_four_and_says_what_to_do() {
    let name = "full_disk::a_command_on_a_full_disk_exits_with_four_and_says_what_to_do";
    on_a_small_disk(name, "2m", |disk| {
        let root = disk.join("data");
        let token = r#"{"event":"token","payload":{"text":"Ans Meer."}}"#;
        let append = ["append", "trip", "r1", "--durability", "durable"];
        for args in [&["new", "--id", "trip"][..], &["turn", "trip", "--message", PROMPT, "--run", "r1"]] {
            assert_eq!(lastword(&root, args, "").code(), Some(0));
        }
        assert_eq!(lastword(&root, &append, token).lines, [r#"{"seq":1}"#]);
        let filler = Filler::of_everything(disk);
        let large = format!(r#"{{"event":"token","payload":{{"text":"{}"}}}}"#, "é".repeat(5_000));
        for (args, input) in [(&append[..], large.as_str()), (&["new", "--id", "more"], "")] {
            let full = lastword(&root, args, input);
            assert_eq!((full.code(), full.lines.len()), (Some(4), 0), "{args:?}: {}", full.stderr);
            assert!(full.stderr.contains("make room on the disk, then try again"), "{args:?}: {}", full.stderr);
        }
        let tail = lastword(&root, &["tail", "trip", "r1"], "");
        assert_eq!((tail.code(), tail.lines.len(), tail.stderr.as_str()), (Some(0), 1, ""), "it can be read");
        drop(filler);
        assert_eq!(lastword(&root, &append, &large).lines, [r#"{"seq":2}"#]);
        assert_eq!(lastword(&root, &append, r#"{"event":"done"}"#).lines, [r#"{"seq":3}"#]);
    });
}
