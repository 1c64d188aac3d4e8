//! Properties of the code itself, checked like any other behaviour.

#[path = "shared/seeds.rs"]
mod seeds;

use std::fs;
use std::path::Path;

use proptest::prelude::{ProptestConfig, any};
use proptest::test_runner::{TestCaseError, TestRunner};

/// Layers from bottom to top. A file may name its own layer and those before it.
const LAYERS: &[&[&str]] = &[
    &["limits", "clock", "awake", "entropy", "meter", "model", "sync"],
    &["format"],
    &["storage"],
    &["journal", "sidecar", "index"],
    &["cache", "recovery"],
    &["store", "doctor"],
    &["run"],
    &["bridge", "relay", "http", "client"],
    &["cli"],
];

/// Words that may stand in some places only, and why.
const KEPT_TO: &[(&str, &[&str], &str)] = &[
    // A benchmark touches files and reads the time; the kernel's table of processes and a person's configuration are
    // files outside of any data directory.
    (
        "std::fs",
        &["src/storage/os.rs", "src/cli/bench", "src/cli/config.rs", "src/run/process.rs"],
        "only the real disk touches files",
    ),
    ("SystemTime", &["src/clock.rs"], "time is an argument"),
    (
        "Instant::now",
        &["src/clock.rs", "src/cli/bench", "src/run/sleep.rs", "src/client/wait.rs"],
        "time is an argument",
    ),
    ("getrandom", &["src/entropy.rs"], "randomness is an argument"),
    (
        "tokio::time",
        &["src/run/sleep.rs", "src/client/wait.rs", "src/http/time.rs", "src/cli/rotation.rs"],
        "one place of a layer waits",
    ),
    (
        "std::thread",
        &["src/sync", "src/storage/lock.rs", "src/doctor", "src/cli/bench"],
        "a schedule knows its threads",
    ),
    (
        "parking_lot",
        &[
            "src/sync",
            "src/storage/sim",
            "src/store/news.rs",
            "src/meter.rs",
            "src/doctor",
            "src/run",
            "src/http",
            "src/cli",
        ],
        "a schedule knows its locks",
    ),
    (
        "std::sync::atomic",
        &[
            "src/sync",
            "src/storage/os.rs",
            "src/meter.rs",
            "src/clock.rs",
            "src/entropy.rs",
            "src/doctor",
            "src/run",
            "src/http",
            "src/cli",
        ],
        "a schedule knows its atomics",
    ),
    ("thread::sleep", &[], "wait on a notification with a time limit"),
    ("println!", &["src/cli"], "the library never touches the terminal"),
    ("process::exit", &[], "exit codes are returned"),
    ("todo!", &[], "no stubs"),
    ("unimplemented!", &[], "no stubs"),
    (".unwrap()", &["src/cli"], "say why it holds with expect"),
];

fn level(module: &str) -> Option<usize> {
    LAYERS.iter().position(|names| names.contains(&module))
}

#[test]
fn dependencies_point_down() {
    let mut bad = Vec::new();
    visit(Path::new("src"), &mut |path, text| {
        let own = path.iter().nth(1).and_then(|part| part.to_str()).unwrap_or_default().trim_end_matches(".rs");
        if matches!(own, "lib" | "main") {
            return;
        }
        let Some(own) = level(own) else {
            bad.push(format!("{}: belongs to no layer", path.display()));
            return;
        };
        for (number, line) in text.lines().enumerate() {
            for used in names_behind(line, "crate::") {
                if level(&used).is_some_and(|used| own < used) {
                    bad.push(format!("{}:{}: {}", path.display(), number + 1, line.trim()));
                }
            }
        }
    });
    assert!(bad.is_empty(), "upward dependencies:\n{}", bad.join("\n"));
}

fn names_behind(line: &str, prefix: &str) -> Vec<String> {
    let name = |rest: &str| rest.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect();
    line.split(prefix).skip(1).map(name).collect()
}

