//! The commands through a server print what they print on a directory, and exit alike.

use std::time::{Duration, Instant};

use serde_json::Value;

use crate::data::{DONE, Data, token};
use crate::host::Host;
use crate::process::Ended;
use crate::table::Signal;

/// What a command prints and how it exits.
#[derive(Debug, PartialEq)]
struct Said {
    code: Option<i32>,
    lines: Vec<String>,
    complains: bool,
}

/// Somewhere commands can be given.
trait Place {
    fn give(&self, args: &[&str], input: &[String]) -> Ended;
}

/// A directory that nobody else has.
impl Place for Data {
    fn give(&self, args: &[&str], input: &[String]) -> Ended {
        self.ask_with(args, input)
    }
}

/// A server, and a directory that there is none of.
struct Through<'a> {
    host: &'a Host,
    nowhere: Data,
}

impl<'a> Through<'a> {
    fn new(host: &'a Host) -> Self {
        Through { host, nowhere: Data::nowhere() }
    }
}

impl Place for Through<'_> {
    fn give(&self, args: &[&str], input: &[String]) -> Ended {
        let url = self.host.url();
        let ended = self.nowhere.ask_with(&[&["--server", &url], args].concat(), input);
        assert!(!self.nowhere.root().exists(), "{args:?} needs no directory");
        ended
    }
}

fn said(place: &dyn Place, args: &[&str], input: &[String]) -> Said {
    Said::of(&place.give(args, input))
}

impl Said {
    fn of(ended: &Ended) -> Self {
        // A session is one object over many lines.
        let whole = ended.lines.concat();
        let lines = match serde_json::from_str::<Value>(&whole).is_ok_and(|value| value.is_object()) {
            true => vec![timeless(&whole)],
            false => ended.lines.iter().map(|line| timeless(line)).collect(),
        };
        Said { code: ended.code(), lines, complains: !ended.stderr.is_empty() }
    }
}

/// A line without the moments in it, and without the checksum that they go into.
fn timeless(line: &str) -> String {
    match serde_json::from_str::<Value>(line) {
        Ok(mut value) if value.is_object() || value.is_array() => {
            forget_moments(&mut value);
            value.to_string()
        }
        _ => without_dates(line),
    }
}

fn forget_moments(value: &mut Value) {
    const MOMENTS: [&str; 10] = [
        "created_at",
        "updated_at",
        "timestamp",
        "pending_started_at",
        "began_at",
        "first_event_at",
        "ended_at",
        "crc",
        "last_message_at",
        "took_seconds",
    ];
    match value {
        Value::Object(object) => {
            for (key, value) in object {
                if MOMENTS.contains(&key.as_str()) { *value = Value::Null } else { forget_moments(value) }
            }
        }
        Value::Array(list) => list.iter_mut().for_each(forget_moments),
        _ => {}
    }
}

/// Words with digits and a dash or a colon in them are dates, the way our commands print, and so are plain metadata.
fn without_dates(line: &str) -> String {
    if let Some((key, _)) = line.split_once(": ").filter(|(key, _)| key.ends_with("_at")) {
        return format!("{key}: *");
    }
    let is_date = |word: &str| {
        let (digits, others): (Vec<char>, Vec<char>) = word.chars().partition(char::is_ascii_digit);
        digits.len() >= 4 && !others.is_empty() && others.iter().all(|c| "-:,".contains(*c))
    };
    line.split(' ').map(|word| if is_date(word) { "*" } else { word }).collect::<Vec<_>>().join(" ")
}

/// A server whose demo does not wait, on a new directory.
fn quick_host() -> Host {
    Host::start(&["--log", "warn", "--pace-ms", "0"])
}

type Given = (&'static [&'static str], Vec<String>);

fn plain(args: &'static [&'static str]) -> Given {
    (args, Vec::new())
}

