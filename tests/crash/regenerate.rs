//! Turns that replace others and branches that are restored, interrupted at every operation, and again while that is recovered.
//!
//! Whatever happens, each row is in the transcript, in a branch, in a journal, or still asked; the transcript is the old one or the
//! new one, and holds nothing twice; what was acknowledged holds; and resolving it again, whole or cut, gives the same bytes.

use std::collections::BTreeMap;
use std::path::Path;

use lastword::storage::sim::{Crash, SimDisk};
use lastword::storage::{Access, Disk};
use lastword::{Event, List, Outcome, ReadOptions, Replaces, RunId, Session, Store, StoreError, UserTurn};
use serde_json::Value;

use crate::machine::{DATA, End, NOW, ended, id, open, open_at};

const NEW: &str = "new";

fn run_id(name: &str) -> RunId {
    RunId::parse(name).unwrap()
}

type Work = fn(&Store) -> Result<(), StoreError>;

/// What is done to a session with three turns, `r1` to `r3`, whose second answer was replaced by `r2b` and then by that branch.
struct Case {
    name: &'static str,
    work: Work,
    /// What the transcript says when it was done.
    after: &'static [&'static str],
    /// The runs of the branches then.
    branches: &'static [&'static str],
    /// What stands in the transcript, a branch or a journal once it was said: words that are not in the old rows.
    said: &'static [&'static str],
}

const OLD: [&str; 6] = ["question 1", "answer of r1", "question 2", "answer of r2", "question 3", "answer of r3"];

fn begin(store: &Store, replaces: Replaces, words: &str) -> Result<lastword::Run, StoreError> {
    let turn = UserTurn { replaces: Some(replaces), ..UserTurn::text(words) };
    store.begin_run(&id(), turn.with_run(run_id(NEW)))
}

fn again(store: &Store) -> Result<lastword::Run, StoreError> {
    begin(store, Replaces::Answer("r2".to_owned()), "")
}

fn edit(store: &Store) -> Result<lastword::Run, StoreError> {
    begin(store, Replaces::Message("r2-user".to_owned()), "edited")
}

fn answer(store: &Store, name: &str, turn: UserTurn) -> Result<(), StoreError> {
    let run = store.begin_run(&id(), turn.with_run(run_id(name)))?;
    run.append(Event::token(&format!("answer of {name}")))?;
    run.finish(Outcome::Completed).map(drop)
}

fn say(run: &lastword::Run) -> Result<(), StoreError> {
    run.append(Event::tool("t", "look", &serde_json::json!({"where": "up"})))?;
    run.append(Event::token("new words")).map(drop)
}

const CASES: [Case; 8] = [
    Case {
        name: "regenerate, completed",
        work: |store| {
            let run = again(store)?;
            say(&run)?;
            run.finish(Outcome::Completed).map(drop)
        },
        after: &["question 1", "answer of r1", "question 2", "", "new words"],
        branches: &["r2"],
        said: &["new words"],
    },
    Case {
        name: "regenerate, failed",
        work: |store| {
            let run = again(store)?;
            say(&run)?;
            run.fail("x", "it broke").map(drop)
        },
        after: &OLD,
        branches: &[NEW],
        said: &["new words"],
    },
    Case {
        name: "regenerate, stopped with output",
        work: |store| {
            let run = again(store)?;
            say(&run)?;
            run.finish(Outcome::InterruptedByUser).map(drop)
        },
        after: &["question 1", "answer of r1", "question 2", "", "new words", "!"],
        branches: &["r2"],
        said: &["new words"],
    },
    Case {
        name: "regenerate, stopped without output",
        work: |store| again(store)?.finish(Outcome::InterruptedByUser).map(drop),
        after: &OLD,
        branches: &[],
        said: &[],
    },
    Case {
        name: "edit, completed",
        work: |store| {
            let run = edit(store)?;
            say(&run)?;
            run.finish(Outcome::Completed).map(drop)
        },
        after: &["question 1", "answer of r1", "edited", "", "new words"],
        branches: &["r2"],
        said: &["edited", "new words"],
    },
    Case {
        name: "edit, stopped without output",
        work: |store| edit(store)?.finish(Outcome::InterruptedByUser).map(drop),
        after: &OLD,
        branches: &[NEW],
        said: &["edited"],
    },
    Case {
        name: "edit of the first message, tool limit",
        work: |store| {
            let run = begin(store, Replaces::Message("r1-user".to_owned()), "edited")?;
            say(&run)?;
            run.finish(Outcome::ToolLimitReached).map(drop)
        },
        after: &["edited", "", "new words"],
        branches: &["r1"],
        said: &["edited", "new words"],
    },
    Case {
        name: "restore",
        work: |store| {
            let kept = store.branches(&id())?.into_iter().find(|branch| branch.run_id.as_deref() == Some("r3b"));
            store.restore_branch(&id(), &kept.unwrap().branch_id, |_| true).map(drop)
        },
        after: &["question 1", "answer of r1", "question 2", "answer of r2", "question 3", "answer of r3b"],
        branches: &["r3"],
        said: &[],
    },
];

