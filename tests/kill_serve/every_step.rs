//! The server is killed before each system call by which it changes the disk or answers, while a client goes through a
//! short fixed scene. After a restart the client repeats what it had no answer to, and the end is the same each time.
//!
//! A first scene under strace tells which calls there are; then a copy of the data is put through one death each. The
//! server's threads take turns as they like, so that now and then a death does not come; then the scene is complete
//! without it. Of a call that is made often, a bounded number is died at, spread evenly.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::Command;

use lastword::client::{AppendOptions, Client, EventBatch};
use lastword::{Durability, Event};

use crate::data::Data;
use crate::host::{Host, answered, begin, create, outside, read, run_id, runtime, session_id};
use crate::table::Signal;
use crate::verdict::{check_directory, check_transcript, journal, names, texts};

/// Those that this machine does not have are passed over.
const CALLS: &str = "?write,?pwrite64,?writev,?sendto,?rename,?renameat,?renameat2,?fsync,?fdatasync,?open,?openat,?mkdir,\
                     ?mkdirat,?ftruncate,?unlink,?unlinkat";

/// How many calls of one name are died at. More are passed over evenly, but never the first and the last.
const DEATHS_A_CALL_MAX: usize = 10;

const SIGKILL: i32 = 9;
const SESSION: &str = "trip";
const RUN: &str = "r1";
const MESSAGE: &str = "Wohin?";

/// A system call: its name, and how many of that name its thread had made, itself included.
type Step = (String, usize);

/// What the client wants, each with the number of its first event: a session, a run, three batches, the end. Repeats
/// whatever it had no answer to.
async fn go_through(client: &Client) {
    let (session, run) = (session_id(SESSION), run_id(RUN));
    create(client, &session).await;
    begin(client, &session, &outside(&run, MESSAGE, None)).await;
    let tokens = |texts: &[&str]| texts.iter().map(|text| Event::token(text)).collect::<Vec<_>>();
    let batches = [
        (1, Durability::Buffered, tokens(&["Ans ", "Meer, "])),
        (3, Durability::Durable, tokens(&["à ", "Sète, "])),
        (5, Durability::Buffered, tokens(&["oder nach Rom."])),
        (6, Durability::Buffered, vec![Event::done()]),
    ];
    for (first, durability, events) in batches {
        let options = AppendOptions { durability, expect_seq: Some(first) };
        let batch = EventBatch::from(&events[..]);
        let last = answered(|| client.append(&session, &run, &batch, options)).await;
        assert_eq!(last.unwrap_or_else(|error| panic!("behind {first}: {error}")), first + events.len() as u64 - 1);
    }
}

/// The scene, with a server under strace.
struct Scene {
    host: Host,
    log: PathBuf,
}

impl Scene {
    fn new(before: &Data, durability: &str) -> Self {
        let data = before.copy();
        let log = data.root().with_extension("strace");
        // What a thread does in the background comes at another moment each time.
        let host = Host::on(data, &["--log", "warn", "--durability", durability]).with("TOKIO_WORKER_THREADS", "1");
        Scene { host: host.with("LASTWORD_SYNC_WITHIN_MS", "0"), log }
    }

    /// The server, traced by somebody who is no parent of it; killed at a step, if one is given.
    fn traced(&self, step: Option<&Step>) -> Command {
        let plain = self.host.command();
        let mut traced = Command::new("strace");
        traced.args(["-D", "-f", "-o"]).arg(&self.log).args(["-e", &format!("trace={CALLS}")]);
        if let Some((call, count)) = step {
            traced.args(["-e", &format!("inject={call}:signal=KILL:when={count}")]);
        }
        traced.arg(plain.get_program()).args(plain.get_args());
        traced.envs(plain.get_envs().filter_map(|(name, value)| Some((name, value?))));
        traced
    }

    /// The steps of an undisturbed scene.
    fn steps(mut self) -> Vec<Step> {
        self.host.begin_as(self.traced(None));
        self.host.wait_until_it_listens();
        runtime().block_on(go_through(&self.host.client()));
        self.host.stop();
        self.check();
        steps_in(&fs::read_to_string(&self.log).expect("strace wrote its log"))
    }

