//! Everything this store writes, interrupted at every disk operation, on the simulated disk.
//!
//! A workload says what it was told (acknowledged) as it goes. It is run once to count its operations, then once more
//! for every operation and every choice a crash has at that point. Afterwards: what was acknowledged is there, what was
//! not is absent or whole, opening twice changes nothing more, and the store takes new work.

use std::sync::Arc;

use lastword::clock::{ManualClock, Timestamp};
use lastword::entropy::SeededEntropy;
use lastword::format::DamageKind;
use lastword::storage::sim::{Crash, Fault, SimDisk};
use lastword::storage::{Access, Disk};
use lastword::{
    Event, List, NewSession, Options, Outcome, ReadOptions, RunId, SaveIntent, SaveOptions, SessionId, Store,
    StoreError, UserTurn,
};

const DATA: &str = "/data";

fn id() -> SessionId {
    SessionId::parse("s").unwrap()
}

fn open(disk: &SimDisk) -> Result<Store, StoreError> {
    let options = Options {
        clock: Arc::new(ManualClock::at(Timestamp::from_seconds(1_800_000_000.0))),
        entropy: Arc::new(SeededEntropy::new(disk.operations())),
        ..Options::default()
    };
    Store::open_on(Arc::new(disk.clone()), DATA, options)
}

/// One turn as the workload knows it.
#[derive(Debug, Default, Clone)]
struct Turn {
    prompt: String,
    run: String,
    has_begun: bool,
    sent: Vec<String>,
    appended: usize,
    durable: usize,
    has_finished: bool,
}

/// What the workload was told so far.
#[derive(Debug, Default, Clone)]
struct Told {
    created: bool,
    turns: Vec<Turn>,
    deleting: bool,
    deleted: bool,
    /// Titles that were tried, and how many of them were acknowledged.
    titles: Vec<String>,
    titles_saved: usize,
    /// The longest transcript that was acknowledged as cut.
    cut: bool,
    cutting: bool,
}

impl Told {
    fn create(&mut self, store: &Store) -> Result<(), StoreError> {
        store.create(NewSession::titled("title 0").with_id(id()))?;
        self.created = true;
        Ok(())
    }

    /// A whole turn: tokens buffered, every third one durable, then the end.
    fn turn(&mut self, store: &Store, name: &str, tokens: usize) -> Result<(), StoreError> {
        let run = self.begin(store, name)?;
        self.stream(&run, tokens)?;
        self.finish(&run)
    }

    fn begin(&mut self, store: &Store, name: &str) -> Result<lastword::Run, StoreError> {
        let prompt = format!("prompt {name}");
        self.turns.push(Turn { prompt: prompt.clone(), run: name.to_owned(), ..Turn::default() });
        let run = store.begin_run(&id(), UserTurn::text(&prompt).with_run(RunId::parse(name).unwrap()))?;
        self.last().has_begun = true;
        Ok(run)
    }

    fn stream(&mut self, run: &lastword::Run, tokens: usize) -> Result<(), StoreError> {
        for number in 1..=tokens {
            let text = format!("{}é{number} ", run.id());
            self.last().sent.push(text.clone());
            if number % 3 == 0 {
                run.append_durable(Event::token(&text))?.wait()?;
                self.last().durable = self.last().sent.len();
            } else {
                run.append(Event::token(&text))?;
            }
            self.last().appended = self.last().sent.len();
        }
        Ok(())
    }

    fn finish(&mut self, run: &lastword::Run) -> Result<(), StoreError> {
        run.finish(Outcome::Completed)?;
        self.last().has_finished = true;
        Ok(())
    }

    fn last(&mut self) -> &mut Turn {
        self.turns.last_mut().expect("a turn has begun")
    }

    fn save_title(&mut self, store: &Store, number: usize) -> Result<(), StoreError> {
        let title = format!("title {number}");
        self.titles.push(title.clone());
        store.update(&id(), SaveOptions::default(), |session| session.set_text("title", &title))?;
        self.titles_saved = self.titles.len();
        Ok(())
    }

