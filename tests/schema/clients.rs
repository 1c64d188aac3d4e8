//! Clients that generators make of the description compile in their strictest mode, and work.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::Command;

use super::served::Served;
use super::{TOKEN, home, installed, run, serve};

/// What a client's program prints at its end.
const WHOLE: &str = "whole";

fn url(served: &Served) -> String {
    format!("http://{}", served.address)
}

fn node(package: &Path, script: &str) -> Command {
    let script = package.join("node_modules").join(script);
    assert!(script.exists(), "{} is not there: run .ci/setup, which installs it", script.display());
    let mut command = Command::new("node");
    command.arg(script).current_dir(package);
    command
}

#[test]
fn a_typescript_client_compiles_strictly_and_works() {
    let served = serve(tempfile::tempdir().unwrap(), &[]);
    let folder = tempfile::tempdir().unwrap();
    let package = folder.path();
    symlink(home().join("js/node_modules"), package.join("node_modules")).unwrap();
    for file in ["client.ts", "tsconfig.json", "package.json"] {
        fs::copy(home().join("js").join(file), package.join(file)).unwrap();
    }
    let description = format!("{}/openapi.json", url(&served));
    run(node(package, "openapi-typescript/bin/cli.js").args([&description, "-o", "api.d.ts"]));
    run(node(package, "typescript/bin/tsc").args(["-p", "."]));
    let said = run(Command::new("node").current_dir(package).args(["client.js", &url(&served), TOKEN]));
    assert_eq!(said.trim(), WHOLE);
    has_plain_names(&fs::read_to_string(package.join("api.d.ts")).unwrap());
}

#[test]
fn a_python_client_is_checked_strictly_and_works() {
    let served = serve(tempfile::tempdir().unwrap(), &[]);
    let folder = tempfile::tempdir().unwrap();
    let package = folder.path();
    fs::copy(home().join("client.py"), package.join("client.py")).unwrap();
    let mut generate = installed(".ci/venv/bin/openapi-python-client");
    generate.args(["generate", "--meta", "none", "--fail-on-warning", "--output-path", "lastword_client"]);
    generate.args(["--url", &format!("{}/openapi.json", url(&served))]);
    run(generate.arg("--config").arg(home().join("python-client.yaml")).current_dir(package));
    run(installed(".ci/venv/bin/mypy").args(["--strict", "client.py", "lastword_client"]).current_dir(package));
    let mut python = installed(".ci/venv/bin/python");
    let said = run(python.args(["client.py", &url(&served), TOKEN]).current_dir(package));
    assert_eq!(said.trim(), WHOLE);
    let models = fs::read_dir(package.join("lastword_client/models")).unwrap();
    models.for_each(|model| has_plain_names(model.unwrap().file_name().to_str().unwrap()));
}

/// Generators number what has no name.
#[track_caller]
fn has_plain_names(generated: &str) {
    for numbered in ["Object_1", "Type0", "type_0", "_Object"] {
        assert!(!generated.contains(numbered), "{numbered}: {}", &generated[..generated.len().min(100)]);
    }
}
