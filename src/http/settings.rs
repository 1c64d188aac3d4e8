//! What somebody says about a server, in a file or on the command line: every value may be missing, the first to say
//! something wins, and what is wrong is said with its name.

use std::net::{SocketAddr, ToSocketAddrs};
use std::path::PathBuf;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::base_path::BasePath;
use super::forwarded::{AddressRange, BadRange};
use super::options::ServerOptions;
use super::token::Tokens;
use crate::limits::LEASE_SECONDS_MAX;
use crate::storage::Durability;

/// A value that cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BadSetting {
    /// The text is no TOML, or says something that nobody understands.
    #[error("{reason}")]
    Unreadable {
        /// What the reader said, and where.
        reason: String,
    },
    /// A value is none that can be used.
    #[error("{name} is {value}: {rule}")]
    Value {
        /// Its name.
        name: &'static str,
        /// What was said.
        value: String,
        /// What can be said.
        rule: String,
    },
}

/// How lasting an append is before it is acknowledged, unless it says otherwise.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Lasting {
    /// It survives the death of the server.
    Buffered,
    /// It survives a power cut.
    Durable,
}

impl From<Lasting> for Durability {
    fn from(lasting: Lasting) -> Self {
        match lasting {
            Lasting::Buffered => Durability::Buffered,
            Lasting::Durable => Durability::Durable,
        }
    }
}

/// The form of a log line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum LogForm {
    /// For people.
    Text,
    /// For programs.
    Json,
}

/// What is said about a server: the table `[server]` of the configuration.
#[derive(Debug, Clone, Default, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct ServerSettings {
    /// Where it listens, `address:port`.
    pub listen: Option<String>,
    /// How lasting an append is unless it says so itself.
    pub durability: Option<Lasting>,
    /// The file of its tokens.
    pub token_file: Option<PathBuf>,
    /// The path under which a proxy offers it.
    pub base_path: Option<String>,
    /// Names by which it may be called.
    pub allow_hosts: Option<Vec<String>>,
    /// Origins of pages that may use it.
    pub allow_origins: Option<Vec<String>>,
    /// Bytes of a request's body.
    pub body_bytes_max: Option<u64>,
    /// Bytes of all requests' bodies in memory.
    pub bodies_bytes_max: Option<u64>,
    /// Connections at the same time.
    pub connections_max: Option<u64>,
    /// Connections of one address at the same time.
    pub connections_per_address_max: Option<u64>,
    /// Proxies whose word is taken on who their clients are: addresses, or ranges of them.
    pub trust_forwarded_for: Option<Vec<String>>,
    /// How long an outside producer counts as alive.
    pub lease_seconds: Option<f64>,
    /// How often a silent stream says that it is there.
    pub heartbeat_seconds: Option<f64>,
    /// How long a reader waits before it connects again.
    pub retry_ms: Option<u64>,
    /// How long a reader that asks to wait is kept waiting.
    pub long_poll_timeout_ms: Option<u64>,
    /// How long the head of a request may take.
    pub head_timeout_seconds: Option<f64>,
    /// How long its body may take.
    pub body_timeout_seconds: Option<f64>,
    /// How long a reader may take nothing.
    pub write_timeout_seconds: Option<f64>,
    /// How long runs may take to end when the server ends.
    pub drain_seconds: Option<f64>,
    /// What is logged: a level, or filters.
    pub log: Option<String>,
    /// In which form.
    pub log_form: Option<LogForm>,
}

/// The part of a configuration file that is about a server.
#[derive(Debug, Default, Deserialize)]
struct File {
    #[serde(default)]
    server: ServerSettings,
}

impl ServerSettings {
    /// Reads the table `[server]` of a configuration; nothing is said where there is none.
    pub fn parse(text: &str) -> Result<Self, BadSetting> {
        let file: File = toml::from_str(text).map_err(|cause| {
            let line = cause.span().map(|span| text[..span.start.min(text.len())].matches('\n').count() + 1);
            let place = line.map(|line| format!("line {line}: ")).unwrap_or_default();
            BadSetting::Unreadable { reason: format!("{place}{}", cause.message()) }
        })?;
        Ok(file.server)
    }

    /// These, and where they say nothing, others.
    pub fn or(self, other: ServerSettings) -> Self {
        ServerSettings {
            listen: self.listen.or(other.listen),
            durability: self.durability.or(other.durability),
            token_file: self.token_file.or(other.token_file),
            base_path: self.base_path.or(other.base_path),
            allow_hosts: self.allow_hosts.or(other.allow_hosts),
            allow_origins: self.allow_origins.or(other.allow_origins),
            body_bytes_max: self.body_bytes_max.or(other.body_bytes_max),
            bodies_bytes_max: self.bodies_bytes_max.or(other.bodies_bytes_max),
            connections_max: self.connections_max.or(other.connections_max),
            connections_per_address_max: self.connections_per_address_max.or(other.connections_per_address_max),
            trust_forwarded_for: self.trust_forwarded_for.or(other.trust_forwarded_for),
            lease_seconds: self.lease_seconds.or(other.lease_seconds),
            heartbeat_seconds: self.heartbeat_seconds.or(other.heartbeat_seconds),
            retry_ms: self.retry_ms.or(other.retry_ms),
            long_poll_timeout_ms: self.long_poll_timeout_ms.or(other.long_poll_timeout_ms),
            head_timeout_seconds: self.head_timeout_seconds.or(other.head_timeout_seconds),
            body_timeout_seconds: self.body_timeout_seconds.or(other.body_timeout_seconds),
            write_timeout_seconds: self.write_timeout_seconds.or(other.write_timeout_seconds),
            drain_seconds: self.drain_seconds.or(other.drain_seconds),
            log: self.log.or(other.log),
            log_form: self.log_form.or(other.log_form),
        }
    }