    fn cut(&mut self, store: &Store) -> Result<(), StoreError> {
        self.cutting = true;
        let options = SaveOptions { intent: SaveIntent::Shrink, ..SaveOptions::default() };
        store.update(&id(), options, |session| session.truncate(List::Messages, 1).expect("a list"))?;
        self.cut = true;
        Ok(())
    }

    fn delete(&mut self, store: &Store) -> Result<(), StoreError> {
        self.deleting = true;
        store.delete(&id())?;
        self.deleted = true;
        Ok(())
    }
}

/// What happened to the machine.
#[derive(Debug, Clone, Copy, PartialEq)]
enum End {
    Power(Crash),
    Kill,
}

impl End {
    fn strike(self, disk: &SimDisk) {
        match self {
            End::Power(crash) => disk.power_cut(crash),
            End::Kill => disk.kill(),
        }
    }

    fn is_power(self) -> bool {
        self != End::Kill
    }
}

/// Every choice at one place, and some throws of the die.
fn ends(unsynced: usize) -> Vec<End> {
    let mut ends = vec![End::Kill, End::Power(Crash::LoseAll), End::Power(Crash::KeepAll)];
    for place in 0..unsynced {
        let choices = [Crash::LoseOnly(place), Crash::KeepOnly(place), Crash::TearOnly(place), Crash::ZeroOnly(place)];
        ends.extend(choices.map(End::Power));
    }
    ends.extend((0..6).map(|seed| End::Power(Crash::Seeded(seed))));
    ends
}

type Workload = fn(&Store, &mut Told) -> Result<(), StoreError>;

/// A disk on which `before` has run to its end, and what it was told.
fn prepared(before: Workload) -> (SimDisk, Told) {
    let (disk, mut told) = (SimDisk::new(), Told::default());
    before(&open(&disk).unwrap(), &mut told).unwrap();
    (disk, told)
}

/// Runs `before`, then `work` up to the operation, and gives what was told until then.
fn run_until(before: Workload, work: Workload, operation: u64) -> (SimDisk, Told) {
    let (disk, mut told) = prepared(before);
    disk.stop_before(disk.operations() + operation);
    let outcome = open(&disk).and_then(|store| work(&store, &mut told));
    assert!(outcome.is_err(), "stopped before operation {operation} and yet done");
    (disk, told)
}

/// How many operations `open` and `work` take.
fn operations_of(before: Workload, work: Workload) -> u64 {
    let (disk, mut told) = prepared(before);
    let first = disk.operations();
    work(&open(&disk).unwrap(), &mut told).unwrap();
    disk.operations() - first
}

fn crash_everywhere(before: Workload, work: Workload) {
    let operations = operations_of(before, work);
    assert!(operations > 0);
    for operation in 1..=operations {
        let choices = ends(run_until(before, work, operation).0.unsynced());
        for end in choices {
            let (disk, told) = run_until(before, work, operation);
            end.strike(&disk);
            check_aftermath(&disk, &told, end, &format!("operation {operation} of {operations}, {end:?}"));
        }
    }
}

fn check_aftermath(disk: &SimDisk, told: &Told, end: End, what: &str) {
    let context = || format!("{what}\n{told:#?}\n{}", disk.log().join("\n"));
    let first = observe(disk, told, end).unwrap_or_else(|wrong| panic!("{wrong}: {}", context()));
    let second = observe(disk, told, end).unwrap_or_else(|wrong| panic!("{wrong} the second time: {}", context()));
    assert_eq!(first, second, "opening again changed something: {}", context());
    interrupt_opening(disk, told, end, &context);
    goes_on(disk, told, end).unwrap_or_else(|wrong| panic!("{wrong}: {}", context()));
}

