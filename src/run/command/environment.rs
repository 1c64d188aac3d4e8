//! Which variables of this process's environment a command is given: a few that every program needs, and those that its
//! configuration names. No other: the environment of a server may hold keys.

use std::ffi::{OsStr, OsString};

/// Names and prefixes of one runner.
const ENTRIES_MAX: usize = 256;

/// Characters of one of them.
const ENTRY_CHARS_MAX: usize = 256;

/// What every command is given, if this process has it. A name that ends with `*` is a prefix.
const ALWAYS: &[&str] = &["PATH", "HOME", "LANG", "LANGUAGE", "LC_*"];

/// What no program on Windows starts without, or finds others without.
#[cfg(windows)]
const OF_THE_SYSTEM: &[&str] = &["SYSTEMROOT", "PATHEXT"];
#[cfg(not(windows))]
const OF_THE_SYSTEM: &[&str] = &[];

/// The variables that a command inherits beside `PATH`, `HOME` and the locale (`LANG`, `LANGUAGE`, `LC_*`): names, and
/// prefixes that end with `*`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct InheritEnv(Vec<String>);

/// Entries that name no variables.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BadInherit {
    /// One of them is not a name or a prefix.
    #[error(
        "{0:?} names no variables: write a name (`SSL_CERT_FILE`), or the beginning of names and one `*` (`AWS_*`)"
    )]
    Entry(String),
    /// One of them names all variables.
    #[error(
        "\"*\" would hand over the whole environment, with all keys in it: name the variables that the command needs"
    )]
    Everything,
    /// There are too many.
    #[error("it has {0} entries, and at most {ENTRIES_MAX} are taken: use prefixes")]
    TooMany(usize),
}

impl InheritEnv {
    /// Variables by name or prefix.
    pub fn of<S: Into<String>>(entries: impl IntoIterator<Item = S>) -> Result<Self, BadInherit> {
        let entries: Vec<String> = entries.into_iter().map(Into::into).collect();
        match entries.iter().find(|entry| !is_entry(entry)) {
            _ if entries.len() > ENTRIES_MAX => Err(BadInherit::TooMany(entries.len())),
            Some(entry) if entry == "*" => Err(BadInherit::Everything),
            Some(entry) => Err(BadInherit::Entry(entry.chars().take(ENTRY_CHARS_MAX).collect())),
            None => Ok(InheritEnv(entries)),
        }
    }

    /// The variables of this process that a command is given.
    pub(super) fn inherited(&self) -> Vec<(OsString, OsString)> {
        std::env::vars_os().filter(|(name, _)| self.admits(name)).collect()
    }

    /// A name that is not text is only admitted by its beginning, if that is.
    fn admits(&self, name: &OsStr) -> bool {
        let name = name.to_string_lossy();
        let built_in = ALWAYS.iter().chain(OF_THE_SYSTEM).copied();
        built_in.chain(self.0.iter().map(String::as_str)).any(|entry| names(entry, &name))
    }
}

/// Whether an entry of a list names this variable. Windows does not tell upper from lower case.
fn names(entry: &str, name: &str) -> bool {
    let is_same = |a: &str, b: &str| if cfg!(windows) { a.eq_ignore_ascii_case(b) } else { a == b };
    match entry.strip_suffix('*') {
        Some(prefix) => name.get(..prefix.len()).is_some_and(|beginning| is_same(beginning, prefix)),
        None => is_same(entry, name),
    }
}

fn is_entry(entry: &str) -> bool {
    let name = entry.strip_suffix('*').unwrap_or(entry);
    let is_odd = |c: char| c == '=' || c == '*' || c.is_control() || c.is_whitespace();
    !name.is_empty() && name.chars().count() <= ENTRY_CHARS_MAX && !name.contains(is_odd)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(entries: &[&str], admitted: &[&str], refused: &[&str]) {
        let inherit = InheritEnv::of(entries.iter().copied()).unwrap();
        for (names, is_admitted) in [(admitted, true), (refused, false)] {
            for name in names {
                assert_eq!(inherit.admits(OsStr::new(name)), is_admitted, "{name} with {entries:?}");
            }
        }
    }

    #[test]
    fn a_command_is_given_what_programs_need_and_what_is_named() {
        let always = ["PATH", "HOME", "LANG", "LANGUAGE", "LC_ALL", "LC_CTYPE"];
        let never = ["OPENAI_API_KEY", "LASTWORD_TOKEN", "USER", "PATHS", "XPATH", "HOMES", "LC", "AWS", ""];
        check(&[], &always, &never);
        check(&["USER", "AWS_*"], &[&always[..], &["USER", "AWS_REGION", "AWS_"]].concat(), &never[..2]);
        check(&["AWS_*"], &[], &["USER", "AWS", "XAWS_REGION", "AWSX"]);
    }

    #[test]
    fn an_entry_that_names_no_variables_is_refused() {
        for entry in ["", "A=B", "A*B", "**", "A B", "A\n", &"x".repeat(257)] {
            assert!(matches!(InheritEnv::of([entry]), Err(BadInherit::Entry(_))), "{entry:?}");
        }
        assert_eq!(InheritEnv::of(["PATH", "*"]), Err(BadInherit::Everything));
        assert_eq!(InheritEnv::of(vec!["A"; 257]), Err(BadInherit::TooMany(257)));
        assert!(InheritEnv::of(["A", "a.b", "\u{e9}*"]).is_ok());
    }
}