    /// What a server does about which nothing is said.
    pub fn usual() -> Self {
        let usual = ServerOptions::default();
        let seconds = |time: Duration| Some(time.as_secs_f64());
        let millis = |time: Duration| Some(time.as_millis() as u64);
        ServerSettings {
            listen: Some(usual.listen.to_string()),
            durability: Some(Lasting::Buffered),
            token_file: None,
            base_path: Some(String::new()),
            allow_hosts: Some(Vec::new()),
            allow_origins: Some(Vec::new()),
            body_bytes_max: Some(usual.body_bytes_max as u64),
            bodies_bytes_max: Some(usual.bodies_bytes_max as u64),
            connections_max: Some(usual.connections_max as u64),
            connections_per_address_max: None,
            trust_forwarded_for: Some(Vec::new()),
            lease_seconds: seconds(usual.lease),
            heartbeat_seconds: seconds(usual.heartbeat),
            retry_ms: millis(usual.retry),
            long_poll_timeout_ms: millis(usual.long_poll),
            head_timeout_seconds: seconds(usual.head_timeout),
            body_timeout_seconds: seconds(usual.body_timeout),
            write_timeout_seconds: seconds(usual.write_timeout),
            drain_seconds: seconds(usual.drain),
            log: Some("info".to_owned()),
            log_form: Some(LogForm::Text),
        }
    }

    /// The options that are meant, for a data directory and with these tokens.
    pub fn options(&self, data: PathBuf, tokens: Tokens) -> Result<ServerOptions, BadSetting> {
        let all = self.clone().or(Self::usual());
        let body_bytes_max = count("body_bytes_max", all.body_bytes_max, 1024..=1 << 30)?;
        Ok(ServerOptions {
            data,
            listen: address(all.listen.as_deref().unwrap_or_default())?,
            tokens,
            base_path: base_path(&all.base_path.unwrap_or_default())?,
            hosts: hosts(all.allow_hosts.unwrap_or_default())?,
            origins: origins(all.allow_origins.unwrap_or_default())?,
            body_bytes_max,
            bodies_bytes_max: bodies(all.bodies_bytes_max.unwrap_or_default(), body_bytes_max)?,
            connections_max: count("connections_max", all.connections_max, 1..=1_000_000)?,
            connections_per_address_max: of_address(all.connections_per_address_max)?,
            trusted_proxies: proxies(&all.trust_forwarded_for.unwrap_or_default())?,
            reader_files_max: ServerOptions::default().reader_files_max,
            lease: time("lease_seconds", all.lease_seconds, 1.0..=LEASE_SECONDS_MAX)?,
            heartbeat: time("heartbeat_seconds", all.heartbeat_seconds, 0.05..=3600.0)?,
            retry: millis("retry_ms", all.retry_ms, 0..=3_600_000)?,
            long_poll: millis("long_poll_timeout_ms", all.long_poll_timeout_ms, 0..=600_000)?,
            head_timeout: time("head_timeout_seconds", all.head_timeout_seconds, 0.1..=3600.0)?,
            body_timeout: time("body_timeout_seconds", all.body_timeout_seconds, 0.1..=86_400.0)?,
            write_timeout: time("write_timeout_seconds", all.write_timeout_seconds, 0.1..=86_400.0)?,
            drain: time("drain_seconds", all.drain_seconds, 0.0..=86_400.0)?,
        })
    }
}

fn bad(name: &'static str, value: impl ToString, rule: impl Into<String>) -> BadSetting {
    BadSetting::Value { name, value: value.to_string(), rule: rule.into() }
}

fn address(text: &str) -> Result<SocketAddr, BadSetting> {
    let resolved = text.to_socket_addrs().ok().and_then(|mut addresses| addresses.next());
    resolved.ok_or_else(|| bad("listen", format!("{text:?}"), "give an address and a port, like 127.0.0.1:4437"))
}

fn base_path(text: &str) -> Result<BasePath, BadSetting> {
    BasePath::parse(text).map_err(|rule| bad("base_path", format!("{text:?}"), rule.to_string()))
}

fn hosts(given: Vec<String>) -> Result<Vec<String>, BadSetting> {
    let is_name = |name: &str| !name.is_empty() && !name.contains([':', '/', ' ', '*']);
    match given.iter().find(|name| !is_name(name)) {
        Some(wrong) => {
            Err(bad("allow_hosts", format!("{wrong:?}"), "give names without a port, like chat.example.org"))
        }
        None => Ok(given),
    }
}