/// Opening after a crash is itself cut short at each of its operations; that changes nothing that was promised.
fn interrupt_opening(disk: &SimDisk, told: &Told, end: End, context: &dyn Fn() -> String) {
    for operation in 1..=4 {
        disk.stop_before(disk.operations() + operation);
        let opened = open(disk);
        let is_through = opened.is_ok();
        drop(opened);
        match end {
            End::Kill => disk.kill(),
            End::Power(_) => disk.power_cut(Crash::Seeded(operation)),
        }
        observe(disk, told, end).unwrap_or_else(|wrong| panic!("{wrong} after a second crash: {}", context()));
        if is_through {
            return;
        }
    }
}

/// What a reader finds, after checking that it is what was promised.
fn observe(disk: &SimDisk, told: &Told, end: End) -> Result<String, String> {
    let store = open(disk).map_err(|error| format!("the store does not open: {error:?}"))?;
    let session = match store.get_session(&id()) {
        Ok(session) if told.deleted => return Err(format!("a deleted session is back: {session:?}")),
        Ok(session) => session,
        Err(StoreError::NotFound { .. }) if told.deleting || !told.created => return Ok("nothing".to_owned()),
        Err(error) => return Err(format!("an acknowledged session is gone: {error:?}")),
    };
    let listed = store.list().map_err(|error| format!("{error:?}"))?;
    if listed.len() != 1 || listed[0].metadata.is_err() {
        return Err(format!("the list does not show the session: {listed:?}"));
    }
    let rows: Vec<String> = session.messages().map(|row| row.content().into_owned()).collect();
    let mut seen = format!("{} {rows:?} {:?}", session.title(), session.pending_turn());
    check_title(told, &session.title())?;
    check_cut(disk, told, rows.len())?;
    for (number, turn) in told.turns.iter().enumerate() {
        let is_last = number + 1 == told.turns.len();
        seen.push_str(&check_turn(&store, &session, turn, is_last, told.cutting, end)?);
    }
    Ok(seen)
}

fn check_title(told: &Told, title: &str) -> Result<(), String> {
    let saved = told.titles_saved;
    let allowed = saved.checked_sub(1).map_or("title 0", |last| &told.titles[last]);
    let tried = told.titles.get(saved).map(String::as_str);
    if title == allowed || Some(title) == tried { Ok(()) } else { Err(format!("title {title:?}, not {allowed:?}")) }
}

/// What a stated cut replaces is kept: the old version stands in its place or under `_kept`.
fn check_cut(disk: &SimDisk, told: &Told, rows: usize) -> Result<(), String> {
    if told.cut && rows != 1 {
        return Err(format!("{rows} rows after a cut to one"));
    }
    if !told.cutting || rows > 1 {
        return Ok(());
    }
    let folder = std::path::Path::new(DATA).join("_kept/s");
    let names = disk.read_dir(&folder).map_err(|cause| format!("nothing was kept: {cause}"))?;
    let is_whole = names.iter().any(|entry| {
        let file = disk.open(&folder.join(&entry.name), Access::Read).unwrap();
        let mut bytes = vec![0; file.stat().unwrap().len as usize];
        file.read_at(&mut bytes, 0).unwrap();
        let kept: Option<serde_json::Value> = serde_json::from_slice(&bytes).ok();
        kept.is_some_and(|kept| kept["messages"].as_array().is_some_and(|rows| rows.len() > 1))
    });
    if is_whole { Ok(()) } else { Err(format!("no whole old version among {names:?}")) }
}

fn check_turn(
    store: &Store,
    session: &lastword::Session,
    turn: &Turn,
    is_last: bool,
    is_cut: bool,
    end: End,
) -> Result<String, String> {
    let run = RunId::parse(&turn.run).unwrap();
    let found = store.read_events(&id(), &run, ReadOptions::default()).map_err(|error| format!("{error:?}"))?;
    let texts = token_texts(&found.events)?;
    let promised = if end.is_power() { turn.durable } else { turn.appended };
    let expected: Vec<&str> = turn.sent.iter().map(String::as_str).collect();
    if texts.len() < promised || texts.len() > expected.len() || texts[..] != expected[..texts.len()] {
        return Err(format!("run {run} has {texts:?}, promised were {promised} of {expected:?}"));
    }
    if !end.is_power() && found.damage.iter().any(|damage| damage.kind != DamageKind::TornTail) {
        return Err(format!("a kill cannot do this: {:?}", found.damage));
    }
    if !is_cut {
        check_transcript(session, turn, is_last)?;
    }
    Ok(format!(" {texts:?}"))
}