/// Commands in the order in which they are given. Each run is ended before somebody reads the session: a run of the
/// command line is dead as soon as the command has ended, and one of a server has a lease.
fn commands() -> Vec<Given> {
    let words = |texts: &[&str]| texts.iter().map(|text| token(text)).collect::<Vec<_>>();
    let ended = |texts: &[&str]| [words(texts), vec![DONE.to_owned()]].concat();
    vec![
        plain(&["ls"]),
        plain(&["ls", "--json"]),
        plain(&["new", "--id", "trip", "--title", "Été 🦀\u{1b}[31m"]),
        plain(&["--json", "new", "--id", "other"]),
        plain(&["new", "--id", "trip"]),
        plain(&["new", "--id", "no/id"]),
        plain(&["new", "--id", "_x"]),
        plain(&["turn", "trip", "--message", "Wohin? Où? どこへ?", "--run", "r1"]),
        ((&["append", "trip", "r1"]), words(&["Nach ", "Sète,\n", "\u{1b}[2J 🦀 "])),
        ((&["append", "trip", "r1", "--durability", "durable"]), ended(&["oder Rom."])),
        ((&["append", "trip", "r1"]), words(&["Zu spät."])),
        ((&["append", "trip", "nope"]), words(&["x"])),
        ((&["append", "nowhere", "r1"]), words(&["x"])),
        ((&["append", "no/id", "r1"]), words(&["x"])),
        plain(&["append", "trip", "nope"]),
        plain(&["turn", "trip", "--message", "Und dann?", "--run", "r1"]),
        plain(&["turn", "trip", "--message", "", "--run", "r9"]),
        plain(&["turn", "trip", "--message", "Und dann?", "--run", "no/id"]),
        plain(&["turn", "nowhere", "--message", "Und dann?"]),
        plain(&["turn", "trip", "--message", "Und dann?", "--run", "r2", "--json"]),
        ((&["append", "trip", "r2"]), [words(&["a", "b"]), vec!["nonsense".to_owned()], words(&["c"])].concat()),
        ((&["append", "trip", "r2"]), ended(&["c"])),
        plain(&["tail", "trip", "r1"]),
        plain(&["tail", "trip", "r1", "--json"]),
        plain(&["tail", "trip", "r1", "--after", "2"]),
        plain(&["tail", "trip", "r1", "--after", "5"]),
        plain(&["tail", "trip", "r1", "--after", "99"]),
        plain(&["tail", "trip", "r1", "--follow"]),
        plain(&["tail", "trip", "r1", "--follow", "--after", "3"]),
        plain(&["tail", "trip", "r1", "--follow", "--after", "5"]),
        plain(&["tail", "trip", "r1", "--follow", "--after", "99"]),
        plain(&["tail", "trip", "nope"]),
        plain(&["tail", "trip", "nope", "--follow"]),
        plain(&["tail", "nowhere", "r1"]),
        plain(&["tail", "trip", "a/b"]),
        plain(&["show", "trip"]),
        plain(&["show", "trip", "--json"]),
        plain(&["show", "trip", "--metadata"]),
        plain(&["show", "trip", "--metadata", "--json"]),
        plain(&["show", "trip", "--context"]),
        plain(&["show", "trip", "--context", "--json"]),
        plain(&["show", "nowhere"]),
        plain(&["show", "nowhere", "--metadata"]),
        plain(&["show", "no/id"]),
        plain(&["run", "trip", "--message", "Zähle: eins zwei", "--run", "r3", "--runner", "demo", "--pace-ms", "0"]),
        plain(&["run", "trip", "--message", "Und?", "--run", "r4", "--json", "--pace-ms", "0"]),
        plain(&["run", "trip", "--message", "Und?", "--run", "r3"]),
        plain(&["run", "trip", "--message", "Und?", "--runner", "nobody"]),
        plain(&["run", "nowhere", "--message", "Und?"]),
        plain(&["run", "trip", "--message", ""]),
        plain(&["show", "trip"]),
        plain(&["show", "trip", "--json"]),
        plain(&["ls"]),
        plain(&["ls", "--json"]),
        plain(&["check", "nowhere"]),
        plain(&["check", "no/id"]),
    ]
}

