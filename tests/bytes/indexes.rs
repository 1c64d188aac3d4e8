//! The index, by its reader alone.

use lastword::format::read_index_lines;
use lastword::{Revision, Summary};

use crate::data::{Data, sid};
use crate::index_rules;
use crate::mutations::{Mutation, all, sample};

fn summaries(bytes: &[u8]) -> Vec<Summary> {
    let summary = |line: lastword::format::IndexLine<'_>| {
        line.summary_of(&sid(line.session), &Revision::new(line.revision)).expect("a right checksum")
    };
    read_index_lines(bytes).map(summary).collect()
}

/// Where each line begins: at the line feed before it.
fn starts(bytes: &[u8]) -> Vec<usize> {
    (0..bytes.len()).filter(|at| bytes[*at..].starts_with(b"\n1 ")).collect()
}

#[test]
fn an_index_cut_or_changed_anywhere_loses_the_line_that_was_hit_and_no_other() {
    let index = Data::new().bytes("_sessions.index").to_vec();
    let (whole, starts) = (summaries(&index), starts(&index));
    assert!(whole.len() == starts.len() && whole.len() >= 3, "{}", String::from_utf8_lossy(&index));
    for mutation in all(index.len()) {
        let hit = starts.partition_point(|start| *start <= mutation.at()) - 1;
        let behind = if matches!(mutation, Mutation::Cut(_)) { &[] } else { &whole[hit + 1..] };
        let without = [&whole[..hit], behind].concat();
        let with = [&whole[..=hit], behind].concat();
        let found = summaries(&mutation.of(&index));
        assert!(found == without || found == with, "{mutation:?}: {found:?}");
    }
}

#[test]
fn the_rules_for_any_bytes_hold_after_any_accident() {
    let index = Data::new().bytes("_sessions.index").to_vec();
    sample(index.len(), 300).for_each(|mutation| index_rules::check(&mutation.of(&index)));
}
