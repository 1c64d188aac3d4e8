//! What a server is told on the command line, in the environment and in the file: who wins, and what is refused by name.

use std::fs;
use std::process::Command;

use crate::data::Data;
use crate::process::{Ended, Process};

/// What `serve` says with these flags, these variables and this file.
fn told(flags: &[&str], variables: &[(&str, &str)], file: &str) -> Ended {
    let data = Data::nowhere();
    fs::create_dir_all(data.root()).expect("it can be created");
    fs::write(data.root().join("_lastword.toml"), file).expect("it can be written");
    let mut command: Command = data.command(&[&["serve"], flags].concat());
    command.envs(variables.iter().copied());
    Process::start(command).end()
}

/// The value of a setting that `--print-config` prints.
fn printed(key: &str, flags: &[&str], variables: &[(&str, &str)], file: &str) -> String {
    let ended = told(&[flags, &["--print-config"]].concat(), variables, file);
    assert_eq!((ended.code(), ended.stderr.as_str()), (Some(0), ""), "{flags:?}");
    let prefix = format!("{key} = ");
    let found = ended.lines.iter().find_map(|line| line.strip_prefix(&prefix));
    found.unwrap_or_else(|| panic!("no {key} in {:#?}", ended.lines)).to_owned()
}

#[test]
fn a_flag_wins_over_the_environment_and_the_environment_over_the_file() {
    let file = "[server]\nretry_ms = 3\nlease_seconds = 33.0\nlisten = \"127.0.0.1:3333\"\nlog = \"error\"\n";
    let variables = [("LASTWORD_RETRY_MS", "2"), ("LASTWORD_LISTEN", "127.0.0.1:2222")];
    for (key, flags, variables, value) in [
        ("retry_ms", &["--retry-ms", "1"][..], &variables[..], "1"),
        ("retry_ms", &[], &variables, "2"),
        ("retry_ms", &[], &[], "3"),
        ("listen", &["--listen", "127.0.0.1:1111"], &variables, "\"127.0.0.1:1111\""),
        ("listen", &[], &variables, "\"127.0.0.1:2222\""),
        ("listen", &[], &[], "\"127.0.0.1:3333\""),
        ("lease_seconds", &[], &variables, "33.0"),
        ("log", &[], &[("LASTWORD_LOG", "debug")], "\"debug\""),
    ] {
        assert_eq!(printed(key, flags, variables, file), value, "{key} with {flags:?} and {variables:?}");
    }
    assert_eq!(printed("retry_ms", &[], &[], ""), "2000", "what is usual, where nobody says anything");
    assert_eq!(printed("default_runner", &[], &[], ""), "\"demo\"");
}

#[test]
fn what_is_printed_can_be_put_into_a_file_and_says_the_same() {
    let ended = told(&["--print-config", "--retry-ms", "7", "--allow-host", "chat.example"], &[], "");
    let text = ended.lines.join("\n");
    let again = told(&["--print-config"], &[], &text);
    assert_eq!((again.code(), again.lines.join("\n")), (Some(0), text), "{}", again.stderr);
}

#[test]
fn printing_the_configuration_opens_nothing() {
    let data = Data::nowhere();
    let ended = data.ask(&["serve", "--print-config"]);
    assert_eq!(ended.code(), Some(0), "{}", ended.stderr);
    assert!(!data.root().exists(), "nothing was asked for that needs a directory");
}

#[test]
fn a_value_that_cannot_be_used_is_refused_by_name() {
    for (flags, variables, file, words) in [
        (&["--lease-seconds", "0.5"][..], &[][..], "", &["lease_seconds", "0.5"][..]),
        (&["--listen", "nowhere"], &[], "", &["listen", "nowhere"]),
        (&["--connections-max", "0"], &[], "", &["connections_max", "0"]),
        (&["--allow-origin", "*"], &[], "", &["allow_origins", "*"]),
        (&["--log", "a=b=c"], &[], "", &["log", "a=b=c"]),
        (&["--retry-ms", "soon"], &[], "", &["--retry-ms", "soon"]),
        (&["--durability", "eternal"], &[], "", &["--durability", "eternal"]),
        (&[], &[("LASTWORD_HEARTBEAT_SECONDS", "0")], "", &["heartbeat_seconds", "0"]),
        (&[], &[("LASTWORD_DRAIN_SECONDS", "-1")], "", &["drain"]),
        (&[], &[], "[server]\nbody_bytes_max = 5\n", &["body_bytes_max", "5"]),
        (&[], &[], "[server]\nlistn = \"x\"\n", &["_lastword.toml", "line 2", "listn"]),
        (&[], &[], "[server]\nretry_ms = \"soon\"\n", &["_lastword.toml", "line 2"]),
        (&["--config", "no/such/file.toml"], &[], "", &["no/such/file.toml"]),
        (&["--token-file", "no/such/tokens"], &[], "", &["no/such/tokens"]),
    ] {
        let ended = told(flags, variables, file);
        let context = format!("{flags:?} {variables:?} {file:?}: {}", ended.stderr);
        assert_eq!(ended.code(), Some(2), "{context}");
        assert!(words.iter().all(|word| ended.stderr.contains(word)), "{context}");
        assert_eq!(ended.lines, [] as [&str; 0], "{context}");
    }
}
