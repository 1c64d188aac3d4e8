//! Any journal, in two parts, read any number of times with any crashes in between.

use std::collections::BTreeSet;

use lastword::storage::sim::{Crash, SimDisk};
use proptest::prelude::*;
use serde_json::json;

use super::files::{TORN, add_to_journal, checked, line, line_of, put_waiting_session};
use super::judge::{Expected, Files, files};
use super::scenes::{LATER, read};
use crate::machine::{End, id, open_at};
use crate::seeds;

/// An event of the journal.
#[derive(Debug, Clone, Copy)]
enum Act {
    Token,
    Reasoning,
    Tool,
    ToolComplete,
    /// An earlier line of the run, once more.
    Resend(usize),
    /// A token under another run's id and this number.
    Foreign(u64),
    /// A tool call under another run's id and this number.
    ForeignTool(u64),
}

/// What an interrupted process found, and what interrupted it.
#[derive(Debug, Clone, Copy)]
struct Cut {
    /// Whole reads before the one that is cut.
    reads: usize,
    operation: u64,
    end: End,
}

/// A journal as two readings find it.
#[derive(Debug, Clone)]
struct Story {
    acts: Vec<Act>,
    end: Option<&'static str>,
    is_torn: bool,
    is_ours: bool,
    /// How many lines are there when it is read for the first time.
    first_part: usize,
    cuts: [Vec<Cut>; 2],
}

fn any_act() -> impl Strategy<Value = Act> {
    prop_oneof![
        4 => Just(Act::Token),
        2 => Just(Act::Reasoning),
        2 => Just(Act::Tool),
        2 => Just(Act::ToolComplete),
        1 => any::<usize>().prop_map(Act::Resend),
        1 => (1u64..6).prop_map(Act::Foreign),
        1 => (1u64..6).prop_map(Act::ForeignTool),
    ]
}

fn any_cut() -> impl Strategy<Value = Cut> {
    let end = prop_oneof![
        Just(End::Kill),
        Just(End::Power(Crash::LoseAll)),
        Just(End::Power(Crash::KeepAll)),
        any::<u64>().prop_map(|seed| End::Power(Crash::Seeded(seed))),
    ];
    (0usize..3, 1u64..14, end).prop_map(|(reads, operation, end)| Cut { reads, operation, end })
}

fn any_story() -> impl Strategy<Value = Story> {
    let end = prop_oneof![Just(None), Just(Some("done")), Just(Some("cancel")), Just(Some("apperror"))];
    let cuts = || prop::collection::vec(any_cut(), 0..3);
    let journal = (prop::collection::vec(any_act(), 0..12), end, any::<bool>(), any::<bool>(), 0usize..14);
    (journal, [cuts(), cuts()]).prop_map(|((acts, end, is_torn, is_ours, first_part), cuts)| Story {
        acts,
        end,
        is_torn,
        is_ours,
        first_part,
        cuts,
    })
}

/// The journal's lines, and what a transcript made of them must hold.
#[derive(Default)]
struct Lines {
    lines: Vec<String>,
    /// Those of the run itself.
    own: Vec<String>,
    expected: Expected,
    seq: u64,
    /// How many tools were called.
    tools: u64,
    is_ours: bool,
}

impl Lines {
    fn of(story: &Story) -> Self {
        let mut lines = Lines { is_ours: story.is_ours, ..Lines::default() };
        lines.expected.markers = 0..2;
        story.acts.iter().for_each(|act| lines.add(*act));
        if let Some(end) = story.end {
            lines.push(end, json!({"type": "quota", "message": "The quota is used up."}));
        }
        lines
    }

    fn add(&mut self, act: Act) {
        let text = format!("<{}>", self.lines.len());
        match act {
            Act::Token => self.say("token", text),
            Act::Reasoning => self.say("reasoning", text),
            Act::Tool => {
                let call = self.call();
                self.push("tool", call);
            }
            Act::ToolComplete => self.push("tool_complete", json!({"id": self.tools, "preview": text})),
            Act::Resend(nth) => self.lines.extend(self.own.get(nth % self.own.len().max(1)).cloned()),
            Act::Foreign(seq) => {
                self.lines.push(line_of("other", seq, "token", &json!({"text": text})));
                self.expected.texts.push(text);
            }
            Act::ForeignTool(seq) => {
                let call = self.call();
                self.lines.push(line_of("other", seq, "tool", &call));
            }
        }
    }

    fn push(&mut self, name: &str, payload: serde_json::Value) {
        self.seq += 1;
        let line = line(self.seq, name, &payload);
        self.own.push(if self.is_ours { checked(&line) } else { line });
        self.lines.extend(self.own.last().cloned());
    }

    fn say(&mut self, name: &str, text: String) {
        self.push(name, json!({"text": text}));
        self.expected.texts.push(text);
    }

    /// A call of a tool that no other call has.
    fn call(&mut self) -> serde_json::Value {
        self.tools += 1;
        let name = format!("tool {:02}", self.tools);
        self.expected.tools.push(name.clone());
        json!({"name": name, "id": self.tools})
    }
}

/// Reads until that changes nothing any more.
fn settle(disk: &SimDisk) -> Files {
    let mut seen = BTreeSet::new();
    while seen.insert(files(disk).sidecar) {
        read(disk).unwrap();
        assert!(seen.len() <= 14, "every read changes something");
    }
    files(disk)
}

fn suffer(disk: &SimDisk, cut: Cut) {
    let store = open_at(disk, LATER).unwrap();
    (0..cut.reads).for_each(|_| drop(store.get_session(&id()).unwrap()));
    drop(store);
    disk.stop_before(disk.operations() + cut.operation);
    let _ = read(disk);
    cut.end.strike(disk);
}

/// The files behind each part of the journal.
fn told(story: &Story, cuts: [&[Cut]; 2]) -> (SimDisk, [Files; 2]) {
    let disk = SimDisk::new();
    put_waiting_session(&disk);
    let mut lines = Lines::of(story).lines;
    let rest = lines.split_off(story.first_part.min(lines.len()));
    let mut parts = [lines.concat(), rest.concat()];
    if story.is_torn {
        let last = usize::from(!parts[1].is_empty());
        parts[last].push_str(TORN);
    }
    let part = |nth: usize| {
        if !parts[nth].is_empty() {
            add_to_journal(&disk, &parts[nth]);
        }
        let before = files(&disk).journal;
        cuts[nth].iter().for_each(|cut| suffer(&disk, *cut));
        let after = settle(&disk);
        assert_eq!(after.journal, before, "reading never writes a journal");
        after
    };
    let seen = [part(0), part(1)];
    (disk, seen)
}

fn config(cases: u32) -> ProptestConfig {
    ProptestConfig { cases, ..seeds::config("recovery") }
}

proptest! {
    #![proptest_config(config(384))]

    #[test]
    fn any_journal_gives_the_same_bytes_whatever_cuts_its_recovery(story in any_story()) {
        let (calm, undisturbed) = told(&story, [&[], &[]]);
        let (disk, found) = told(&story, [&story.cuts[0], &story.cuts[1]]);
        prop_assert_eq!(found, undisturbed);
        let expected = Lines::of(&story).expected;
        expected.check(&calm, LATER, "undisturbed");
        expected.check(&disk, LATER, "after its cuts");
    }
}
