//! Runs on a disk that fails: one without room is waited for, and one that dies at any operation loses nothing that was
//! shown.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use lastword::run::{
    BudgetSettings, Finish, Outlet, Prompt, RunFailure, RunOptions, Runner, Runners, Started, Supervisor,
};
use lastword::storage::sim::SimDisk;
use lastword::{After, CommitOptions, Event, NewSession, Options, ReadOptions, RunId, SessionId, Store, UserTurn};

use crate::house::{Scripted, TestSteady, pause, seconds_since, token};

const WORDS: usize = 6;

struct Machine {
    disk: SimDisk,
    store: Store,
    supervisor: Supervisor,
    session: SessionId,
}

fn open(disk: &SimDisk) -> Result<Store, lastword::StoreError> {
    // What a thread does in the background comes at another moment each time.
    let commit = CommitOptions { background: None, ..CommitOptions::default() };
    Store::open_on(Arc::new(disk.clone()), Path::new("/data"), Options { commit, ..Options::default() })
}

fn session() -> SessionId {
    SessionId::parse("s").unwrap()
}

fn run_id() -> RunId {
    RunId::parse("r1").unwrap()
}

async fn script(_: Prompt, outlet: Outlet) -> Result<Finish, lastword::run::Failure> {
    outlet.say(Event::reasoning("hm")).await?;
    for at in 0..WORDS {
        outlet.say(token(&format!("{at} "))).await?;
        pause(1.0).await;
    }
    Ok(Finish::done())
}

fn machine(disk_patience: Duration) -> Machine {
    machine_of(Scripted(script), RunOptions { disk_patience, ..RunOptions::default() })
}

/// A machine with patience for its disk, on which a minute without an event is a stall.
fn watched_machine(runner: impl Runner + 'static) -> Machine {
    let budgets = BudgetSettings { idle_seconds: Some(60.0), ..BudgetSettings::default() };
    let disk_patience = Duration::from_secs(600);
    machine_of(runner, RunOptions { budgets, disk_patience, steady: TestSteady::begin(), ..RunOptions::default() })
}

fn machine_of(runner: impl Runner + 'static, options: RunOptions) -> Machine {
    let disk = SimDisk::new();
    let store = open(&disk).unwrap();
    store.create(NewSession { id: Some(session()), ..NewSession::titled("t") }).unwrap();
    let runners = Runners::default().with("script", runner).with_default("script");
    let supervisor = Supervisor::new(store.clone(), runners, options).unwrap();
    Machine { disk, store, supervisor, session: session() }
}

impl Machine {
    async fn start(&self) -> Result<Started, lastword::run::StartError> {
        self.supervisor.start(&self.session, UserTurn::text("hi").with_run(run_id()), None).await
    }

    fn answer(&self) -> String {
        answer_in(&self.store)
    }

    /// Whether the whole answer is in the session's document as it stands on the disk. No read of the session that could
    /// bring it in from the journal.
    fn has_saved_answer(&self) -> bool {
        let file = format!("{}.json", self.session);
        let files = self.disk.files();
        let (_, document) = files.iter().find(|(path, _)| path.ends_with(&file)).expect("the session has a document");
        String::from_utf8_lossy(document).contains(&whole())
    }

    /// The bytes that all files hold together.
    fn used_bytes(&self) -> u64 {
        self.disk.files().values().map(|bytes| bytes.len() as u64).sum()
    }

    fn events(&self) -> usize {
        self.store.read_events(&self.session, &run_id(), ReadOptions::default()).unwrap().events.len()
    }
}

fn answer_in(store: &Store) -> String {
    let session = store.get_session(&session()).unwrap();
    let said = session.messages().filter(|row| row.role() == "assistant" && !row.is_error());
    said.map(|row| row.content().into_owned()).collect()
}

fn whole() -> String {
    (0..WORDS).map(|at| at.to_string()).collect::<Vec<_>>().join(" ")
}