fn token_texts(events: &[lastword::JournalEvent]) -> Result<Vec<String>, String> {
    let mut texts = Vec::new();
    for (at, event) in events.iter().enumerate() {
        if event.seq != Some(at as u64 + 1) {
            return Err(format!("event {:?} stands at place {}", event.seq, at + 1));
        }
        if event.name == "token" {
            let payload: serde_json::Value = serde_json::from_str(event.payload()).unwrap();
            texts.push(payload["text"].as_str().unwrap().to_owned());
        }
    }
    Ok(texts)
}

/// A finished turn is in the transcript once and whole; an unfinished one is pending, or in it whole, or never began.
fn check_transcript(session: &lastword::Session, turn: &Turn, is_last: bool) -> Result<(), String> {
    let rows: Vec<String> = session.messages().map(|row| row.content().into_owned()).collect();
    let answer = turn.sent.concat();
    let times = rows.windows(2).filter(|pair| pair[0] == turn.prompt && pair[1] == answer.trim()).count();
    let prompts = rows.iter().filter(|row| **row == turn.prompt).count();
    let is_pending = session.pending_turn().is_some_and(|pending| pending.message == turn.prompt);
    let is_fine = match (times, prompts, is_pending) {
        (1, 1, false) => true,
        (0, 0, true) => is_last && !turn.has_finished,
        (0, 0, false) => !turn.has_begun,
        _ => false,
    };
    if is_fine { Ok(()) } else { Err(format!("{times} times, {prompts} prompts, pending {is_pending}: {rows:?}")) }
}

/// After any crash the store takes new work, and an unsealed run goes on only where no number can repeat.
fn goes_on(disk: &SimDisk, told: &Told, end: End) -> Result<(), String> {
    let store = open(disk).map_err(|error| format!("{error:?}"))?;
    let other = store.create(NewSession::titled("other")).map_err(|error| format!("no new session: {error:?}"))?;
    let run = store.begin_run(&other, UserTurn::text("hello")).map_err(|error| format!("no new turn: {error:?}"))?;
    run.finish(Outcome::Completed).map_err(|error| format!("no end: {error:?}"))?;
    match told.turns.last() {
        Some(turn) if turn.has_begun && !told.deleting && !told.cutting => resumes(&store, turn, end),
        _ => Ok(()),
    }
}

fn resumes(store: &Store, turn: &Turn, end: End) -> Result<(), String> {
    let run = RunId::parse(&turn.run).unwrap();
    let summary = store.run_summary(&id(), &run).unwrap().unwrap_or_default();
    let resumed = store.resume_run(&id(), &run).and_then(|open| open.append(Event::token("late")));
    match resumed {
        Ok(appended) if !end.is_power() && !summary.seal.is_sealed() => {
            let is_next = appended.last_seq == summary.last_seq + 1;
            if is_next { Ok(()) } else { Err(format!("event {} follows {}", appended.last_seq, summary.last_seq)) }
        }
        Ok(appended) => Err(format!("event {} was taken after {end:?}", appended.last_seq)),
        Err(_) if end.is_power() => Ok(()),
        Err(error) if summary.seal.is_sealed() => match store.begin_run(&id(), UserTurn::text("next")) {
            Ok(_) => Ok(()),
            Err(next) => Err(format!("{error:?}, and no new turn either: {next:?}")),
        },
        Err(error) => Err(format!("the run does not go on: {error:?}")),
    }
}

fn nothing(_: &Store, _: &mut Told) -> Result<(), StoreError> {
    Ok(())
}

