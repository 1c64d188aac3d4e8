//! The API's description: it is whole, it is true of what the server sends, the clients that are made of it work, and a plain
//! HTTP client needs nothing else.
//!
//! `.ci/setup` installs what these tests run: Schemathesis, generators of clients, httpx. Here, Schemathesis sends the server
//! what its description says that it can be asked, and much that it says it cannot: no answer may be a failure, or one that
//! the description does not know. `schemathesis.toml` says what is checked, `hooks.py` what a description cannot say.
//! Streams that never end are read for a moment, as far as they came.

#![cfg(all(target_os = "linux", feature = "cli"))]

mod clients;
mod plain;
mod reality;
mod typed;

#[path = "../load/served.rs"]
#[allow(dead_code, reason = "not all of a server is needed here")]
mod served;

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use served::Served;
use tempfile::TempDir;

const TOKEN: &str = "a-token-for-those-who-ask-a-lot";

/// Requests for each operation and phase, unless the environment says another number.
const EXAMPLES: &str = "25";
/// The same questions each time, unless the environment says another number.
const SEED: &str = "4437";

fn said(name: &str, usual: &str) -> String {
    env::var(name).unwrap_or_else(|_| usual.to_owned())
}

fn home() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/schema")
}

/// Has all of it asked, in a folder where the asker may leave its notes.
fn ask_everything(served: &Served) -> Output {
    let mut command = installed(".ci/venv/bin/schemathesis");
    command.arg("--config-file").arg(home().join("schemathesis.toml"));
    command.args(["run", &format!("http://{}/openapi.json", served.address)]);
    command.args(["--header", &format!("Authorization: Bearer {TOKEN}")]);
    command.args(["--seed", &said("LASTWORD_SCHEMA_SEED", SEED)]);
    command.args(["--max-examples", &said("LASTWORD_SCHEMA_EXAMPLES", EXAMPLES)]);
    command.env("SCHEMATHESIS_HOOKS", home().join("hooks.py")).current_dir(served.folder()).output().unwrap()
}

/// A server that asks for a token, with a runner that does not pause.
fn serve(folder: TempDir, args: &[&str]) -> Served {
    let tokens = folder.path().join("tokens");
    fs::write(&tokens, TOKEN).unwrap();
    restrict(&tokens);
    let tokens = tokens.to_str().unwrap().to_owned();
    Served::start_in(folder, &[&["--token-file", &tokens, "--pace-ms", "0"], args].concat())
}

/// A program that `.ci/setup` installs.
fn installed(path: &str) -> Command {
    let program = Path::new(env!("CARGO_MANIFEST_DIR")).join(path);
    assert!(program.exists(), "{} is not there: run .ci/setup, which installs it", program.display());
    let mut command = Command::new(program);
    command.env("NO_PROXY", "*").env("PYTHONDONTWRITEBYTECODE", "1");
    command
}

/// Runs a command to its end, and gives what it printed.
#[track_caller]
fn run(command: &mut Command) -> String {
    let ended = command.output().unwrap();
    let (out, err) = (String::from_utf8_lossy(&ended.stdout), String::from_utf8_lossy(&ended.stderr));
    assert!(ended.status.success(), "{command:?}\n{out}\n{err}");
    out.into_owned()
}

#[test]
fn every_answer_is_one_that_the_description_knows() {
    let mut served = serve(tempfile::tempdir().unwrap(), &["--long-poll-timeout-ms", "50"]);
    let asked = ask_everything(&served);
    let (said, log) = (String::from_utf8_lossy(&asked.stdout), served.log());
    assert!(asked.status.success(), "{said}\n{}\n{log}", String::from_utf8_lossy(&asked.stderr));
    // A run in which nothing is asked would succeed, too.
    for phase in ["Coverage (in", "Fuzzing (in", "Stateful (in", "No issues found"] {
        assert!(said.contains(phase), "{phase}: {said}");
    }
    assert!(served.is_alive() && !log.contains("panicked"), "{log}");
}

/// A file of tokens that others can read is not taken.
fn restrict(path: &Path) {
    use std::os::unix::fs::PermissionsExt;
    fs::set_permissions(path, fs::Permissions::from_mode(0o600)).unwrap();
}