#[tokio::test(start_paused = true)]
async fn a_run_holds_on_to_its_words_while_the_disk_is_full_and_goes_on_when_there_is_room() {
    let machine = machine(Duration::from_secs(600));
    let mut started = machine.start().await.unwrap();
    pause(2.5).await;
    machine.disk.fill(machine.disk.operations() + 1);
    pause(120.0).await;
    assert!(!machine.supervisor.running().is_empty(), "it waits for room");
    machine.disk.make_room();
    assert!(started.ended().await.is_completed());
    assert_eq!(machine.answer(), whole(), "each word once");
}

#[tokio::test(start_paused = true)]
async fn the_time_that_a_full_disk_takes_is_not_the_producers_silence() {
    let machine = watched_machine(Scripted(script));
    let mut started = machine.start().await.unwrap();
    pause(2.5).await;
    machine.disk.fill(machine.disk.operations() + 1);
    pause(120.0).await;
    machine.disk.make_room();
    let end = started.ended().await;
    assert!(end.is_completed(), "{end:?}");
    assert_eq!(machine.answer(), whole());
}

#[tokio::test(start_paused = true)]
async fn after_a_full_disk_silence_counts_from_the_moment_when_the_words_were_written() {
    let machine = watched_machine(Scripted(|_, outlet: Outlet| async move {
        pause(1.0).await;
        outlet.say(token("half")).await?;
        std::future::pending().await
    }));
    let mut started = machine.start().await.unwrap();
    pause(0.5).await;
    machine.disk.fill(machine.disk.operations() + 1);
    pause(120.0).await;
    machine.disk.make_room();
    let begin = tokio::time::Instant::now();
    let Some(RunFailure { message, .. }) = started.ended().await.failure else { panic!("it fell silent") };
    assert!(message.contains("silent for 60 s"), "{message}");
    assert!((60.0..62.0).contains(&seconds_since(begin)), "{} s", seconds_since(begin));
    assert_eq!(machine.answer(), "half");
}

#[tokio::test(start_paused = true)]
async fn of_words_that_were_written_together_and_in_part_each_is_written_once() {
    let mut in_part = 0;
    for room in (0..1_500).step_by(150) {
        let machine = machine_of(Scripted(all_at_once), patient());
        let mut started = machine.start().await.unwrap();
        pause(0.5).await;
        machine.disk.set_capacity(Some(machine.used_bytes() + room));
        pause(20.0).await;
        in_part += usize::from((2..=WORDS).contains(&machine.events()));
        machine.disk.set_capacity(None);
        assert!(started.ended().await.is_completed(), "room for {room} bytes");
        assert_eq!(machine.answer(), whole(), "room for {room} bytes");
        assert_eq!(machine.events(), WORDS + 2, "room for {room} bytes");
    }
    assert!(in_part > 2, "the disk was full in the middle of the words {in_part} times");
}

/// Says all words a second after it was started.
async fn all_at_once(_: Prompt, outlet: Outlet) -> Result<Finish, lastword::run::Failure> {
    pause(1.0).await;
    for at in 0..WORDS {
        outlet.say(token(&format!("{at} "))).await?;
    }
    Ok(Finish::done())
}

fn patient() -> RunOptions {
    RunOptions { disk_patience: Duration::from_secs(600), ..RunOptions::default() }
}

#[tokio::test(start_paused = true)]
async fn what_is_said_after_the_end_of_an_answer_does_not_count_although_the_words_before_it_wait_for_room() {
    let (lend, mut lent) = tokio::sync::mpsc::unbounded_channel();
    let runner = Scripted(move |_, outlet: Outlet| {
        lend.send(outlet).unwrap();
        std::future::pending()
    });
    let machine = machine_of(runner, patient());
    let mut started = machine.start().await.unwrap();
    let outlet = lent.recv().await.unwrap();
    machine.disk.fill(machine.disk.operations() + 1);
    outlet.say(token("all")).await.unwrap();
    outlet.say(Event::done()).await.unwrap();
    pause(5.0).await;
    outlet.say(token(" too late")).await.unwrap();
    machine.disk.make_room();
    assert!(started.ended().await.is_completed());
    assert_eq!((machine.answer().as_str(), machine.events()), ("all", 3));
}