fn created(store: &Store, told: &mut Told) -> Result<(), StoreError> {
    told.create(store)
}

fn begun(store: &Store, told: &mut Told) -> Result<(), StoreError> {
    told.create(store)?;
    told.begin(store, "r1").map(drop)
}

fn resumed_append_and_seal(store: &Store, told: &mut Told) -> Result<(), StoreError> {
    let run = store.resume_run(&id(), &RunId::parse("r1").unwrap())?;
    told.stream(&run, 5)?;
    told.finish(&run)
}

#[test]
fn creating_the_store_and_a_session() {
    crash_everywhere(|_, _| Ok(()), created);
    let (disk, mut told) = (SimDisk::new(), Told::default());
    let first = disk.operations();
    created(&open(&disk).unwrap(), &mut told).unwrap();
    for operation in 1..=disk.operations() - first {
        for end in ends(6) {
            let (disk, mut told) = (SimDisk::new(), Told::default());
            disk.stop_before(operation);
            assert!(open(&disk).and_then(|store| created(&store, &mut told)).is_err());
            end.strike(&disk);
            check_aftermath(&disk, &told, end, &format!("a fresh disk, operation {operation}, {end:?}"));
        }
    }
}

#[test]
fn append_and_seal() {
    crash_everywhere(begun, resumed_append_and_seal);
}

#[test]
fn begin_stream_finish() {
    crash_everywhere(created, |store, told| {
        told.turn(store, "r1", 4)?;
        told.turn(store, "r2", 2)
    });
}

#[test]
fn save_over_save() {
    crash_everywhere(created, |store, told| (1..=3).try_for_each(|number| told.save_title(store, number)));
}

#[test]
fn a_stated_cut_keeps_what_it_replaces() {
    crash_everywhere(
        |store, told| {
            told.create(store)?;
            told.turn(store, "r1", 2)?;
            told.turn(store, "r2", 2)
        },
        |store, told| told.cut(store),
    );
}

#[test]
fn delete_during_a_run() {
    crash_everywhere(created, |store, told| {
        let run = told.begin(store, "r1")?;
        told.stream(&run, 4)?;
        told.delete(store)?;
        assert!(run.append(Event::token("late")).is_err(), "a deleted session takes nothing");
        assert!(store.begin_run(&id(), UserTurn::text("again")).is_err());
        assert!(store.create(NewSession::titled("again").with_id(id())).is_err(), "and does not come back");
        store.create(NewSession::titled("other"))?;
        store.delete(&store.list()?[0].id)
    });
}

#[test]
fn a_torn_tail_is_cut_and_kept_before_the_next_append() {
    fn torn(store: &Store, told: &mut Told) -> Result<(), StoreError> {
        told.create(store)?;
        let run = told.begin(store, "r1")?;
        told.stream(&run, 2)
    }
    let (disk, told) = prepared(torn);
    let path = std::path::Path::new("/data/_run_journal/s/r1.jsonl");
    let tear = |disk: &SimDisk| {
        let file = disk.open(path, Access::Write).unwrap();
        let len = file.stat().unwrap().len;
        let torn = format!("{{\"version\":1,\"event_id\":\"r1:3\",\"seq\":3 {}", "\u{e9}".repeat(500));
        file.write_at(torn.as_bytes(), len).unwrap();
    };
    tear(&disk);
    let first = disk.operations();
    let go_on = |disk: &SimDisk, told: &mut Told| -> Result<(), StoreError> {
        let run = open(disk)?.resume_run(&id(), &RunId::parse("r1").unwrap())?;
        told.stream(&run, 1)
    };
    go_on(&disk, &mut told.clone()).unwrap();
    let operations = disk.operations() - first;
    let mended = open(&disk).unwrap().read_events(&id(), &RunId::parse("r1").unwrap(), ReadOptions::default()).unwrap();
    assert_eq!((mended.events.len(), mended.damage.len()), (3, 0));
    assert!(!disk.read_dir(std::path::Path::new("/data/_kept/s")).unwrap().is_empty(), "the fragment was not kept");
    for operation in 1..=operations {
        let (disk, mut told) = prepared(torn);
        tear(&disk);
        disk.stop_before(disk.operations() + operation);
        assert!(go_on(&disk, &mut told).is_err());
        disk.kill();
        check_aftermath(&disk, &told, End::Kill, &format!("operation {operation} of {operations}"));
    }
}