#[test]
fn each_word_stays_where_it_belongs() {
    let mut bad = Vec::new();
    visit(Path::new("src"), &mut |path, text| {
        let code = text.split("#[cfg(test)]").next().unwrap_or_default();
        if path.ends_with("tests.rs") || path.iter().any(|part| part == "tests") {
            return;
        }
        for (number, line) in code.lines().enumerate().filter(|(_, line)| !line.trim_start().starts_with("//")) {
            for (word, places, why) in KEPT_TO {
                if line.contains(word) && !places.iter().any(|place| path.starts_with(place)) {
                    bad.push(format!("{}:{}: {word}: {why}", path.display(), number + 1));
                }
            }
        }
    });
    assert!(bad.is_empty(), "{}", bad.join("\n"));
}

#[test]
fn every_file_says_what_it_owns() {
    let mut bad = Vec::new();
    visit(Path::new("src"), &mut |path, text| {
        if !text.starts_with("//! ") {
            bad.push(path.display().to_string());
        }
    });
    assert!(bad.is_empty(), "no opening words: {bad:?}");
}

#[test]
fn no_file_and_no_line_is_too_long_to_read() {
    let mut bad = Vec::new();
    visit(Path::new("src"), &mut |path, text| {
        if text.lines().count() > 600 {
            bad.push(format!("{}: {} lines", path.display(), text.lines().count()));
        }
    });
    assert!(bad.is_empty(), "{bad:?}");
}

/// Tables that name tests name those that exist, in the suite that they name.
#[test]
fn hazards_name_tests_that_exist() {
    let mut sources = String::new();
    for folder in ["src", "tests"] {
        visit(Path::new(folder), &mut |_, text| sources.push_str(text));
    }
    for document in ["docs/hazards.md", "tests/README.md"] {
        let table = fs::read_to_string(document).unwrap();
        let is_test = |word: &&str| word.contains("::") && !word.starts_with("Explorer") && *word != "suite::rule";
        let named: Vec<&str> = table.split('`').skip(1).step_by(2).filter(is_test).collect();
        assert!(named.len() > 10, "{document} names too few tests");
        for name in named {
            let (suite, test) = name.rsplit_once("::").unwrap();
            let own = suite_source(suite);
            let is_there = own.as_ref().unwrap_or(&sources).contains(&format!("fn {test}("));
            assert!(is_there, "{document} names `{name}`, which does not exist");
        }
    }
}

/// The source of a test binary; nothing for the name of a module with unit tests.
fn suite_source(suite: &str) -> Option<String> {
    let mut source = fs::read_to_string(format!("tests/{suite}.rs")).unwrap_or_default();
    let folder = Path::new("tests").join(suite);
    if folder.is_dir() {
        visit(&folder, &mut |_, text| source.push_str(text));
    }
    Some(source).filter(|source| !source.is_empty())
}

#[test]
fn every_suite_is_named_with_what_it_guards() {
    let table = fs::read_to_string("tests/README.md").unwrap();
    let suites = fs::read_dir("tests").unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let suites = suites.filter(|name| name != "README.md" && name != "shared");
    let missing: Vec<_> =
        suites.filter(|name| !table.contains(&format!("`{}`", name.trim_end_matches(".rs")))).collect();
    assert!(missing.is_empty(), "tests/README.md does not say what these guard: {missing:?}");
}

/// A seed that was not looked at by a person is not committed, whatever made the test fail.
#[test]
fn the_seed_of_a_new_failure_is_not_taken_for_a_committed_one() {
    let [committed, found] = ["fixtures", "target"].map(|folder| Path::new(folder).join("regressions/tidy.txt"));
    let _ = fs::remove_file(&found);
    let config = ProptestConfig { cases: 1, source_file: Some(file!()), ..seeds::config("tidy") };
    let failed = TestRunner::new(config).run(&any::<u8>(), |_| Err(TestCaseError::fail("on purpose")));
    assert!(failed.is_err());
    assert!(found.exists() && !committed.exists());
}

fn visit(folder: &Path, check: &mut dyn FnMut(&Path, &str)) {
    let mut paths: Vec<_> = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    for path in paths {
        match path.is_dir() {
            true => visit(&path, check),
            false if path.extension().is_some_and(|extension| extension == "rs") => {
                check(&path, &fs::read_to_string(&path).unwrap());
            }
            false => {}
        }
    }
}
