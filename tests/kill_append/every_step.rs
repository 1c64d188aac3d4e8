//! Each command is killed at each of its steps: once before every system call by which it changes the disk, answers or
//! ends. The state before a call is also the state behind the one before it, so that no state is left out.
//!
//! A first run under strace tells which calls there are; then a fresh copy of the data is put through one death each.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::Command;

use crate::data::{
    BUFFERED, DONE, DURABLE, Data, PROMPT, RUN, SESSION, Shown, answered, lines_of, seq_of, token, tokens_from,
    transcript,
};
use crate::process::{Ended, Process};
use crate::torn_line::{is_kept, texts_before, torn_bytes, torn_run};

/// The system calls that change the disk, answer or end. Those that this machine does not have are passed over.
const CALLS: &str = "trace=?write,?pwrite64,?writev,?rename,?renameat,?renameat2,?fsync,?fdatasync,?open,?openat,?mkdir,\
                     ?mkdirat,?ftruncate,?utimensat,?unlink,?unlinkat,?exit_group";

const SIGKILL: i32 = 9;
const NEXT_PROMPT: &str = "Und dann?";
pub(crate) const NEXT_TURN: [&str; 6] = ["turn", SESSION, "--message", NEXT_PROMPT, "--run", "r2"];

/// A system call of a command: its name, and how many of that name came before it, and itself.
type Step = (String, usize);

/// A command, the data that it finds, and what it is handed, a line at a time.
pub(crate) struct Case {
    before: Data,
    args: Vec<&'static str>,
    input: Vec<String>,
}

/// A copy of the data after a command was killed on it.
pub(crate) struct Killed {
    pub(crate) data: Data,
    /// What the command had said by then.
    said: Vec<String>,
}