/// Other programs know nothing of tombstones: what was deleted must be gone from its place, too.
#[test]
fn a_deleted_session_is_in_the_trash_after_a_power_cut() {
    let (disk, mut told) = prepared(begun);
    told.delete(&open(&disk).unwrap()).unwrap();
    disk.power_cut(Crash::LoseAll);
    assert!(disk.stat(std::path::Path::new("/data/s.json")).is_err(), "the sidecar is back");
    assert!(disk.stat(std::path::Path::new("/data/_run_journal/s")).is_err(), "the journals are back");
    let trash = disk.read_dir(std::path::Path::new("/data/_trash")).unwrap();
    let folder = std::path::Path::new("/data/_trash").join(&trash[0].name);
    assert_eq!(disk.read_dir(&folder).unwrap().len(), 2, "sidecar and journals");
}

/// A failing operation anywhere is told to the caller, and nothing that was acknowledged before it is lost.
#[test]
fn every_operation_fails_once() {
    let work: Workload = |store, told| {
        told.turn(store, "r1", 4)?;
        told.save_title(store, 1)
    };
    let operations = operations_of(created, work);
    for operation in 1..=operations {
        for fault in [Fault::Eio, Fault::Enospc, Fault::ShortWrite(0), Fault::ShortWrite(7)] {
            for end in [End::Kill, End::Power(Crash::LoseAll), End::Power(Crash::Seeded(operation))] {
                let (disk, mut told) = prepared(created);
                disk.fail(disk.operations() + operation, fault);
                let outcome = open(&disk).and_then(|store| work(&store, &mut told));
                let must_fail = !matches!(fault, Fault::ShortWrite(_));
                assert!(outcome.is_err() || !must_fail, "operation {operation}: {fault:?} was swallowed");
                end.strike(&disk);
                check_aftermath(&disk, &told, end, &format!("operation {operation}, {fault:?}, {end:?}"));
            }
        }
    }
}

#[test]
fn a_journal_that_failed_refuses_further_work_and_says_why() {
    for fault in [Fault::Eio, Fault::Enospc] {
        let (disk, _) = prepared(created);
        let store = open(&disk).unwrap();
        let run = store.begin_run(&id(), UserTurn::text("x")).unwrap();
        run.append(Event::token("one")).unwrap();
        disk.fail(disk.operations() + 1, fault);
        let first = run.append(Event::token("two")).unwrap_err();
        let second = run.append(Event::token("three")).unwrap_err();
        assert_eq!(first.storage().unwrap().is_no_space(), fault == Fault::Enospc);
        assert!(second.to_string().contains("could not append"), "{second}");
        let why = format!("{:?}", second.storage().unwrap());
        assert!(why.contains("Latched") && why.contains("write"), "{why}");
        let again = store.resume_run(&id(), run.id()).unwrap();
        assert_eq!(again.append(Event::token("two")).unwrap().last_seq, 2, "a new writer begins with what is there");
    }
}

#[test]
fn a_failed_sync_is_never_followed_by_a_success() {
    let (disk, _) = prepared(created);
    let store = open(&disk).unwrap();
    let run = store.begin_run(&id(), UserTurn::text("x")).unwrap();
    disk.fail(disk.operations() + 2, Fault::Eio);
    assert!(run.append_durable(Event::token("one")).unwrap().wait().is_err());
    assert!(run.append_durable(Event::token("two")).is_err());
    disk.power_cut(Crash::KeepAll);
    let found = open(&disk).unwrap().read_events(&id(), run.id(), ReadOptions::default()).unwrap();
    assert!(found.events.is_empty(), "what the failed sync forgot was never acknowledged");
}

