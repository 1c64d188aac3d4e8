//! A small directory in the format of ours or of the reference program, and what can befall its files.

use lastword::Event;
use proptest::collection::vec;
use proptest::prelude::*;
use serde_json::{Value, json};

use crate::data::{BEGAN, Data, Files};
use crate::rows::{armed, assistant, lost, own_line, plain_line, user};

/// How a session stands to its last run.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Turn {
    /// All answers stand in the transcript.
    Answered,
    Pending,
    Armed,
    Lost,
}

#[derive(Debug, Clone)]
pub(crate) struct Told {
    /// Whether the run's lines are ours, with checksums.
    pub(crate) is_ours: bool,
    pub(crate) words: Vec<String>,
    pub(crate) is_sealed: bool,
}

#[derive(Debug, Clone)]
pub(crate) struct Talk {
    pub(crate) runs: Vec<Told>,
    pub(crate) turn: Turn,
    pub(crate) has_backup: bool,
}

/// What befalls one file. Places are taken modulo what there is.
#[derive(Debug, Clone)]
pub(crate) enum Accident {
    FlipBit(usize),
    Delete(usize, usize),
    Insert(usize, Vec<u8>),
    Zero(usize, usize),
    Cut(usize),
    RemoveLine(usize),
    SwapLines(usize, usize),
    RepeatLine(usize, usize),
    Glue(usize),
    /// Another journal behind it.
    Concatenate(usize),
}

/// What befalls the directory.
#[derive(Debug, Clone)]
pub(crate) enum Mishap {
    Journal(usize, Accident),
    Sidecar(usize, Accident),
    NoSidecar(usize),
    /// One of the small files of ours.
    Small(usize, Accident),
    Stray(usize),
}

pub(crate) const STRAYS: [&str; 6] = [
    "_tmp-00112233445566778899aabbccddeeff",
    "s0.json.tmp.12",
    ".DS_Store",
    "_run_journal/s0/notes.txt",
    "_run_journal/s0/_tmp-00112233445566778899aabbccddeeff",
    "_tombstones/readme.txt",
];

fn told() -> impl Strategy<Value = Told> {
    let word = prop_oneof![
        "[a-z]{1,8} ",
        Just("w\u{f6}rter \u{1f600} ".to_owned()),
        Just("\"}{\\ ".to_owned()),
        Just("{\"seq\":2,\"event\":\"token\"}".to_owned()),
        Just("\u{2028}\u{85}\n".to_owned()),
    ];
    (any::<bool>(), vec(word, 1..6), any::<bool>()).prop_map(|(is_ours, words, is_sealed)| Told {
        is_ours,
        words,
        is_sealed,
    })
}

pub(crate) fn talks() -> impl Strategy<Value = Vec<Talk>> {
    let turn =
        prop_oneof![3 => Just(Turn::Answered), 1 => Just(Turn::Pending), 1 => Just(Turn::Armed), 1 => Just(Turn::Lost)];
    let talk = (vec(told(), 1..4), turn, any::<bool>());
    vec(talk.prop_map(|(runs, turn, has_backup)| Talk { runs, turn, has_backup }), 1..4)
}

pub(crate) fn accident() -> impl Strategy<Value = Accident> {
    let place = || 0..1_000_000_usize;
    prop_oneof![
        4 => place().prop_map(Accident::FlipBit),
        2 => (place(), 1..300_usize).prop_map(|(at, len)| Accident::Delete(at, len)),
        2 => (place(), vec(any::<u8>(), 1..40)).prop_map(|(at, bytes)| Accident::Insert(at, bytes)),
        2 => (place(), 1..500_usize).prop_map(|(at, len)| Accident::Zero(at, len)),
        1 => place().prop_map(Accident::Cut),
        1 => place().prop_map(Accident::RemoveLine),
        1 => (place(), place()).prop_map(|(a, b)| Accident::SwapLines(a, b)),
        1 => (place(), place()).prop_map(|(from, to)| Accident::RepeatLine(from, to)),
        1 => place().prop_map(Accident::Glue),
        1 => place().prop_map(Accident::Concatenate),
    ]
}

pub(crate) fn mishaps() -> impl Strategy<Value = Vec<Mishap>> {
    let event = prop_oneof![
        6 => (0..100_usize, accident()).prop_map(|(at, accident)| Mishap::Journal(at, accident)),
        2 => (0..100_usize, accident()).prop_map(|(at, accident)| Mishap::Sidecar(at, accident)),
        1 => (0..100_usize).prop_map(Mishap::NoSidecar),
        1 => (0..100_usize, accident()).prop_map(|(at, accident)| Mishap::Small(at, accident)),
        1 => (0..100_usize).prop_map(Mishap::Stray),
    ];
    vec(event, 1..6)
}

impl Told {
    /// The lines of its journal.
    pub(crate) fn lines(&self, session: &str, run: &str) -> Vec<Vec<u8>> {
        let ids = [session, run];
        let line = |seq: u64, event: &Event| match self.is_ours {
            true => own_line(ids, seq, event),
            false => plain_line(ids, seq, event.name(), &serde_json::from_str(event.payload()).unwrap()),
        };
        let events = self.words.iter().map(|word| Event::token(word)).chain(self.is_sealed.then(Event::done));
        (1..).zip(events).map(|(seq, event)| line(seq, &event)).collect()
    }
}