#[test]
fn each_command_says_through_a_server_what_it_says_on_a_directory() {
    let mut host = quick_host();
    let (direct, through) = (Data::nowhere(), Through::new(&host));
    let mut differing = Vec::new();
    // Until there is a directory, nobody can read one; a server always has one.
    direct.must(&["new", "--id", "first"]);
    assert_eq!(said(&through, &["new", "--id", "first"], &[]).code, Some(0));
    for (args, input) in commands() {
        let (on_directory, on_server) = (direct.give(args, &input), through.give(args, &input));
        let words = format!("on the directory: {}on the server: {}", on_directory.stderr, on_server.stderr);
        let (on_directory, on_server) = (Said::of(&on_directory), Said::of(&on_server));
        if on_directory != on_server {
            differing.push(format!("{args:?}\n{on_directory:#?}\n{on_server:#?}\n{words}"));
        }
    }
    host.stop();
    assert!(differing.is_empty(), "{}", differing.join("\n"));
}

const READERS: &[&[&str]] = &[
    &["ls"],
    &["ls", "--json"],
    &["show", "trip"],
    &["show", "trip", "--json"],
    &["show", "trip", "--metadata"],
    &["show", "trip", "--metadata", "--json"],
    &["show", "trip", "--context"],
    &["tail", "trip", "r1"],
    &["tail", "trip", "r2", "--after", "1"],
    &["tail", "trip", "r1", "--follow"],
    &["tail", "trip", "r3", "--follow"],
];

#[test]
fn what_is_read_through_a_server_is_read_from_its_directory_to_the_byte() {
    let mut host = quick_host();
    let through = Through::new(&host);
    for (args, input) in commands() {
        through.give(args, &input);
    }
    let answers: Vec<Ended> = READERS.iter().map(|args| through.give(args, &[])).collect();
    // The directory can also be read beside the server.
    let beside: Vec<Ended> = READERS.iter().map(|args| host.data.ask(args)).collect();
    let looked = said(&through, &["check"], &[]);
    assert_eq!((looked.code, looked.complains), (Some(0), false), "{looked:?}");
    let report: Value =
        serde_json::from_str(&through.give(&["check", "--json"], &[]).lines.concat()).expect("it is JSON");
    host.stop();
    for (args, (answer, beside)) in READERS.iter().zip(answers.iter().zip(&beside)) {
        let direct = host.data.ask(args);
        assert_eq!((answer.code(), &answer.lines), (Some(0), &direct.lines), "{args:?}: {}", answer.stderr);
        assert_eq!((beside.code(), &beside.lines), (Some(0), &direct.lines), "{args:?}: {}", beside.stderr);
    }
    let direct: Value = serde_json::from_str(&host.data.must(&["check", "--json"]).lines.concat()).expect("it is JSON");
    assert_eq!((&report["findings"], &direct["findings"]), (&direct["findings"], &serde_json::json!([])));
    for key in ["sessions", "journals", "events", "journal_bytes"] {
        assert_eq!(report["summary"][key], direct["summary"][key], "{key}");
    }
}