#[tokio::test(start_paused = true)]
async fn a_run_that_ends_on_a_full_disk_has_ended_when_its_answer_is_saved_and_not_before() {
    let mut waited = 0;
    for operation in 1..20 {
        let machine = machine(Duration::from_secs(600));
        let mut started = machine.start().await.unwrap();
        pause(WORDS as f64 - 0.5).await;
        machine.disk.fill(machine.disk.operations() + operation);
        pause(20.0).await;
        waited += usize::from(!machine.supervisor.running().is_empty());
        machine.disk.make_room();
        assert!(started.ended().await.is_completed(), "full at {operation}");
        assert!(machine.has_saved_answer(), "full at {operation}");
        assert_eq!(machine.events(), WORDS + 3, "full at {operation}: one end");
    }
    assert!(waited > 3, "the disk was full while the end was written {waited} times");
}

#[tokio::test(start_paused = true)]
async fn a_run_that_ends_while_no_file_can_be_opened_waits_until_one_can() {
    let machine = machine(Duration::from_secs(600));
    let mut started = machine.start().await.unwrap();
    pause(WORDS as f64 - 0.5).await;
    machine.disk.limit_open_files(Some(machine.disk.open_files()));
    pause(20.0).await;
    assert!(!machine.supervisor.running().is_empty(), "it waits for a file");
    machine.disk.limit_open_files(None);
    let end = started.ended().await;
    assert!(end.is_completed(), "{end:?}");
    assert!(machine.has_saved_answer());
}

#[tokio::test(start_paused = true)]
async fn patience_with_a_full_disk_ends_and_what_was_written_stays() {
    let machine = machine(Duration::from_secs(30));
    let mut started = machine.start().await.unwrap();
    pause(2.5).await;
    machine.disk.fill(machine.disk.operations() + 1);
    let end = started.ended().await;
    let Err(error) = &end.end else { panic!("{end:?}") };
    assert_eq!(error.code(), "no_space", "{error}");
    started.gone().await;
    machine.disk.make_room();
    drop((started, machine.supervisor));
    let disk = machine.disk.clone();
    drop(machine.store);
    let store = open(&disk).unwrap();
    assert_eq!(answer_in(&store), "0 1 2", "the next read brings in what was written");
}

#[tokio::test(start_paused = true)]
async fn nobody_who_stops_a_run_or_ends_the_program_waits_for_a_full_disk() {
    for is_stopped in [true, false] {
        let machine = machine(Duration::from_secs(600));
        let mut started = machine.start().await.unwrap();
        pause(2.5).await;
        machine.disk.fill(machine.disk.operations() + 1);
        pause(20.0).await;
        let begin = tokio::time::Instant::now();
        match is_stopped {
            true => assert!(machine.supervisor.stop(&machine.session, started.run()).await.is_err()),
            false => assert_eq!(machine.supervisor.drain(Duration::ZERO).await.cut, 1),
        }
        assert!(begin.elapsed() < Duration::from_secs(10), "{:?}", begin.elapsed());
        assert!(started.ended().await.is_unwritten());
        assert!(begin.elapsed() < Duration::from_secs(10), "{:?}", begin.elapsed());
    }
}

#[tokio::test(start_paused = true)]
async fn a_run_that_is_about_to_end_on_a_full_disk_does_not_keep_the_program_either() {
    let mut unwritten = 0;
    for operation in 1..20 {
        let machine = machine(Duration::from_secs(600));
        let mut started = machine.start().await.unwrap();
        pause(WORDS as f64 - 0.5).await;
        machine.disk.fill(machine.disk.operations() + operation);
        pause(20.0).await;
        let begin = tokio::time::Instant::now();
        machine.supervisor.drain(Duration::from_secs(5)).await;
        assert!(begin.elapsed() < Duration::from_secs(15), "full at {operation}: {:?}", begin.elapsed());
        unwritten += usize::from(started.ended().await.is_unwritten());
    }
    assert!(unwritten > 3, "the disk was full while the end was written {unwritten} times");
}