impl Case {
    fn is_restore(&self) -> bool {
        self.name == "restore"
    }

    /// The disk before it.
    fn laid(&self) -> SimDisk {
        let disk = SimDisk::new();
        let store = open(&disk).unwrap();
        store.create(lastword::NewSession::titled("t").with_id(id())).unwrap();
        let answer = |name: &str, turn: UserTurn| answer(&store, name, turn).unwrap();
        (1..=3).for_each(|nth| answer(&format!("r{nth}"), UserTurn::text(&format!("question {nth}"))));
        if self.is_restore() {
            answer("r3b", UserTurn::last_answer_again());
            store.restore_branch(&id(), "r3b", |_| true).unwrap().unwrap();
        }
        drop(store);
        disk
    }

    fn run(&self, disk: &SimDisk) -> Result<(), StoreError> {
        open(disk).and_then(|store| (self.work)(&store))
    }
}

/// What the rows of a transcript say. A marker says `!`.
fn texts(session: &Session) -> Vec<String> {
    let text = |row: lastword::Row| if row.is_error() { "!".to_owned() } else { row.content().into_owned() };
    session.messages().map(text).collect()
}

/// The bytes of the session's document and of its branches.
fn files(disk: &SimDisk) -> BTreeMap<String, String> {
    let mut files = BTreeMap::new();
    let mut read = |name: String| {
        let file = disk.open(&Path::new(DATA).join(&name), Access::Read).unwrap();
        let mut bytes = vec![0; file.stat().unwrap().len as usize];
        file.read_at(&mut bytes, 0).unwrap();
        files.insert(name, String::from_utf8(bytes).unwrap());
    };
    read("s.json".to_owned());
    let branches = disk.read_dir(&Path::new(DATA).join("_branches/s")).unwrap_or_default();
    branches.iter().for_each(|entry| read(format!("_branches/s/{}", entry.name)));
    files
}

/// Resolves what there is to resolve, as the next process does.
fn resolve(disk: &SimDisk) -> Result<(), StoreError> {
    open_later(disk).and_then(|store| store.get_session(&id()).map(drop))
}

/// The store of a process that begins a minute after the one that died.
fn open_later(disk: &SimDisk) -> Result<Store, StoreError> {
    open_at(disk, NOW + 60)
}

/// All the words that are kept of a session: rows of the transcript and of each branch object, the turn that waits, journals.
fn kept_words(disk: &SimDisk, store: &Store) -> String {
    let mut words: Vec<String> = files(disk).into_values().collect();
    let events = store.read_events(&id(), &run_id(NEW), ReadOptions::default());
    words.extend(events.iter().flat_map(|found| &found.events).map(|event| event.payload().to_owned()));
    words.join("\n")
}

