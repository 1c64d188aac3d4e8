//! Which sessions of the list are wanted, told from what the listing knows of them and nothing else.

use std::sync::LazyLock;

use memchr::memmem::Finder;

use super::Entry;
use crate::model::Summary;

/// Which sessions of a list are wanted. Without any wish, all are.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ListFilter {
    /// Only those whose title, as it is listed, has this in it, whatever the case of its letters.
    pub title: Option<String>,
    /// Only those that are archived, or only those that are not.
    pub archived: Option<bool>,
}

impl ListFilter {
    /// Whether all sessions are wanted.
    pub fn wants_all(&self) -> bool {
        self.title.is_none() && self.archived.is_none()
    }

    /// Whether a session is wanted. Of one that cannot be read only its id is known: no title, and not that it is archived.
    pub fn wants(&self, entry: &Entry) -> bool {
        Sieve::new(self).lets_through(entry)
    }
}

/// A filter, ready to be asked often.
#[derive(Debug)]
pub(super) struct Sieve {
    title: Option<Finder<'static>>,
    archived: Option<bool>,
    /// Room for a title.
    room: String,
}

impl Sieve {
    pub(super) fn new(filter: &ListFilter) -> Self {
        let finder = |title: &String| {
            let mut lowered = String::new();
            lower(title, &mut lowered);
            Finder::new(&lowered).into_owned()
        };
        Sieve { title: filter.title.as_ref().map(finder), archived: filter.archived, room: String::new() }
    }

    pub(super) fn lets_through(&mut self, entry: &Entry) -> bool {
        match &entry.summary {
            Ok(summary) => self.fits_archived(summary) && self.fits_title(summary),
            Err(_) => self.title.is_none() && self.archived != Some(true),
        }
    }

    fn fits_archived(&self, summary: &Summary) -> bool {
        self.archived.is_none_or(|archived| archived == summary.is_archived())
    }

    fn fits_title(&mut self, summary: &Summary) -> bool {
        let Some(wanted) = &self.title else { return true };
        lower(&summary.listed_title(), &mut self.room);
        wanted.find(self.room.as_bytes()).is_some()
    }
}

/// The text in lowercase, letter by letter: what a letter becomes does not depend on those beside it, so that part of a
/// text stays part of it. So the sigma at the end of a word is one like any other.
fn lower(text: &str, out: &mut String) {
    out.clear();
    if text.is_ascii() {
        out.push_str(text);
        return out.make_ascii_lowercase();
    }
    let known = &**LOWERED;
    for letter in text.chars() {
        match known.get(letter as usize) {
            Some(Some(lowered)) => out.push(*lowered),
            _ => out.extend(letter.to_lowercase()),
        }
    }
}

/// The letters of most alphabets that have two cases, and what they become where that is one letter. Looking for it in
/// all of Unicode would cost several times as much as the rest of a search.
static LOWERED: LazyLock<Vec<Option<char>>> = LazyLock::new(|| {
    let lowered = |letter: char| match (letter, letter.to_lowercase()) {
        ('ς', _) => Some('σ'),
        (_, mut lowered) => lowered.next().filter(|_| lowered.next().is_none()),
    };
    ('\0'..'\u{600}').map(lowered).collect()
});

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{Object, Revision, SessionId};

    fn titled(title: &str) -> Entry {
        let mut noted = Object::default();
        noted.set_text("title", title);
        let id = SessionId::parse("s").unwrap();
        Entry::of(Summary::restore(id, Revision::new("1"), 0.0, &noted.to_json()))
    }

    #[test]
    fn each_letter_becomes_what_unicode_says() {
        for letter in '\0'..=char::MAX {
            let mut lowered = String::new();
            lower(&format!("é{letter}"), &mut lowered);
            let expected: String =
                letter.to_lowercase().map(|letter| if letter == 'ς' { 'σ' } else { letter }).collect();
            assert_eq!(lowered.strip_prefix('é'), Some(&*expected), "{letter:?}");
        }
    }

    #[test]
    fn a_title_is_found_whatever_the_case_of_its_letters() {
        let finds = |title: &str, wanted: &str| {
            let filter = ListFilter { title: Some(wanted.to_owned()), ..ListFilter::default() };
            filter.wants(&titled(title))
        };
        for (title, wanted) in [
            ("Plan a Trip", "a tRIP"),
            ("ÜBER das Meer", "über"),
            ("über das Meer", "ÜBER D"),
            ("Ещё ОДИН", "один"),
            ("ΟΔΥΣΣΕΥΣ", "οδυσσευς"),
            ("οδυσσευς", "ΟΔΥΣ"),
            ("οδος μου", "ΟΔΟΣ"),
            ("İstanbul", "i\u{307}stan"),
            ("日本語の話", "語の"),
            ("say \"hi\"\n\\", "\"HI\"\n\\"),
            ("🦀 Rust", "🦀 r"),
            ("anything", ""),
            ("", ""),
        ] {
            assert!(finds(title, wanted), "{title:?} has {wanted:?}");
        }
        for (title, wanted) in [("Plan", "plans"), ("", "a"), ("Meer", "mehr"), ("a b", "ab"), ("x\"title\":\"y", "z")]
        {
            assert!(!finds(title, wanted), "{title:?} has no {wanted:?}");
        }
    }
}
