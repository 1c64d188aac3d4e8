//! The seeds of the fuzz targets, and every input that ever broke a rule, as plain tests.

use std::fs;
use std::path::Path;

type Rule = fn(&[u8]);

/// Every fuzz target by its name.
const RULES: &[(&str, Rule)] = &[
    ("commit", crate::commit_rules::check),
    ("index", crate::index_rules::check),
    ("journal", crate::journal_rules::check),
    ("sidecar", crate::sidecar_rules::check),
];

#[test]
fn the_rules_hold_for_every_seed_and_every_input_that_broke_one_before() {
    for (target, rule) in RULES {
        let seeds = files_in(&Path::new("fixtures/fuzz").join(target));
        assert!(!seeds.is_empty(), "{target} has no seeds");
        for (name, bytes) in seeds.iter().chain(&files_in(&Path::new("fixtures/regressions").join(target))) {
            println!("{target}: {name}");
            rule(bytes);
            // What is near to a seed is what a fuzzer tries first.
            (0..bytes.len()).for_each(|len| rule(&bytes[..len]));
        }
    }
}

#[test]
fn every_fuzz_target_has_a_rule_here() {
    let mut targets: Vec<String> = names_in(Path::new("fuzz/src/bin"));
    targets.iter_mut().for_each(|name| *name = name.trim_end_matches(".rs").to_owned());
    assert_eq!(targets, RULES.iter().map(|(target, _)| *target).collect::<Vec<_>>());
}

fn names_in(folder: &Path) -> Vec<String> {
    let entries: Vec<_> = fs::read_dir(folder).map(|found| found.map(Result::unwrap).collect()).unwrap_or_default();
    let mut names: Vec<String> = entries.iter().map(|entry| entry.file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

fn files_in(folder: &Path) -> Vec<(String, Vec<u8>)> {
    names_in(folder).into_iter().map(|name| (name.clone(), fs::read(folder.join(name)).unwrap())).collect()
}