impl Case {
    pub(crate) fn new(before: Data, args: &[&'static str], input: &[String]) -> Self {
        Case { before, args: args.to_vec(), input: input.to_vec() }
    }

    /// Kills the command at each of its steps, and checks what is left. The calls named must be among the steps.
    pub(crate) fn kill_at_every_step(&self, needed: &[&str], check: impl Fn(&Killed)) {
        let steps = self.steps();
        for call in needed.iter().chain(&["write", "exit_group"]) {
            assert!(steps.iter().any(|(name, _)| name == call), "no {call} was seen in {steps:?}");
        }
        for (call, count) in &steps {
            // Shown by the test harness if the check fails.
            println!("{:?} killed at {call} number {count}", self.args);
            let killed = self.killed_at(call, *count);
            check_files(&killed.data);
            check(&killed);
            check_files(&killed.data);
        }
    }

    /// The steps of an undisturbed run.
    fn steps(&self) -> BTreeSet<Step> {
        let data = self.before.copy();
        let log = data.root().with_extension("strace");
        let ended = self.run_under_strace(&data, &log, None);
        assert_eq!(ended.code(), Some(0), "undisturbed, {:?} fails: {}", self.args, ended.stderr);
        steps_in(&fs::read_to_string(&log).expect("strace wrote its log"))
    }

    fn killed_at(&self, call: &str, count: usize) -> Killed {
        let data = self.before.copy();
        let log = data.root().with_extension("strace");
        let ended = self.run_under_strace(&data, &log, Some(format!("inject={call}:signal=KILL:when={count}")));
        assert_eq!(ended.status.signal(), Some(SIGKILL), "it was not killed: {ended:?}");
        Killed { data, said: ended.lines }
    }

    /// Runs the command, handing it a line of input for every line that it says.
    fn run_under_strace(&self, data: &Data, log: &Path, inject: Option<String>) -> Ended {
        let plain = data.command(&self.args);
        let mut traced = Command::new("strace");
        traced.arg("-f").arg("-o").arg(log).args(["-e", CALLS]);
        if let Some(inject) = inject {
            traced.args(["-e", &inject]);
        }
        // What a thread does in the background comes at another moment each time.
        traced.env("LASTWORD_SYNC_WITHIN_MS", "0");
        traced.arg(plain.get_program()).args(plain.get_args());
        let mut process = Process::start(traced);
        let mut said = Vec::new();
        for line in &self.input {
            process.send(line);
            let Some(answer) = process.next_line() else { break };
            said.push(answer);
        }
        let mut ended = process.end();
        ended.lines.splice(..0, said);
        ended
    }
}

pub(crate) fn require_strace() {
    let found = Command::new("strace").arg("--version").output();
    assert!(found.is_ok(), "these tests need strace: install it (apt-get install strace)");
}

/// The steps in strace's log, whose lines begin with the thread. Opening what is there already is no step.
fn steps_in(log: &str) -> BTreeSet<Step> {
    let mut seen: Vec<(&str, &str)> = Vec::new();
    let mut steps = BTreeSet::new();
    for line in log.lines() {
        let Some((thread, call)) = line.split_once(' ') else { continue };
        let Some((name, args)) = call.trim_start().split_once('(') else { continue };
        seen.push((thread, name));
        if !name.starts_with("open") || args.contains("O_CREAT") {
            steps.insert((name.to_owned(), seen.iter().filter(|known| **known == (thread, name)).count()));
        }
    }
    steps
}

/// Everything is private, and what bears the name of a sidecar or a journal is one, whole.
fn check_files(data: &Data) {
    for path in data.everything().iter().filter(|path| path.exists()) {
        let mode = path.metadata().expect("it is there").permissions().mode() & 0o777;
        assert_eq!(mode, if path.is_dir() { 0o700 } else { 0o600 }, "{}", path.display());
        let name = path.file_name().and_then(|name| name.to_str()).expect("our names are text");
        if name.ends_with(".json") || name.ends_with(".jsonl") {
            assert!(
                ["_lastword.json", "trip.json", "r1.jsonl", "r2.jsonl"].contains(&name),
                "{name} is no name of ours"
            );
        }
        if name.ends_with(".json") {
            let text = fs::read_to_string(path).expect("it can be read");
            assert!(serde_json::from_str::<serde_json::Value>(&text).is_ok(), "{name} is not whole: {text}");
        }
    }
}

/// A file that an earlier writer did not finish, so that there is something to remove.
pub(crate) fn with_stale_temp(data: Data) -> Data {
    let stale = data.root().join("_tmp-stale");
    fs::write(&stale, "half a sess").expect("the data can be written");
    fs::set_permissions(&stale, fs::Permissions::from_mode(0o600)).expect("the file is ours");
    data
}

fn check_new(killed: &Killed, args: &[&str]) {
    let session = killed.data.stored();
    assert!(killed.said.is_empty() || session.is_some(), "a session whose id was printed is there");
    let again = killed.data.ask(args);
    assert_eq!(again.code(), Some(i32::from(session.is_some())), "{args:?} again: {}", again.stderr);
    let session = killed.data.stored().expect("the session is there now");
    assert_eq!((session["session_id"].as_str(), session["title"].as_str()), (Some(SESSION), Some("Été 🦀")));
    assert_eq!(killed.data.must(&["ls", "--json"]).lines.len(), 1);
    killed.data.must(&["turn", SESSION, "--message", PROMPT, "--run", RUN]);
}

#[test]
fn new_killed_at_any_step_leaves_a_whole_session_or_none() {
    require_strace();
    let args = ["new", "--id", SESSION, "--title", "Été 🦀"];
    Case::new(Data::nowhere(), &args, &[]).kill_at_every_step(
        &["mkdir", "openat", "pwrite64", "fdatasync", "rename", "fsync"],
        |killed| {
            check_new(killed, &args);
        },
    );
}

#[test]
fn new_killed_while_it_tidies_up_leaves_a_whole_session_or_none() {
    require_strace();
    let args = ["new", "--id", SESSION, "--title", "Été 🦀"];
    let before = Data::nowhere();
    before.must(&["new", "--id", SESSION]);
    fs::remove_file(before.root().join("trip.json")).expect("the session was created");
    Case::new(with_stale_temp(before), &args, &[]).kill_at_every_step(&["unlink", "rename"], |killed| {
        check_new(killed, &args);
    });
}

/// The turn is pending as it was begun, or there is no trace of it in the session.
fn is_pending(data: &Data, message: &str, run: &str) -> bool {
    let session = data.stored().expect("the session is there");
    let pending = (session["pending_user_message"].as_str(), session["active_stream_id"].as_str());
    assert!(pending == (Some(message), Some(run)) || pending == (None, None), "half a turn: {pending:?}");
    pending.0.is_some()
}

#[test]
fn turn_killed_at_any_step_leaves_a_pending_prompt_or_none() {
    require_strace();
    let args = ["turn", SESSION, "--message", PROMPT, "--run", RUN];
    let before = Data::nowhere();
    before.must(&["new", "--id", SESSION]);
    let case = Case::new(with_stale_temp(before), &args, &[]);
    case.kill_at_every_step(&["mkdir", "openat", "pwrite64", "fdatasync", "rename", "fsync", "unlink"], |killed| {
        let was_pending = is_pending(&killed.data, PROMPT, RUN);
        assert!(killed.said.is_empty() || was_pending, "a turn whose run was printed is pending");
        if !was_pending {
            killed.data.must(&args);
        }
        assert!(is_pending(&killed.data, PROMPT, RUN), "the prompt is there now");
        assert_eq!(killed.data.sound_tail(), []);
        assert_eq!(killed.data.append(&DURABLE, &[token("Ans Meer."), DONE.to_owned()]), [1, 2]);
        assert_eq!(transcript(&killed.data.stored().expect("the session is there")), answered("Ans Meer."));
    });
}

/// Short, long, short; none of them plain ASCII.
pub(crate) fn answer() -> Vec<String> {
    vec!["Ans Meer, à ".to_owned(), "海🦀é".repeat(15_000), " 🌊.".to_owned()]
}

/// What was acknowledged is there, and what else is there is what was sent. Gives how many there are.
fn check_events(killed: &Killed, first: u64, sent: &[Shown]) -> usize {
    let acknowledged: Vec<u64> = killed.said.iter().map(|ack| seq_of(ack)).collect();
    assert!(acknowledged.iter().copied().eq(first..first + acknowledged.len() as u64), "{acknowledged:?}");
    let found = killed.data.tail_after(first - 1);
    assert!(found.len() >= acknowledged.len(), "{} of {acknowledged:?} are there", found.len());
    assert!(found == sent[..found.len()], "something else than was sent");
    found.len()
}

/// The run goes on behind what is there, and ends with the whole answer.
fn check_goes_on(killed: &Killed, texts: &[String], there: usize) {
    let mut rest = lines_of(&texts[there..]);
    rest.push(DONE.to_owned());
    let seqs = killed.data.append(&BUFFERED, &rest);
    assert!(seqs.into_iter().eq(there as u64 + 1..=texts.len() as u64 + 1), "numbers go on");
    let found = killed.data.sound_tail();
    assert!(found[..texts.len()] == tokens_from(1, texts) && found.len() == texts.len() + 1, "each once");
    let session = killed.data.stored().expect("the session is there");
    assert!(transcript(&session) == answered(&texts.concat()), "the whole answer, once");
}

fn check_append_killed_at_every_step(args: &[&'static str], needed: &[&str]) {
    require_strace();
    let texts = answer();
    let sent = tokens_from(1, &texts);
    let case = Case::new(with_stale_temp(Data::with_turn()), args, &lines_of(&texts));
    case.kill_at_every_step(needed, |killed| {
        assert!(is_pending(&killed.data, PROMPT, RUN), "the prompt is not touched");
        let there = check_events(killed, 1, &sent);
        check_goes_on(killed, &texts, there);
    });
}

#[test]
fn buffered_append_killed_at_any_step_keeps_what_it_acknowledged() {
    check_append_killed_at_every_step(&BUFFERED, &["pwrite64", "unlink"]);
}

#[test]
fn durable_append_killed_at_any_step_keeps_what_it_acknowledged() {
    check_append_killed_at_every_step(&DURABLE, &["pwrite64", "fdatasync", "unlink"]);
}

#[test]
fn append_killed_at_any_step_of_mending_a_torn_line_keeps_all_before_it() {
    require_strace();
    let texts = [texts_before(), answer()].concat();
    let sent = tokens_from(3, &answer());
    let before = torn_run();
    let torn = torn_bytes(&before);
    let case = Case::new(before, &BUFFERED, &lines_of(&answer()));
    case.kill_at_every_step(&["mkdir", "pwrite64", "fdatasync", "rename", "fsync", "ftruncate"], |killed| {
        assert!(killed.data.tail_after(0)[..2] == tokens_from(1, &texts_before()), "what was before stays");
        let there = check_events(killed, 3, &sent);
        check_goes_on(killed, &texts, 2 + there);
        assert!(is_kept(&killed.data, &torn), "the torn bytes were put aside before they were cut off");
    });
}

/// A run with a whole answer, but for its end.
fn answered_but_open() -> Data {
    let data = Data::with_turn();
    data.append(&BUFFERED, &lines_of(&answer()));
    data
}

/// The next turn succeeds, or is there already, and above it the answer stands once.
fn check_next_turn(killed: &Killed) {
    let session = killed.data.stored().expect("the session is there");
    if session["active_stream_id"] != "r2" {
        killed.data.must(&NEXT_TURN);
    }
    assert!(is_pending(&killed.data, NEXT_PROMPT, "r2"), "the next prompt waits");
    let session = killed.data.stored().expect("the session is there");
    assert!(transcript(&session) == answered(&answer().concat()), "prompt and answer once: {:?}", session["messages"]);
    killed.data.must(&["tail", SESSION, "r2"]);
}

#[test]
fn done_killed_at_any_step_is_folded_once_by_whoever_comes_next() {
    require_strace();
    let case = Case::new(with_stale_temp(answered_but_open()), &DURABLE, &[DONE.to_owned()]);
    let needed = ["openat", "pwrite64", "fdatasync", "rename", "fsync", "unlink"];
    case.kill_at_every_step(&needed, |killed| {
        let is_sealed = check_events(killed, 4, &[Shown { seq: 4, event: "done".into(), text: String::new() }]) == 1;
        let session = killed.data.stored().expect("the session is there");
        let rows = transcript(&session);
        assert!(rows.is_empty() || rows == answered(&answer().concat()), "half an answer was saved");
        assert!(killed.said.is_empty() || !rows.is_empty(), "an end is acknowledged once it is folded and saved");
        let again = killed.data.ask_with(&DURABLE, &[DONE.to_owned()]);
        assert_eq!(again.code(), Some(i32::from(is_sealed)), "done again: {}", again.stderr);
        check_next_turn(killed);
    });
}

/// A run that has ended, but its writer was killed before it could save the answer.
pub(crate) fn sealed_but_not_folded() -> Data {
    let killed = Case::new(answered_but_open(), &BUFFERED, &[DONE.to_owned()]).killed_at("rename", 1);
    let data = killed.data;
    assert!(is_pending(&data, PROMPT, RUN) && data.sound_tail().len() == 4, "sealed, and still pending");
    data
}

#[test]
fn turn_killed_at_any_step_of_folding_the_answer_before_it_leaves_that_answer_once() {
    require_strace();
    let case = Case::new(sealed_but_not_folded(), &NEXT_TURN, &[]);
    case.kill_at_every_step(&["openat", "pwrite64", "fdatasync", "rename", "fsync"], |killed| {
        let session = killed.data.stored().expect("the session is there");
        let rows = transcript(&session);
        let is_first_pending = rows.is_empty() && session["active_stream_id"] == RUN;
        assert!(is_first_pending || rows == answered(&answer().concat()), "half an answer was saved");
        assert!(killed.said.is_empty() || session["active_stream_id"] == "r2", "a printed run is begun");
        check_next_turn(killed);
    });
}