impl Talk {
    fn sidecar(&self, id: &str) -> Value {
        let mut rows: Vec<Value> = Vec::new();
        for (at, run) in self.runs.iter().enumerate() {
            let is_last = at + 1 == self.runs.len();
            let began = BEGAN + 10 * at as i64;
            let name = format!("r{at}");
            if is_last && self.turn == Turn::Pending {
                break;
            }
            rows.push(user(&format!("question {at}"), began));
            let row = match self.turn {
                Turn::Armed if is_last => armed(&name, 1, began),
                Turn::Lost if is_last => lost(Some(&name), began),
                _ => assistant(run.words.concat().trim(), began),
            };
            rows.push(row);
            rows.last_mut().unwrap()["_run_id"] = json!(name);
        }
        let run = format!("r{}", self.runs.len() - 1);
        let mut session = match self.turn {
            Turn::Pending => crate::rows::pending(&rows, "the last question", &run),
            _ => crate::rows::session(&rows),
        };
        session["session_id"] = json!(id);
        session
    }
}

pub(crate) fn journal_name(session: usize, run: usize) -> String {
    format!("_run_journal/s{session}/r{run}.jsonl")
}

/// Writes the directory.
pub(crate) fn build(talks: &[Talk]) -> Data {
    let data = Data::new();
    data.set_clock(crate::data::NOW);
    for (at, talk) in talks.iter().enumerate() {
        let id = format!("s{at}");
        let sidecar = serde_json::to_vec_pretty(&talk.sidecar(&id)).unwrap();
        data.put(&format!("{id}.json"), &sidecar);
        if talk.has_backup {
            data.put(&format!("{id}.json.bak"), &sidecar);
        }
        for (number, run) in talk.runs.iter().enumerate() {
            data.put(&journal_name(at, number), &run.lines(&id, &format!("r{number}")).concat());
            if run.is_ours {
                data.put(&format!("_run_journal/{id}/_r{number}.run"), RECORD);
            }
        }
    }
    data
}

/// What we note of a run.
const RECORD: &[u8] =
    b"{\"version\":1,\"boot_id\":\"an earlier one\",\"begun_at\":1800000000.0,\"last_seq_floor\":0}\n";

/// Lets one thing befall the directory. Gives the name of the file that it befell.
pub(crate) fn happen(data: &Data, healthy: &Files, mishap: &Mishap) -> String {
    let pick_of = |at: usize, wants: &dyn Fn(&str) -> bool| {
        let names: Vec<&String> = healthy.keys().filter(|name| wants(name)).collect();
        names.get(at % names.len().max(1)).map_or(String::new(), |name| name.to_string())
    };
    let is_top = |name: &str| !name.contains('/') && !name.starts_with('_');
    let pick = |at: usize, end: &str| pick_of(at, &|name| name.ends_with(end) && (end != ".json" || is_top(name)));
    match mishap {
        Mishap::Journal(at, accident) => {
            let name = pick(*at, ".jsonl");
            let other = match accident {
                Accident::Concatenate(other) => healthy[&pick(*other, ".jsonl")].clone(),
                _ => Vec::new(),
            };
            hurt(data, &name, accident, &other);
            name
        }
        Mishap::Sidecar(at, accident) => {
            let name = pick(*at, ".json");
            hurt(data, &name, accident, b"{}");
            name
        }
        Mishap::NoSidecar(at) => {
            let name = pick(*at, ".json");
            let _ = std::fs::remove_file(data.path(&name));
            name
        }
        Mishap::Small(at, accident) => {
            let name = pick_of(*at, &is_small);
            hurt(data, &name, accident, b"{}");
            name
        }
        Mishap::Stray(at) => {
            data.put(STRAYS[at % STRAYS.len()], b"{\"stray\":");
            STRAYS[at % STRAYS.len()].to_owned()
        }
    }
}

/// Files of ours that hold no conversation.
pub(crate) fn is_small(name: &str) -> bool {
    name.ends_with(".run") || name == "_lastword.json" || name == "_sessions.index"
}

fn hurt(data: &Data, name: &str, accident: &Accident, other: &[u8]) {
    if let Some(mut bytes) = data.files().remove(name) {
        befall(&mut bytes, accident, other);
        data.put(name, &bytes);
    }
}

pub(crate) fn befall(bytes: &mut Vec<u8>, accident: &Accident, other: &[u8]) {
    let len = bytes.len();
    if len == 0 {
        return;
    }
    let range = |at: usize, count: usize| at % len..(at % len + count).min(len);
    let mut lines: Vec<Vec<u8>> = bytes.split_inclusive(|byte| *byte == b'\n').map(<[u8]>::to_vec).collect();
    let count = lines.len();
    match accident {
        Accident::FlipBit(bit) => bytes[bit / 8 % len] ^= 1 << (bit % 8),
        Accident::Delete(at, count) => drop(bytes.drain(range(*at, *count))),
        Accident::Insert(at, new) => drop(bytes.splice(at % len..at % len, new.iter().copied())),
        Accident::Zero(at, count) => bytes[range(*at, *count)].fill(0),
        Accident::Cut(at) => bytes.truncate(at % len),
        Accident::Concatenate(_) => bytes.extend_from_slice(other),
        Accident::RemoveLine(at) => drop(lines.remove(at % count)),
        Accident::SwapLines(a, b) => lines.swap(a % count, b % count),
        Accident::RepeatLine(from, to) => lines.insert(to % (count + 1), lines[from % count].clone()),
        Accident::Glue(at) => {
            let line = &mut lines[at % count];
            line.truncate(line.len() - 1);
        }
    }
    use Accident::{Glue, RemoveLine, RepeatLine, SwapLines};
    if matches!(accident, RemoveLine(_) | SwapLines(..) | RepeatLine(..) | Glue(_)) {
        *bytes = lines.concat();
    }
}