/// What must hold on a disk whose last life is over.
fn check(case: &Case, disk: &SimDisk, is_done: bool, has_said: &str, what: &str) {
    resolve(disk).unwrap_or_else(|error| panic!("it does not recover: {error}: {what}"));
    let resolved = files(disk);
    resolve(disk).unwrap();
    assert_eq!(files(disk), resolved, "resolving twice is another thing than once: {what}");
    let store = open_later(disk).unwrap();
    let session = store.get_session(&id()).unwrap();
    let (found, branches) = (texts(&session), store.branches(&id()).unwrap());
    let runs: Vec<&str> = branches.iter().filter_map(|branch| branch.run_id.as_deref()).collect();
    assert_eq!(session.pending_turn(), None, "{what}");
    if is_done {
        assert_eq!((&found[..], &runs[..]), (&owned(case.after)[..], case.branches), "{what}");
    }
    // The old rows, or the new ones: of a run that was cut, as far as it came.
    let is_old = found == OLD;
    assert!(is_old || found == case.after, "{found:?}: {what}");
    let kept = kept_words(disk, &store);
    for words in OLD.iter().chain(if case.is_restore() { &["answer of r3b"][..] } else { &[] }) {
        assert!(kept.contains(words), "{words:?} is lost: {what}");
    }
    assert!(kept.contains(has_said), "{has_said:?} is lost: {what}");
    let rows: Vec<Value> = session.texts(List::Messages).map(|row| serde_json::from_str(row).unwrap()).collect();
    let mut texts: Vec<String> = rows.iter().map(Value::to_string).collect();
    texts.sort_unstable();
    let count = texts.len();
    texts.dedup();
    assert_eq!(texts.len(), count, "a row stands there twice: {what}");
    is_nothing_twice(disk, &store, what);
    let of_run = |name: &str| rows.iter().filter(|row| row["_run_id"] == name && row["role"] == "user").count();
    assert!(["r1", "r2", "r3", "r3b", NEW].iter().all(|run| of_run(run) <= 1), "{rows:?}: {what}");
}

/// Whether each answer stands in one place: the transcript, or one branch that is listed.
fn is_nothing_twice(disk: &SimDisk, store: &Store, what: &str) {
    let session = store.get_session(&id()).unwrap();
    let mut places: Vec<String> = vec![session.texts(List::Messages).collect()];
    let files = files(disk);
    for branch in store.branches(&id()).unwrap() {
        let file: Value = serde_json::from_str(&files[&format!("_branches/s/{}.json", branch.branch_id)]).unwrap();
        places.push(file["rows"].to_string());
    }
    for words in
        ["answer of r1\"", "answer of r2\"", "answer of r3\"", "answer of r3b\"", "answer of r4\"", "new words"]
    {
        let count = places.iter().filter(|place| place.contains(words)).count();
        assert!(count <= 1, "{words:?} stands in {count} places: {what}");
    }
}

fn owned(texts: &[&str]) -> Vec<String> {
    texts.iter().map(|text| (*text).to_owned()).collect()
}

/// The last words that were said on this disk before it stopped, as far as its journal and document know.
fn crash_everywhere(case: &Case) {
    let laid = case.laid();
    let whole = laid.copy();
    case.run(&whole).unwrap();
    let operations = whole.operations() - laid.operations();
    check(case, &whole, true, case.said.last().unwrap_or(&""), case.name);
    let (mut old, mut new) = (0, 0);
    for operation in 1..=operations {
        let stopped = laid.copy();
        stopped.stop_before(laid.operations() + operation);
        let is_done = case.run(&stopped).is_ok();
        for (end, disk) in ended(&stopped) {
            let what = format!("{}, operation {operation} of {operations}, {end:?}", case.name);
            check(case, &disk, is_done, "", &what);
            let found = texts(&open_later(&disk).unwrap().get_session(&id()).unwrap());
            *(if found == OLD { &mut old } else { &mut new }) += 1;
        }
    }
    assert!(old > 0 && (new > 0 || case.after == OLD), "{}: {old} {new}", case.name);
}

#[test]
fn whatever_replaces_a_turn_may_be_cut_anywhere() {
    CASES.iter().for_each(crash_everywhere);
}

/// The words of an edit are kept from the moment on when its turn was acknowledged, and the words of its run after `kill -9` from
/// the moment on when they were appended.
#[test]
fn what_was_acknowledged_of_a_turn_that_replaces_another_is_never_lost() {
    let laid = CASES[4].laid();
    let whole = laid.copy();
    CASES[4].run(&whole).unwrap();
    for operation in 1..=whole.operations() - laid.operations() {
        let stopped = laid.copy();
        stopped.stop_before(laid.operations() + operation);
        let mut told = vec![];
        let _ = open(&stopped).and_then(|store| {
            let run = edit(&store)?;
            told.push("edited");
            say(&run)?;
            told.push("new words");
            run.finish(Outcome::Completed).map(drop)
        });
        for (end, disk) in ended(&stopped) {
            resolve(&disk).unwrap();
            let kept = kept_words(&disk, &open_later(&disk).unwrap());
            let promised = if end.is_power() { &told[..told.len().min(1)] } else { &told[..] };
            for words in promised {
                assert!(kept.contains(words), "{words:?} is lost: operation {operation}, {end:?}");
            }
        }
    }
}