#[tokio::test(start_paused = true)]
async fn a_failed_sync_ends_the_run_and_nobody_hangs() {
    let machine = machine(Duration::from_secs(30));
    let mut started = machine.start().await.unwrap();
    pause(2.5).await;
    machine.disk.break_syncs(machine.disk.operations() + 1);
    assert!(started.ended().await.is_unwritten());
    started.gone().await;
    assert!(machine.supervisor.running().is_empty());
}

/// What somebody had seen when the program died.
#[derive(Default)]
struct Seen {
    is_begun: bool,
    lines: Vec<String>,
}

/// Lets a run begin, follows it, and stops every program before the disk's operation of this number.
async fn run_until(operation: Option<u64>) -> (SimDisk, Seen, u64) {
    let machine = machine(Duration::from_secs(5));
    let before = machine.disk.operations();
    if let Some(operation) = operation {
        machine.disk.stop_before(before + operation);
    }
    let mut seen = Seen::default();
    if let Ok(mut started) = machine.start().await {
        seen.is_begun = true;
        let mut follower = machine.store.follow(&machine.session, started.run(), After::Start).ok();
        let ending = tokio::spawn(async move {
            started.ended().await;
            started.gone().await;
        });
        while !ending.is_finished() {
            look(&mut follower, &mut seen);
            pause(0.25).await;
        }
        look(&mut follower, &mut seen);
    }
    let operations = machine.disk.operations() - before;
    let disk = machine.disk.clone();
    // Dead programs do nothing more, whatever their values do when they go.
    disk.stop_before(0);
    drop(machine);
    (disk, seen, operations)
}

fn look(follower: &mut Option<lastword::Follow>, seen: &mut Seen) {
    while let Some(Ok(Some(event))) = follower.as_mut().map(lastword::Follow::poll) {
        seen.lines.push(event.line);
    }
}

#[tokio::test(start_paused = true)]
async fn a_program_that_is_killed_at_any_operation_of_a_run_loses_nothing_that_was_shown() {
    let (_, undisturbed, operations) = run_until(None).await;
    assert_eq!(undisturbed.lines.len(), WORDS + 3);
    let mut words_lost_at_most = 0;
    for operation in 1..=operations {
        let (disk, seen, _) = run_until(Some(operation)).await;
        disk.kill();
        check(&disk, &seen, operation);
        words_lost_at_most = words_lost_at_most.max(seen.lines.len());
    }
    assert!(words_lost_at_most > WORDS, "some of them died late");
}

fn check(disk: &SimDisk, seen: &Seen, operation: u64) {
    let store = open(disk).unwrap();
    assert!(store.noted_groups().unwrap().is_empty());
    let transcript = store.get_session(&session()).unwrap();
    let prompts = transcript.messages().filter(|row| row.role() == "user").count();
    assert!(prompts <= 1 && (prompts == 1 || !seen.is_begun), "killed at {operation}: {prompts} prompts");
    if !seen.is_begun {
        return;
    }
    let found = store.read_events(&session(), &run_id(), ReadOptions::default()).unwrap();
    let lines: Vec<&str> = found.events.iter().map(|event| event.line.as_str()).collect();
    assert!(found.damage.is_empty(), "killed at {operation}");
    assert_eq!(lines[..seen.lines.len()], seen.lines, "killed at {operation}");
    let words = found.events.iter().filter(|event| event.name == "token").count();
    let expected: Vec<String> = (0..words).map(|at| at.to_string()).collect();
    assert_eq!(answer_in(&store), expected.join(" "), "killed at {operation}");
    let again = store.get_session(&session()).unwrap();
    assert_eq!(transcript.messages().count(), again.messages().count());
}
