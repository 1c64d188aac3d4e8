//! The real server, asked by Schemathesis what its own description says that it can be asked, and much that it says it
//! cannot: no answer may be a failure, or one that the description does not know.
//!
//! `.ci/setup` installs Schemathesis. `schemathesis.toml` says what is checked, `hooks.py` what a description cannot say.
//! Streams that never end are read for a moment, as far as they came.

#![cfg(all(target_os = "linux", feature = "cli"))]

#[path = "../load/served.rs"]
#[allow(dead_code, reason = "not all of a server is needed here")]
mod served;

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use served::Served;

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
    let program = Path::new(env!("CARGO_MANIFEST_DIR")).join(".ci/venv/bin/schemathesis");
    assert!(program.exists(), "{} is not there: run .ci/setup, which installs it", program.display());
    let mut command = Command::new(program);
    command.arg("--config-file").arg(home().join("schemathesis.toml"));
    command.args(["run", &format!("http://{}/openapi.json", served.address)]);
    command.args(["--header", &format!("Authorization: Bearer {TOKEN}")]);
    command.args(["--seed", &said("LASTWORD_SCHEMA_SEED", SEED)]);
    command.args(["--max-examples", &said("LASTWORD_SCHEMA_EXAMPLES", EXAMPLES)]);
    command.env("SCHEMATHESIS_HOOKS", home().join("hooks.py")).env("PYTHONDONTWRITEBYTECODE", "1");
    command.env("NO_PROXY", "*").current_dir(served.folder()).output().unwrap()
}

#[test]
fn every_answer_is_one_that_the_description_knows() {
    let folder = tempfile::tempdir().unwrap();
    let tokens = folder.path().join("tokens");
    fs::write(&tokens, TOKEN).unwrap();
    restrict(&tokens);
    let tokens = tokens.to_str().unwrap().to_owned();
    let args = ["--token-file", &tokens, "--long-poll-timeout-ms", "50", "--pace-ms", "0"];
    let mut served = Served::start_in(folder, &args);
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
