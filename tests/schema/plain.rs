//! A program that knows nothing but HTTP and JSON produces and follows a run, while the server is killed. `plain.py` does it.

use super::{home, installed, run};

#[test]
fn a_plain_http_client_misses_nothing_while_connections_break_and_the_server_is_killed() {
    let folder = tempfile::tempdir().unwrap();
    let mut python = installed(".ci/venv/bin/python");
    let said = run(python.arg(home().join("plain.py")).arg(env!("CARGO_BIN_EXE_lastword")).arg(folder.path()));
    assert_eq!(said.trim(), "whole");
}
