//! A crash suite to copy. Two programs run on a simulated disk that loses power: one of a stranger, which keeps a number
//! in a file, and a chat in a [`Store`]. Each is stopped at random operations over several lives, some of them in adversity
//! (few descriptors, little room, an fsync that fails after it wrote some of the pages), and what was acknowledged must be
//! there in the next one. The first is small enough to be stopped everywhere, in every way, too.
//!
//! `cargo run --example crash_suite --features sim`

use std::io;
use std::path::Path;
use std::sync::Arc;

use lastword::clock::{ManualClock, Timestamp};
use lastword::entropy::SeededEntropy;
use lastword::storage::sim::{Crash, Fault, SimDisk};
use lastword::storage::{Access, Disk};
use lastword::{Event, NewSession, Options, Outcome, ReadOptions, RunId, SessionId, Store, StoreError, UserTurn};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};

fn main() {
    let crashes = crash_the_counter_everywhere();
    println!("counter: stopped at every operation, {crashes} crashes, all choices for one place and two among them");
    check_any(200, any_lives(20), counter_survives);
    println!("counter: 200 random histories of several lives");
    check_any(100, any_lives(120), chats_survive);
    println!("store:   100 random histories of several lives");
    println!("Whatever was acknowledged was there.");
}

/// Short pages, so that small files have several which a crash can lose.
fn new_disk() -> SimDisk {
    SimDisk::new().with_page_bytes(64)
}

/// One life of the machine: it is stopped before this operation of its own, and then the power goes.
#[derive(Debug, Clone, Copy)]
struct Life {
    operations: u64,
    adversity: Adversity,
    crash: Crash,
}

/// What makes a life hard. Operations may fail, and what was acknowledged is there all the same.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Adversity {
    None,
    /// Programs may have this many files open.
    FewFiles(usize),
    /// The disk has room for this many more bytes.
    LittleRoom(u64),
    /// The sync that is this operation fails, and has written some of the pages.
    PartialSync {
        operation: u64,
        seed: u64,
    },
}

impl Life {
    /// Lets a program work until the disk stops, and then the power goes.
    fn live<T>(self, disk: &SimDisk, work: impl FnOnce() -> T) -> T {
        let begin = disk.operations();
        match self.adversity {
            Adversity::None => {}
            Adversity::FewFiles(most) => disk.limit_open_files(Some(most)),
            Adversity::LittleRoom(bytes) => {
                let used: usize = disk.files().values().map(Vec::len).sum();
                disk.set_capacity(Some(used as u64 + bytes));
            }
            Adversity::PartialSync { operation, seed } => disk.fail(begin + operation, Fault::PartialSync(seed)),
        }
        disk.stop_before(begin + self.operations);
        let outcome = work();
        disk.limit_open_files(None);
        disk.set_capacity(None);
        disk.power_cut(self.crash);
        outcome
    }
}

fn any_lives(operations_max: u64) -> impl Strategy<Value = Vec<Life>> {
    let crash = prop_oneof![Just(Crash::LoseAll), Just(Crash::KeepAll), any::<u64>().prop_map(Crash::Seeded)];
    let partial_sync = (1..=operations_max, any::<u64>());
    let adversity = prop_oneof![
        2 => Just(Adversity::None),
        1 => (0..24usize).prop_map(Adversity::FewFiles),
        1 => (0..6_000_000u64).prop_map(Adversity::LittleRoom),
        1 => partial_sync.prop_map(|(operation, seed)| Adversity::PartialSync { operation, seed }),
    ];
    let life = (1..=operations_max, adversity, crash);
    vec(life.prop_map(|(operations, adversity, crash)| Life { operations, adversity, crash }), 1..6)
}

fn check_any<S: Strategy>(cases: u32, lives: S, check: fn(S::Value) -> Result<(), TestCaseError>) {
    // A suite of your own may want to keep what it found: leave out `failure_persistence`.
    let config = Config { cases, failure_persistence: None, ..Config::default() };
    if let Err(found) = TestRunner::new(config).run(&lives, check) {
        panic!("{found}");
    }
}

// A stranger's program: the number in `/counter` is replaced as a whole, by way of a temporary file.

const COUNTER: &str = "/counter";
const TEMP: &str = "/counter.tmp";

fn load(disk: &dyn Disk) -> io::Result<u64> {
    match disk.open(Path::new(COUNTER), Access::Read) {
        Err(cause) if cause.kind() == io::ErrorKind::NotFound => Ok(0),
        Err(cause) => Err(cause),
        Ok(file) => {
            let text = String::from_utf8(file.into_bytes(200)?).map_err(io::Error::other)?;
            text.trim_start_matches('0').parse().map_err(io::Error::other)
        }
    }
}

/// Long enough for several pages, so that half a number would be seen.
fn save(disk: &dyn Disk, number: u64) -> io::Result<()> {
    match disk.remove_file(Path::new(TEMP)) {
        Err(cause) if cause.kind() != io::ErrorKind::NotFound => return Err(cause),
        _ => {}
    }
    let (file, text) = (disk.open(Path::new(TEMP), Access::CreateNew)?, format!("{number:0150}"));
    let mut written = 0;
    while written < text.len() {
        written += file.write_at(&text.as_bytes()[written..], written as u64)?;
    }
    file.sync()?;
    disk.rename(Path::new(TEMP), Path::new(COUNTER))?;
    disk.sync_dir(Path::new("/"))
}

/// Counts on until the disk stops, and gives the last number that was saved.
fn count_on(disk: &dyn Disk, from: u64, most: u64) -> u64 {
    (from + 1..=from + most).take_while(|number| save(disk, *number).is_ok()).last().unwrap_or(from)
}