#[test]
fn a_short_write_keeps_the_whole_lines_and_no_part_of_the_next() {
    for taken in [0, 10, 240, 300, 400, 10_000] {
        let (disk, _) = prepared(created);
        let store = open(&disk).unwrap();
        let run = store.begin_run(&id(), UserTurn::text("x")).unwrap();
        disk.fail(disk.operations() + 1, Fault::ShortWrite(taken));
        disk.fail(disk.operations() + 2, Fault::Enospc);
        let events: Vec<_> = (0..4).map(|number| Event::token(&number.to_string())).collect();
        let outcome = run.append_all(&events, lastword::Durability::Buffered);
        let found = store.read_events(&id(), run.id(), ReadOptions::default()).unwrap();
        assert!(found.damage.is_empty(), "{taken}: part of a line stayed: {:?}", found.damage);
        match outcome {
            Ok(_) => assert_eq!(found.events.len(), 4),
            Err(StoreError::Append(lastword::AppendError::Failed { appended_to, .. })) => {
                assert_eq!(appended_to.unwrap_or(0), found.events.len() as u64, "after {taken} bytes");
            }
            Err(other) => panic!("{other:?}"),
        }
    }
}

#[test]
fn the_same_seed_gives_the_same_operations() {
    let run = || {
        let (disk, mut told) = prepared(nothing);
        let store = open(&disk).unwrap();
        told.create(&store).unwrap();
        told.turn(&store, "r1", 5).unwrap();
        disk.log()
    };
    assert_eq!(run(), run());
}

#[test]
fn durable_covers_all_before_it_even_after_a_failed_sync() {
    let (disk, _) = prepared(created);
    let store = open(&disk).unwrap();
    let run = store.begin_run(&id(), UserTurn::text("x")).unwrap();
    run.append(Event::token("one")).unwrap();
    disk.fail(disk.operations() + 2, Fault::Eio);
    assert!(run.append_durable(Event::token("two")).unwrap().wait().is_err());
    let again = store.resume_run(&id(), run.id()).unwrap();
    assert!(again.append_durable(Event::token("three")).unwrap().wait().unwrap().is_some());
    disk.power_cut(Crash::LoseAll);
    let found = open(&disk).unwrap().read_events(&id(), run.id(), ReadOptions::default()).unwrap();
    assert_eq!(found.events.len(), 3, "{:?}", found.damage);
}

/// A file that is closed to make room for another is synced first. If that fails, its journal is closed for good.
#[test]
fn a_sync_that_fails_when_a_file_is_closed_for_another_latches_its_journal() {
    let (disk, _) = prepared(created);
    let store = open(&disk).unwrap();
    let adopt = |number: usize| store.adopt_run(&id(), &RunId::parse(&format!("r{number}")).unwrap()).unwrap();
    let runs: Vec<_> = (0..=lastword::limits::OPEN_JOURNALS_MAX).map(adopt).collect();
    let (last, open_ones) = runs.split_last().unwrap();
    for run in open_ones {
        run.append(Event::token("one")).unwrap();
    }
    disk.fail(disk.operations() + 1, Fault::Eio);
    assert_eq!(last.append(Event::token("one")).unwrap().last_seq, 1, "the newcomer is not to blame");
    let refusal = runs[0].append(Event::token("two")).unwrap_err();
    let why = format!("{:?}", refusal.storage().unwrap());
    assert!(why.contains("Latched") && why.contains("sync"), "{why}");
    runs[1].append(Event::token("two")).unwrap();
    let again = store.resume_run(&id(), runs[0].id()).unwrap();
    again.append_durable(Event::token("three")).unwrap().wait().unwrap().expect("proof");
    disk.power_cut(Crash::LoseAll);
    let found = open(&disk).unwrap().read_events(&id(), again.id(), ReadOptions::default()).unwrap();
    assert_eq!(found.events.len(), 2, "what the failed sync forgot was written again: {:?}", found.damage);
}