#[test]
fn who_follows_through_a_server_sees_words_as_they_come_and_outlives_its_death() {
    let mut host = Host::start(&["--log", "warn", "--retry-ms", "50"]);
    let through = Through::new(&host);
    assert_eq!(said(&through, &["new", "--id", "trip"], &[]).code, Some(0));
    assert_eq!(said(&through, &["turn", "trip", "--message", "Wohin?", "--run", "r1"], &[]).code, Some(0));
    let url = host.url();
    let follower = through.nowhere.start(&["--server", &url, "tail", "trip", "r1", "--follow"]);
    let mut writer = through.nowhere.start(&["--server", &url, "append", "trip", "r1"]);
    drop(through);
    for (seq, word) in (1..).zip(["Ans ", "Meer, ", "à ", "Sète."]) {
        writer.send(&token(word));
        assert_eq!(writer.next_line(), Some(format!("{{\"seq\":{seq}}}")));
        let line: Value = serde_json::from_str(&follower.next_line().expect("it is told")).expect("it is an event");
        assert_eq!((line["seq"].as_u64(), line["payload"]["text"].as_str()), (Some(seq), Some(word)));
        host.kill();
        host.revive();
    }
    writer.send(DONE);
    let (written, followed) = (writer.end(), follower.end());
    assert_eq!((written.code(), written.lines), (Some(0), vec!["{\"seq\":5}".to_owned()]), "{}", written.stderr);
    assert_eq!((followed.code(), followed.lines.len()), (Some(0), 1), "{}", followed.stderr);
    host.stop();
}

#[test]
fn ctrl_c_stops_a_run_of_the_server_and_keeps_what_had_arrived() {
    let mut host = Host::start(&["--log", "warn", "--pace-ms", "30"]);
    let elsewhere = Data::nowhere();
    let url = host.url();
    assert_eq!(elsewhere.ask(&["--server", &url, "new", "--id", "trip"]).code(), Some(0));
    let run = elsewhere.start(&["--server", &url, "--json", "run", "trip", "--message", "Wohin?", "--run", "r1"]);
    let mut printed: Vec<String> = (0..5).map_while(|_| run.next_line()).collect();
    crate::table::signal(run.id(), Signal::INT);
    let ended = run.end();
    assert_eq!(ended.code(), Some(1), "{}", ended.stderr);
    assert!(ended.stderr.contains("stopped"), "{}", ended.stderr);
    printed.extend(ended.lines);
    host.stop();
    assert_eq!(printed, crate::verdict::journal(&host.data, "trip", "r1"));
    assert_eq!(crate::verdict::names(&printed).last().map(String::as_str), Some("cancel"));
}

#[test]
fn a_run_whose_server_dies_is_followed_to_the_end_that_it_gets() {
    let mut host = Host::start(&["--log", "warn", "--pace-ms", "10"]);
    let elsewhere = Data::nowhere();
    let url = host.url();
    assert_eq!(elsewhere.ask(&["--server", &url, "new", "--id", "trip"]).code(), Some(0));
    let run = elsewhere.start(&["--server", &url, "--json", "run", "trip", "--message", "Wohin?", "--run", "r1"]);
    let mut printed: Vec<String> = (0..20).map_while(|_| run.next_line()).collect();
    host.kill();
    host.revive();
    let revived = Instant::now();
    let ended = run.end();
    assert!(revived.elapsed() < Duration::from_secs(10), "it took {:?}", revived.elapsed());
    assert_eq!(ended.code(), Some(1), "{}", ended.stderr);
    assert!(ended.stderr.contains("interrupted"), "{}", ended.stderr);
    printed.extend(ended.lines);
    host.stop();
    assert_eq!(printed, crate::verdict::journal(&host.data, "trip", "r1"));
}

#[test]
fn nobody_there_is_a_failure_and_what_needs_the_directory_is_refused() {
    let host = Host::on(Data::nowhere(), &[]);
    let through = Through::new(&host);
    for args in [&["ls"][..], &["show", "trip"], &["new"], &["tail", "trip", "r1", "--follow"], &["check"]] {
        let ended = through.give(args, &[]);
        assert_eq!((ended.code(), ended.lines.len()), (Some(4), 0), "{args:?}: {}", ended.stderr);
        assert!(ended.stderr.contains(&host.url()), "{args:?}: {}", ended.stderr);
    }
    for args in [&["repair"][..], &["serve"], &["bench"]] {
        assert_eq!(through.give(args, &[]).code(), Some(2), "{args:?}");
    }
}
