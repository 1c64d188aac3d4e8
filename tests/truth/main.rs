//! Replays every recorded scenario of the reference program, and says where this store differs.
//!
//! The scenarios lie in `fixtures/truth`, or in the folder that `LASTWORD_TRUTH_DIR` names; `fixtures/truth/README.md`
//! says how they are compared. Where the program did badly, `better` holds what must be true instead, written by hand.
#![cfg(unix)]

mod better;
mod compare;
mod files;
mod marker;
mod ops;
mod replay;
mod rules;
mod scenario;
mod session;
mod stage;

use std::env;
use std::path::{Path, PathBuf};

use replay::{Ending, ending_of};
use scenario::Scenario;

#[derive(Default)]
struct Tally {
    matched: usize,
    differing: usize,
    skipped: Vec<String>,
    lines: Vec<String>,
}

impl Tally {
    fn count(&mut self, name: &str, ending: Ending) {
        match ending {
            Ending::Skipped => self.skipped.push(name.to_owned()),
            Ending::Compared(reasons) if reasons.is_empty() => self.matched += 1,
            Ending::Compared(reasons) => {
                self.differing += 1;
                self.lines.extend(reasons.iter().map(|reason| format!("DIFF {name}: {reason}")));
            }
        }
    }

    fn summary(&self) -> String {
        let (matched, differing, skipped) = (self.matched, self.differing, self.skipped.len());
        format!("truth: {matched} match, {differing} differ, {skipped} skipped")
    }
}

fn recorded_here() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures/truth")
}

#[test]
fn every_recorded_scenario_comes_out_as_recorded_or_better() {
    let named = env::var_os("LASTWORD_TRUTH_DIR").map(PathBuf::from);
    let mut tally = Tally::default();
    for scenario in Scenario::all_in(named.as_deref().unwrap_or(&recorded_here())) {
        let name = scenario.name.clone();
        tally.count(&name, ending_of(scenario));
    }
    tally.lines.iter().for_each(|line| println!("{line}"));
    println!("{}", tally.summary());
    assert!(tally.differing == 0, "\n{}\n{}", tally.lines.join("\n"), tally.summary());
    assert!(tally.matched > 0, "no scenario was replayed: {}", tally.summary());
    assert!(named.is_some() || tally.skipped.is_empty(), "nobody wrote what is better in {:?}", tally.skipped);
}

#[test]
fn what_is_written_by_hand_belongs_to_a_scenario_that_is_there() {
    let known: Vec<String> = Scenario::all_in(&recorded_here()).into_iter().map(|scenario| scenario.name).collect();
    for (name, _) in better::checks() {
        assert!(known.iter().any(|known| known == name), "{name} is checked by hand and not in fixtures/truth");
    }
}
