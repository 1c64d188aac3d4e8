//! A run on a terminal: the answer on stdout, exactly; thoughts, tools and what happens around it on stderr.

use std::io::{self, IsTerminal, Write};

use lastword::model::{Object, is_truthy};

use super::output::plain;

/// Where a run is shown.
#[derive(Debug)]
pub(super) struct Screen {
    /// Whether both streams end up on the same terminal, so that they have to make room for each other.
    is_shared: bool,
    is_colourful: bool,
    /// Whether the last line of the answer has no end yet.
    is_mid_answer: bool,
    /// Whether the last line beside the answer has no end yet.
    is_mid_aside: bool,
    has_reader: bool,
}

impl Default for Screen {
    fn default() -> Self {
        let is_colourful = io::stderr().is_terminal();
        Screen {
            is_shared: is_colourful && io::stdout().is_terminal(),
            is_colourful,
            is_mid_answer: false,
            is_mid_aside: false,
            has_reader: true,
        }
    }
}

impl Screen {
    /// Shows an event, if it is one for people.
    pub(super) fn show(&mut self, name: &str, payload: &str) {
        let payload = Object::parse(payload).unwrap_or_default();
        let text = |key: &str| plain(&payload.text(key).unwrap_or_default());
        match name {
            "token" => self.answer(&text("text")),
            "interim_assistant" if payload.get("already_streamed").is_some_and(is_truthy) => {}
            "interim_assistant" => self.answer(&format!("{}\n\n", text("text"))),
            "reasoning" => self.aside(&text("text")),
            "tool" => self.note(&format!("[{}: {}]", text("name"), text("preview"))),
            "tool_complete" => self.note(&format!("[{} answered: {}]", text("name"), text("preview"))),
            "attempt_end" => {
                let (attempt, pause) = (payload.get("attempt"), payload.get("retry_in_seconds"));
                let (attempt, pause) = (attempt.unwrap_or("?"), pause.unwrap_or("0"));
                let why = (text("type"), text("close_reason"));
                self.note(&format!("[attempt {attempt} failed ({}, {}); trying again in {pause} s]", why.0, why.1));
            }
            _ => {}
        }
    }

    /// A part of the answer. Whoever stopped reading gets no more of it.
    pub(super) fn answer(&mut self, text: &str) {
        if std::mem::take(&mut self.is_mid_aside) {
            let _ = writeln!(io::stderr());
        }
        self.write(text);
    }

    fn write(&mut self, text: &str) {
        let mut out = io::stdout().lock();
        if self.has_reader && out.write_all(text.as_bytes()).and_then(|()| out.flush()).is_err() {
            self.has_reader = false;
        }
        self.is_mid_answer = if text.is_empty() { self.is_mid_answer } else { !text.ends_with('\n') };
    }

    /// Something beside the answer, word by word.
    fn aside(&mut self, text: &str) {
        if self.is_shared && self.is_mid_answer {
            self.write("\n");
        }
        let _ = match self.is_colourful {
            true => write!(io::stderr(), "\x1b[2m{text}\x1b[0m"),
            false => write!(io::stderr(), "{text}"),
        };
        self.is_mid_aside = !text.ends_with('\n');
    }

    /// A line about what happens.
    fn note(&mut self, line: &str) {
        if std::mem::take(&mut self.is_mid_aside) {
            let _ = writeln!(io::stderr());
        }
        self.aside(&format!("{line}\n"));
    }

    /// What a command printed on stderr.
    pub(super) fn complaint(&mut self, text: &str) {
        self.note(plain(text).trim_end());
    }

    /// The end: every line is ended.
    pub(super) fn end(&mut self) {
        self.answer("");
        if self.is_mid_answer {
            self.write("\n");
        }
    }
}