/// Each recovery is cut at each of its operations, and what follows gives the bytes of one that was not.
#[test]
fn a_recovery_of_a_turn_that_replaces_another_may_be_cut_anywhere() {
    const ENDS: [End; 3] = [End::Kill, End::Power(Crash::LoseAll), End::Power(Crash::Seeded(3))];
    let mut recovered = 0;
    for case in &CASES {
        let laid = case.laid();
        let whole = laid.copy();
        case.run(&whole).unwrap();
        for operation in 1..=whole.operations() - laid.operations() {
            let cut = laid.copy();
            cut.stop_before(laid.operations() + operation);
            let _ = case.run(&cut);
            let end = ENDS[operation as usize % ENDS.len()];
            end.strike(&cut);
            // What a kill left in memory, power cut takes: then another recovery finds less.
            let seconds = if end.is_power() { &ENDS[..] } else { &ENDS[..1] };
            let undisturbed = cut.copy();
            resolve(&undisturbed).unwrap();
            if files(&undisturbed) == files(&cut) {
                continue;
            }
            recovered += 1;
            for (second, end) in (1..).zip(seconds.iter().copied().cycle()) {
                let disk = cut.copy();
                disk.stop_before(disk.operations() + second);
                let is_whole = resolve(&disk).is_ok();
                end.strike(&disk);
                resolve(&disk).unwrap();
                let what = format!("{}, operations {operation} and {second}, {end:?}", case.name);
                assert_eq!(files(&disk), files(&undisturbed), "{what}");
                if is_whole {
                    break;
                }
            }
        }
    }
    assert!(recovered > 20, "{recovered}");
}

/// Whatever is cut, another act follows, which takes the rows out of the transcript that a branch was made of already. None is in
/// two branches then.
#[test]
fn another_act_after_one_that_was_cut_leaves_no_row_in_two_branches() {
    const ENDS: [End; 2] = [End::Kill, End::Power(Crash::LoseAll)];
    let acts: [Work; 3] = [
        |store| {
            answer(store, "r4", UserTurn { replaces: Some(Replaces::Answer("r2".to_owned())), ..UserTurn::default() })
        },
        |store| {
            let turn = UserTurn { replaces: Some(Replaces::Message("r1-user".to_owned())), ..UserTurn::text("other") };
            answer(store, "r4", turn)
        },
        |store| {
            answer(store, "r4", UserTurn::last_answer_again())?;
            store.restore_branch(&id(), "r4", |_| true).map(drop)
        },
    ];
    for case in &CASES {
        let laid = case.laid();
        let whole = laid.copy();
        case.run(&whole).unwrap();
        for operation in 1..=whole.operations() - laid.operations() {
            let stopped = laid.copy();
            stopped.stop_before(laid.operations() + operation);
            let _ = case.run(&stopped);
            for end in ENDS {
                for (nth, act) in acts.iter().enumerate() {
                    let (disk, what) =
                        (stopped.copy(), format!("{}, operation {operation}, {end:?}, act {nth}", case.name));
                    end.strike(&disk);
                    let store = open_later(&disk).unwrap();
                    store.get_session(&id()).unwrap();
                    match act(&store) {
                        // The turn that it names was replaced.
                        Err(StoreError::UnknownMessage { .. }) => {}
                        done => done.unwrap_or_else(|error| panic!("{error}: {what}")),
                    }
                    is_nothing_twice(&disk, &store, &what);
                }
            }
        }
    }
}

/// A restore that was cut is repeated: it does what it would have done, and leaves no row behind.
#[test]
fn a_restore_that_was_cut_is_repeated_with_the_same_result() {
    let case = &CASES[7];
    let laid = case.laid();
    let (whole, kept) = (laid.copy(), {
        let store = open(&laid).unwrap();
        store.branches(&id()).unwrap()[0].branch_id.clone()
    });
    let laid = whole.copy();
    case.run(&whole).unwrap();
    for operation in 1..=whole.operations() - laid.operations() {
        let stopped = laid.copy();
        stopped.stop_before(laid.operations() + operation);
        let _ = case.run(&stopped);
        for (end, disk) in ended(&stopped) {
            let store = open_later(&disk).unwrap();
            match store.restore_branch(&id(), &kept, |_| true) {
                Ok(Some(_)) => {}
                Err(StoreError::UnknownBranch { .. }) => {}
                other => panic!("{other:?}: operation {operation}, {end:?}"),
            }
            assert_eq!(texts(&store.get_session(&id()).unwrap()), case.after, "operation {operation}, {end:?}");
            let branches = store.branches(&id()).unwrap();
            let runs: Vec<&str> = branches.iter().filter_map(|branch| branch.run_id.as_deref()).collect();
            assert_eq!(runs, case.branches, "operation {operation}, {end:?}");
            assert_eq!(files(&disk).len(), 2, "operation {operation}, {end:?}");
        }
    }
}