#[test]
fn a_store_told_to_be_durable_tells_a_failed_sync_and_shows_nothing_of_it() {
    let (disk, _) = prepared(created);
    let options = Options { durability: lastword::Durability::Durable, ..Options::default() };
    let store = Store::open_on(Arc::new(disk.clone()), DATA, options).unwrap();
    let run = store.begin_run(&id(), UserTurn::text("x")).unwrap();
    let mut follow = store.follow(&id(), run.id(), lastword::After::Start).unwrap();
    disk.fail(disk.operations() + 2, Fault::Eio);
    assert!(run.append(Event::token("one")).is_err());
    assert!(follow.poll().unwrap().is_none(), "a reader saw what power loss could take back");
}

#[test]
fn a_folder_whose_creator_was_killed_is_made_durable() {
    for operation in 1..=8 {
        let (disk, _) = prepared(created);
        let store = open(&disk).unwrap();
        disk.stop_before(disk.operations() + operation);
        let _ = store.begin_run(&id(), UserTurn::text("x"));
        disk.kill();
        let store = open(&disk).unwrap();
        let Ok(run) = store.begin_run(&id(), UserTurn::text("x").with_run(RunId::parse("r2").unwrap())) else {
            continue;
        };
        run.append_durable(Event::token("one")).unwrap().wait().unwrap();
        disk.power_cut(Crash::LoseAll);
        let found = open(&disk).unwrap().read_events(&id(), run.id(), ReadOptions::default()).unwrap();
        assert_eq!(found.events.len(), 1, "killed before operation {operation}");
    }
}

#[test]
fn an_answer_that_could_not_be_saved_is_saved_by_the_next_finish() {
    let (disk, _) = prepared(created);
    let store = open(&disk).unwrap();
    let run = store.begin_run(&id(), UserTurn::text("x")).unwrap();
    run.append(Event::token("answer")).unwrap();
    disk.fail(disk.operations() + 3, Fault::Enospc);
    let unsaved = run.finish(Outcome::Completed).unwrap_err();
    assert!(unsaved.storage().unwrap().is_no_space(), "{unsaved}");
    run.finish(Outcome::Completed).unwrap();
    assert!(run.finish(Outcome::Completed).is_err(), "and only once");
    let session = store.get_session(&id()).unwrap();
    assert_eq!((session.len(List::Messages), session.pending_turn()), (2, None));
}

/// A journal of another program has no record until it is removed; its id must stay taken all the same.
#[test]
fn a_removed_run_is_there_or_its_id_stays_taken() {
    fn with_foreign_run(store: &Store, told: &mut Told) -> Result<(), StoreError> {
        told.create(store)?;
        told.turn(store, "r1", 1)
    }
    let foreign = RunId::parse("foreign").unwrap();
    let path = std::path::Path::new("/data/_run_journal/s/foreign.jsonl");
    let prepared = || {
        let (disk, _) = prepared(with_foreign_run);
        let file = disk.open(path, Access::CreateNew).unwrap();
        file.write_at(b"{\"seq\":1,\"event\":\"token\"}\n", 0).unwrap();
        file.sync().unwrap();
        disk.sync_dir(path.parent().unwrap()).unwrap();
        disk
    };
    let disk = prepared();
    let first = disk.operations();
    open(&disk).unwrap().remove_run(&id(), &foreign).unwrap();
    let operations = disk.operations() - first;
    for operation in 1..=operations {
        for end in ends(6) {
            let disk = prepared();
            disk.stop_before(disk.operations() + operation);
            assert!(open(&disk).and_then(|store| store.remove_run(&id(), &foreign)).is_err());
            end.strike(&disk);
            let is_there = disk.stat(path).is_ok();
            let taken = matches!(open(&disk).unwrap().adopt_run(&id(), &foreign), Err(StoreError::RunTaken { .. }));
            assert!(is_there || taken, "operation {operation}, {end:?}\n{}", disk.log().join("\n"));
        }
    }
}