    /// Goes through the scene with a server that dies at a step, and another one behind it. Says whether the death came.
    fn die_at(mut self, step: &Step) -> bool {
        self.host.begin_as(self.traced(Some(step)));
        let runtime = runtime();
        let client = self.host.client();
        let mut scene = runtime.spawn(async move { go_through(&client).await });
        let is_dead = self.wait_for_death(&runtime, &mut scene);
        if is_dead {
            self.host.revive();
        }
        runtime.block_on(scene).expect("the client gets its way");
        let shown = runtime.block_on(read(&self.host.client(), &session_id(SESSION)));
        self.host.stop();
        check_transcript(&shown, &[(MESSAGE, &journal(&self.host.data, SESSION, RUN))]);
        self.check();
        is_dead
    }

    /// Waits until the server is dead, or has served the scene to its end and then ends in peace, if its death does not
    /// come at that.
    fn wait_for_death(&mut self, runtime: &tokio::runtime::Runtime, scene: &mut tokio::task::JoinHandle<()>) -> bool {
        while !scene.is_finished() && self.host.is_alive() {
            std::thread::sleep(std::time::Duration::from_millis(2));
        }
        if self.host.is_alive() {
            let done = runtime.block_on(async { (&mut *scene).await });
            done.expect("the client gets its way");
            self.host.signal(Signal::TERM);
            *scene = runtime.spawn(async {});
        }
        let ended = self.host.end();
        let is_killed = ended.status.signal() == Some(SIGKILL);
        assert!(is_killed || ended.code() == Some(0), "{ended:?}");
        if !is_killed {
            self.host.revive();
        }
        is_killed
    }

    fn check(&self) {
        let lines = journal(&self.host.data, SESSION, RUN);
        assert_eq!(names(&lines), ["token", "token", "token", "token", "token", "done"]);
        assert_eq!(texts(&lines, "token"), ["Ans ", "Meer, ", "à ", "Sète, ", "oder nach Rom."]);
        assert_eq!(self.host.data.must(&["ls"]).lines.len(), 2, "there is one session more than before");
        check_directory(&self.host.data);
    }
}

/// The calls in strace's log, whose lines begin with the thread, and at which counts they were made. Opening what is
/// there already is no step.
fn steps_in(log: &str) -> Vec<Step> {
    let mut made: BTreeMap<(&str, &str), usize> = BTreeMap::new();
    let mut calls: BTreeMap<&str, Vec<usize>> = BTreeMap::new();
    for line in log.lines() {
        let Some((thread, call)) = line.split_once(' ') else { continue };
        let Some((name, args)) = call.trim_start().split_once('(') else { continue };
        // A call that another thread interrupted is told in two lines.
        if name.starts_with('<') {
            continue;
        }
        let count = made.entry((thread, name)).or_default();
        *count += 1;
        if !name.starts_with("open") || args.contains("O_CREAT") {
            calls.entry(name).or_default().push(*count);
        }
    }
    let each = calls.into_iter().map(|(call, counts)| (call, thinned(counts)));
    each.flat_map(|(call, counts)| counts.into_iter().map(move |count| (call.to_owned(), count))).collect()
}

fn thinned(mut counts: Vec<usize>) -> Vec<usize> {
    counts.sort_unstable();
    counts.dedup();
    let last = counts.len() - 1;
    match last < DEATHS_A_CALL_MAX {
        true => counts,
        false => (0..DEATHS_A_CALL_MAX).map(|at| counts[at * last / (DEATHS_A_CALL_MAX - 1)]).collect(),
    }
}

fn check_every_step(durability: &str) {
    let found = Command::new("strace").arg("--version").output();
    assert!(found.is_ok(), "these tests need strace: install it (apt-get install strace)");
    let before = Data::nowhere();
    before.must(&["new", "--id", "before"]);
    let steps = Scene::new(&before, durability).steps();
    for call in ["write", "pwrite64", "fdatasync", "fsync", "rename", "openat"] {
        assert!(steps.iter().any(|(name, _)| name == call), "no {call} was seen in {steps:?}");
    }
    let mut deaths = 0;
    for step in &steps {
        let is_dead = Scene::new(&before, durability).die_at(step);
        // Shown by the test harness if the check fails.
        println!("{step:?}: {}", if is_dead { "killed" } else { "the death did not come" });
        deaths += usize::from(is_dead);
    }
    println!("{deaths} deaths at {} steps", steps.len());
    assert!(deaths * 2 > steps.len(), "only {deaths} deaths at {} steps", steps.len());
}

#[test]
fn killed_at_any_step_of_a_short_scene_the_client_repeats_itself_and_the_end_is_the_same() {
    check_every_step("buffered");
}

#[test]
fn killed_at_any_step_a_server_that_shows_only_what_is_durable_comes_to_the_same_end() {
    check_every_step("durable");
}