/// Whether the journal of the new run holds its end.
fn holds_end(store: &Store) -> bool {
    let found = store.read_events(&id(), &run_id(NEW), ReadOptions::default()).unwrap();
    found.events.iter().any(|event| event.is_terminal)
}

/// A disk with an edit that said something, was given up for dead, and is a branch.
fn dead_edit() -> SimDisk {
    let laid = CASES[4].laid();
    let begun = open(&laid).and_then(|store| edit(&store).and_then(|run| say(&run)));
    begun.unwrap();
    laid.kill();
    resolve(&laid).unwrap();
    laid
}

/// The disk is full from one operation of a late end on. When there is room again, a read brings the answer in, without a repeat.
#[test]
fn a_late_end_that_met_a_full_disk_comes_in_with_a_later_read() {
    let laid = dead_edit();
    let mut kept = 0;
    for operation in 1..40 {
        let disk = laid.copy();
        let store = open_later(&disk).unwrap();
        assert_eq!(texts(&store.get_session(&id()).unwrap()), OLD);
        let run = store.resume_run(&id(), &run_id(NEW)).unwrap();
        disk.fill(disk.operations() + operation);
        let finished = run.finish(Outcome::Completed);
        let _ = store.get_session(&id());
        disk.make_room();
        let is_sealed = run.is_sealed();
        kept += usize::from(finished.is_err() && is_sealed);
        let expected: &[&str] = if is_sealed { CASES[4].after } else { &OLD };
        if store.is_writable() {
            assert_eq!(texts(&store.get_session(&id()).unwrap()), expected, "operation {operation}");
        }
        drop((run, store));
        let store = open_later(&disk).unwrap();
        let found = texts(&store.get_session(&id()).unwrap());
        assert_eq!(found == CASES[4].after, holds_end(&store), "{found:?}: operation {operation}");
    }
    assert!(kept > 0, "no operation was one of those that save the answer");
}

/// A run that was given up for dead ends after all, and that is cut anywhere: nothing is lost, and a repeat takes the place.
#[test]
fn a_late_end_that_was_cut_is_repeated_with_the_same_result() {
    let (laid, expected) = (dead_edit(), CASES[4].after);
    let finish = |disk: &SimDisk| {
        open_later(disk).and_then(|store| store.resume_run(&id(), &run_id(NEW))?.finish(Outcome::Completed).map(drop))
    };
    let whole = laid.copy();
    finish(&whole).unwrap();
    assert_eq!(files(&laid).len(), 2, "the attempt is a branch");
    for operation in 1..=whole.operations() - laid.operations() {
        let stopped = laid.copy();
        stopped.stop_before(laid.operations() + operation);
        let is_done = finish(&stopped).is_ok();
        for (end, disk) in ended(&stopped) {
            let what = format!("operation {operation}, {end:?}");
            resolve(&disk).unwrap();
            let store = open_later(&disk).unwrap();
            let found = texts(&store.get_session(&id()).unwrap());
            assert!(found == OLD && !is_done || found == expected, "{found:?}: {what}");
            assert_eq!(found == expected, holds_end(&store), "what the journal says is settled: {what}");
            drop(store);
            let kept = kept_words(&disk, &open_later(&disk).unwrap());
            for words in OLD.iter().chain(&["edited", "new words"]) {
                assert!(kept.contains(words), "{words:?} is lost: {what}");
            }
            if !end.is_power() {
                // If it was settled, it is sealed, and there is nothing to repeat.
                let repeated = finish(&disk);
                assert!(repeated.is_ok() || found == expected, "{repeated:?}: {what}");
                let store = open_later(&disk).unwrap();
                assert_eq!(texts(&store.get_session(&id()).unwrap()), expected, "{what}");
                assert_eq!(store.branches(&id()).unwrap().len(), 1, "{what}");
            }
        }
    }
}
