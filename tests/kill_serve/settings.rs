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
        ("base_path", &["--base-path", "/chat"], &[("LASTWORD_BASE_PATH", "/a")], "\"/chat\""),
        ("base_path", &[], &[("LASTWORD_BASE_PATH", "/a")], "\"/a\""),
        ("bodies_bytes_max", &["--bodies-bytes-max", "33554432"], &[], "33554432"),
        ("bodies_bytes_max", &[], &[("LASTWORD_BODIES_BYTES_MAX", "33554433")], "33554433"),
        ("connections_per_address_max", &[], &[("LASTWORD_CONNECTIONS_PER_ADDRESS_MAX", "9")], "9"),
        (
            "trust_forwarded_for",
            &[],
            &[("LASTWORD_TRUST_FORWARDED_FOR", "::1,10.0.0.0/8")],
            "[\"::1\", \"10.0.0.0/8\"]",
        ),
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
        (&["--base-path", "/v1"], &[], "", &["base_path", "/v1", "/chat"]),
        (&[], &[("LASTWORD_BASE_PATH", "chat")], "", &["base_path", "chat"]),
        (&[], &[], "[server]\nbase_path = \"/a//b\"\n", &["base_path", "/a//b"]),
        (&["--allow-origin", "*"], &[], "", &["allow_origins", "*"]),
        (&["--bodies-bytes-max", "1024"], &[], "", &["bodies_bytes_max", "1024", "33554432"]),
        (&["--body-bytes-max", "1000000000"], &[], "", &["bodies_bytes_max", "1000000000"]),
        (&["--connections-per-address-max", "0"], &[], "", &["connections_per_address_max", "0"]),
        (&["--trust-forwarded-for", "10.0.0.1/8"], &[], "", &["trust_forwarded_for", "10.0.0.1/8", "10.0.0.0/8"]),
        (&[], &[("LASTWORD_TRUST_FORWARDED_FOR", "10.0.0.1,proxy")], "", &["trust_forwarded_for", "proxy"]),
        (&[], &[], "[server]\ntrust_forwarded_for = [\"0.0.0.0/0\"]\n", &["trust_forwarded_for", "every address"]),
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

#[test]
fn a_configuration_that_other_users_may_write_is_refused_by_every_command_that_reads_it() {
    use std::os::unix::fs::{PermissionsExt, chown};
    const OTHER_USER: u32 = 12_345;
    let data = Data::nowhere();
    fs::create_dir_all(data.root()).expect("it can be created");
    let (usual, named) = (data.root().join("_lastword.toml"), data.root().with_extension("toml"));
    let path = named.to_str().expect("a path is text");
    let commands: [(&std::path::Path, &[&str]); 4] = [
        (&usual, &["serve", "--print-config"]),
        (&usual, &["run", "s", "--message", "Hi"]),
        (&named, &["serve", "--print-config", "--config", path]),
        (&named, &["run", "s", "--message", "Hi", "--config", path]),
    ];
    let may_write = |file: &std::path::Path, mode: u32| {
        fs::write(file, "").expect("it can be written");
        fs::set_permissions(file, fs::Permissions::from_mode(mode)).expect("it is ours");
    };
    for (file, args) in commands {
        for mode in [0o664, 0o602, 0o620, 0o666] {
            may_write(file, mode);
            let ended = data.ask(args);
            assert_eq!(ended.code(), Some(2), "{args:?} {mode:o}: {}", ended.stderr);
            let fix = format!("`chmod go-w {}`", file.display());
            assert!(ended.stderr.contains(&fix) && ended.stderr.contains(&format!("{mode:o}")), "{}", ended.stderr);
        }
        if rustix::process::geteuid().is_root() {
            may_write(file, 0o600);
            chown(file, Some(OTHER_USER), None).expect("root gives files away");
            let ended = data.ask(args);
            assert_eq!(ended.code(), Some(2), "{args:?}: {}", ended.stderr);
            let words = [format!("user {OTHER_USER}"), format!("`chown 0 {}`", file.display())];
            assert!(words.iter().all(|word| ended.stderr.contains(word)), "{}", ended.stderr);
            chown(file, Some(0), None).expect("and takes them back");
        }
        may_write(file, 0o644);
        let ended = data.ask(args);
        assert!(ended.code() != Some(2) || !ended.stderr.contains("is not used"), "{args:?}: {}", ended.stderr);
        fs::remove_file(file).expect("it can be removed");
    }
    assert_eq!(data.ask(&["serve", "--print-config", "--config", "/dev/null"]).code(), Some(0));
}