fn origins(given: Vec<String>) -> Result<Vec<String>, BadSetting> {
    let is_origin = |text: &str| {
        let host = text.strip_prefix("http://").or_else(|| text.strip_prefix("https://"));
        let is_usual_port = (text.starts_with("http:") && text.ends_with(":80"))
            || (text.starts_with("https:") && text.ends_with(":443"));
        host.is_some_and(|host| !host.is_empty() && !host.contains(['/', ' ', '*'])) && !is_usual_port
    };
    match given.iter().find(|origin| !is_origin(origin)) {
        Some(wrong) => Err(bad(
            "allow_origins",
            format!("{wrong:?}"),
            "give origins as browsers do, like https://chat.example.org",
        )),
        None => Ok(given),
    }
}

fn count(name: &'static str, given: Option<u64>, range: std::ops::RangeInclusive<u64>) -> Result<usize, BadSetting> {
    let given = given.unwrap_or_default();
    let rule = || format!("give a number from {} to {}", range.start(), range.end());
    let fits = usize::try_from(given).ok().filter(|_| range.contains(&given));
    fits.ok_or_else(|| bad(name, given, rule()))
}

/// The bound on all bodies. One body always fits.
fn bodies(given: u64, body_bytes_max: usize) -> Result<usize, BadSetting> {
    let rule = || format!("give at least {body_bytes_max}, which is body_bytes_max, so that one body fits");
    let fits = usize::try_from(given).ok().filter(|given| *given >= body_bytes_max);
    fits.ok_or_else(|| bad("bodies_bytes_max", given, rule()))
}

fn of_address(given: Option<u64>) -> Result<Option<usize>, BadSetting> {
    given.map(|given| count("connections_per_address_max", Some(given), 1..=1_000_000)).transpose()
}

fn proxies(given: &[String]) -> Result<Vec<AddressRange>, BadSetting> {
    let range = |text: &String| {
        text.parse().map_err(|why: BadRange| bad("trust_forwarded_for", format!("{text:?}"), why.to_string()))
    };
    given.iter().map(range).collect()
}

fn time(name: &'static str, given: Option<f64>, range: std::ops::RangeInclusive<f64>) -> Result<Duration, BadSetting> {
    let given = given.unwrap_or_default();
    match range.contains(&given) {
        true => Ok(Duration::from_secs_f64(given)),
        false => Err(bad(name, given, format!("give seconds from {} to {}", range.start(), range.end()))),
    }
}

fn millis(
    name: &'static str,
    given: Option<u64>,
    range: std::ops::RangeInclusive<u64>,
) -> Result<Duration, BadSetting> {
    count(name, given, range).map(|millis| Duration::from_millis(millis as u64))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(text: &str) -> String {
        let settings = ServerSettings::parse(text);
        let options = settings.and_then(|settings| settings.options(PathBuf::new(), Tokens::default()));
        options.unwrap_err().to_string()
    }

    #[test]
    fn the_first_to_say_something_wins() {
        let flags = ServerSettings { retry_ms: Some(1), ..ServerSettings::default() };
        let file =
            ServerSettings::parse("[server]\nretry_ms = 2\nlease_seconds = 3\n[runners.a]\nkind = \"demo\"").unwrap();
        let options = flags.or(file).options(PathBuf::new(), Tokens::default()).unwrap();
        assert_eq!((options.retry, options.lease), (Duration::from_millis(1), Duration::from_secs(3)));
        assert_eq!(options.listen.to_string(), "127.0.0.1:4437");
    }

    #[test]
    fn what_cannot_be_used_is_refused_with_its_name() {
        for (text, words) in [
            ("[server]\nlisten = \"nowhere\"", "listen is \"nowhere\""),
            ("[server]\nlistn = \"x\"", "line 2: "),
            ("[server]\nlease_seconds = 0", "lease_seconds is 0"),
            ("[server]\nconnections_max = 0", "connections_max is 0"),
            ("[server]\nbodies_bytes_max = 33554431", "bodies_bytes_max is 33554431: give at least 33554432"),
            ("[server]\nconnections_per_address_max = 0", "connections_per_address_max is 0"),
            ("[server]\ntrust_forwarded_for = [\"proxy\"]", "trust_forwarded_for is \"proxy\""),
            ("[server]\ntrust_forwarded_for = [\"::/0\"]", "trust_forwarded_for is \"::/0\""),
            ("[server]\nallow_origins = [\"*\"]", "allow_origins is \"*\""),
            ("[server]\nallow_origins = [\"https://a.b:443\"]", "allow_origins is \"https://a.b:443\""),
            ("[server]\nbase_path = \"/a/../b\"", "base_path is \"/a/../b\""),
            ("[server]\nallow_hosts = [\"a.b:80\"]", "allow_hosts is \"a.b:80\""),
            ("[server]\nheartbeat_seconds = nan", "heartbeat_seconds is NaN"),
        ] {
            let refusal = refused(text);
            assert!(refusal.contains(words), "{refusal}");
        }
    }
}