/// What was acknowledged is there, and perhaps the number that was on its way.
fn check_counter(disk: &SimDisk, acknowledged: u64) -> Result<u64, TestCaseError> {
    let found = load(disk).map_err(|cause| TestCaseError::fail(format!("{cause}: {:#?}", disk.log())))?;
    let is_fine = found == acknowledged || found == acknowledged + 1;
    prop_assert!(is_fine, "{found} instead of {acknowledged}: {:#?}", disk.log());
    Ok(found)
}

fn counter_survives(lives: Vec<Life>) -> Result<(), TestCaseError> {
    let (disk, mut number) = (new_disk(), 0);
    for life in lives {
        let acknowledged = life.live(&disk, || count_on(&disk, number, 10));
        number = check_counter(&disk, acknowledged)?;
    }
    Ok(())
}

/// Enumerates before sampling: each operation, and there each choice for one place and for two.
fn crash_the_counter_everywhere() -> usize {
    let whole = new_disk();
    assert_eq!(count_on(&whole, 0, 3), 3);
    let mut crashes = 0;
    for operation in 1..=whole.operations() + 1 {
        let stopped = new_disk();
        stopped.stop_before(operation);
        let acknowledged = count_on(&stopped, 0, 3);
        for crash in stopped.crashes(100) {
            let disk = stopped.copy();
            disk.power_cut(crash);
            check_counter(&disk, acknowledged).unwrap_or_else(|wrong| panic!("{crash:?}: {wrong}"));
            crashes += 1;
        }
    }
    crashes
}

// A program that keeps its chats in a store.

/// A chat, as far as the store has said that it is kept.
#[derive(Debug)]
struct Chat {
    session: SessionId,
    run: Option<RunId>,
    /// Acknowledged as surviving a power cut.
    words: Vec<String>,
    is_finished: bool,
}

fn open(disk: &SimDisk) -> Result<Store, StoreError> {
    let options = Options {
        clock: Arc::new(ManualClock::at(Timestamp::from_seconds(1_800_000_000.0))),
        entropy: Arc::new(SeededEntropy::new(disk.operations())),
        ..Options::default()
    };
    Store::open_on(Arc::new(disk.clone()), "/data", options)
}

/// Asks and answers until the disk stops; three chats at most.
fn chat(disk: &SimDisk, chats: &mut Vec<Chat>) -> Result<(), StoreError> {
    let store = open(disk)?;
    for number in 0..3 {
        let session = store.create(NewSession::titled("A chat"))?;
        chats.push(Chat { session: session.clone(), run: None, words: Vec::new(), is_finished: false });
        let chat = chats.last_mut().expect("just added");
        let run = store.begin_run(&session, UserTurn::text("And then?"))?;
        chat.run = Some(run.id().clone());
        for word in 0..4 {
            let word = format!("word {number}.{word}, ");
            run.append_durable(Event::token(&word))?.wait()?;
            chat.words.push(word);
        }
        run.finish(Outcome::Completed)?;
        chat.is_finished = true;
    }
    Ok(())
}

fn chats_survive(lives: Vec<Life>) -> Result<(), TestCaseError> {
    let (disk, mut chats) = (new_disk(), Vec::new());
    for life in lives {
        let (outcome, has_stopped) = life.live(&disk, || (chat(&disk, &mut chats), disk.has_stopped()));
        let may_fail = has_stopped || life.adversity != Adversity::None;
        prop_assert!(outcome.is_ok() || may_fail, "{outcome:?}: {:#?}", disk.log());
        // Journals that cannot be written keep neither the store closed nor their events from being shown.
        set_mode_of_journals(&disk, 0o400);
        check_chats(&disk, &chats)?;
        set_mode_of_journals(&disk, 0o600);
        check_chats(&disk, &chats)?;
    }
    Ok(())
}

fn set_mode_of_journals(disk: &SimDisk, mode: u32) {
    for path in disk.files().into_keys().filter(|path| path.extension().is_some_and(|kind| kind == "jsonl")) {
        disk.set_mode(path, mode).expect("it is there");
    }
}

fn check_chats(disk: &SimDisk, chats: &[Chat]) -> Result<(), TestCaseError> {
    let wrong = |what: String| TestCaseError::fail(format!("{what}: {:#?}", disk.log()));
    let store = open(disk).map_err(|error| wrong(format!("{error:?}")))?;
    chats.iter().try_for_each(|chat| check_chat(&store, chat)).map_err(wrong)
}

fn check_chat(store: &Store, chat: &Chat) -> Result<(), String> {
    let session = store.get_session(&chat.session).map_err(|error| format!("{chat:?} is gone: {error:?}"))?;
    let answer = session.messages().last().map(|row| row.content().into_owned()).unwrap_or_default();
    if chat.is_finished && answer.trim() != chat.words.concat().trim() {
        return Err(format!("{chat:?} has become {answer:?}"));
    }
    let Some(run) = &chat.run else { return Ok(()) };
    let found = store.read_events(&chat.session, run, ReadOptions::default()).map_err(|error| format!("{error:?}"))?;
    let payloads: Vec<&str> = found.events.iter().map(|event| event.payload()).collect();
    match chat.words.iter().find(|word| !payloads.iter().any(|payload| payload.contains(word.as_str()))) {
        Some(lost) => Err(format!("{lost:?} of {chat:?} is not among {payloads:?}")),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_counter_survives_every_crash() {
        assert!(crash_the_counter_everywhere() > 100);
    }

    #[test]
    fn the_counter_survives_random_lives() {
        check_any(100, any_lives(20), counter_survives);
    }

    #[test]
    fn chats_survive_random_lives() {
        check_any(60, any_lives(120), chats_survive);
    }
}
