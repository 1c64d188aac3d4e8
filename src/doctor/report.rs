//! What an examination of a whole directory gave, the worst first.

use serde_json::value::RawValue;

use super::finding::{Finding, Severity};
use super::ward::{Examined, Untold};
use crate::limits::DOCTOR_FINDINGS_MAX;
use crate::model::Object;

/// Numbers for people.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Summary {
    /// Sessions that were looked at.
    pub sessions: u64,
    /// Journals that were read.
    pub journals: u64,
    /// Bytes of those journals.
    pub journal_bytes: u64,
    /// Events in them.
    pub events: u64,
    /// Findings of the worst kind.
    pub damage: u64,
    /// Findings that stay until they are repaired.
    pub warning: u64,
    /// Findings that are worth knowing.
    pub info: u64,
    /// Findings that were only counted, because there are so many.
    pub untold: u64,
    /// Whether a writer was at work meanwhile.
    pub is_live: bool,
}

impl Summary {
    /// As `check --json` prints it.
    pub fn to_json(&self) -> String {
        let mut json = Object::default();
        let numbers = [
            ("sessions", self.sessions),
            ("journals", self.journals),
            ("journal_bytes", self.journal_bytes),
            ("events", self.events),
            ("damage", self.damage),
            ("warning", self.warning),
            ("info", self.info),
            ("untold", self.untold),
        ];
        numbers.iter().for_each(|(key, number)| json.set(key, number.to_string()));
        json.set("live_writer", if self.is_live { "true" } else { "false" });
        json.to_json()
    }

    fn from_json(json: &str) -> Option<Self> {
        let json = Object::parse(json)?;
        let number = |key: &str| json.get(key)?.parse().ok();
        Some(Summary {
            sessions: number("sessions")?,
            journals: number("journals")?,
            journal_bytes: number("journal_bytes")?,
            events: number("events")?,
            damage: number("damage")?,
            warning: number("warning")?,
            info: number("info")?,
            untold: number("untold")?,
            is_live: json.is_true("live_writer"),
        })
    }
}

/// What an examination gave.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Report {
    /// The findings, the worst first, those of a session and a file together.
    pub findings: Vec<Finding>,
    /// Numbers for people.
    pub summary: Summary,
}

impl Report {
    pub(super) fn add(&mut self, examined: Examined) {
        let summary = &mut self.summary;
        summary.journals += examined.journals;
        summary.journal_bytes += examined.bytes;
        summary.events += examined.events;
        let Untold { damage, warning, info } = examined.untold;
        summary.untold += damage + warning + info;
        summary.damage += damage;
        summary.warning += warning;
        summary.info += info;
        for finding in examined.findings {
            self.tell(finding);
        }
    }

    pub(super) fn tell(&mut self, finding: Finding) {
        match finding.severity {
            Severity::Damage => self.summary.damage += 1,
            Severity::Warning => self.summary.warning += 1,
            Severity::Info => self.summary.info += 1,
        }
        match self.findings.len() < DOCTOR_FINDINGS_MAX {
            true => self.findings.push(finding),
            false => self.summary.untold += 1,
        }
    }

    pub(super) fn sort(&mut self) {
        self.findings.sort_by(|a, b| {
            let key =
                |finding: &Finding| (finding.severity, finding.session.clone(), finding.file.clone(), finding.offset);
            key(a).cmp(&key(b))
        });
    }

    /// Whether anything is worse than worth knowing.
    pub fn is_bad(&self) -> bool {
        self.summary.damage + self.summary.warning > 0
    }

    /// As `check --json` prints it.
    pub fn to_json(&self) -> String {
        let findings: Vec<String> = self.findings.iter().map(Finding::to_json).collect();
        format!("{{\"findings\":[{}],\"summary\":{}}}", findings.join(","), self.summary.to_json())
    }

    /// A report that somebody else made, in the same words; nothing if it is none, or a newer program's.
    pub fn from_json(json: &str) -> Option<Self> {
        let report = Object::parse(json)?;
        let findings: Vec<&RawValue> = serde_json::from_str(report.get("findings")?).ok()?;
        let findings = findings.into_iter().map(|finding| Finding::from_json(finding.get())).collect::<Option<_>>()?;
        Some(Report { findings, summary: Summary::from_json(report.get("summary")?)? })
    }
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::*;
    use crate::doctor::Code;
    use crate::model::{RunId, SessionId};

    #[test]
    fn a_report_is_read_as_it_was_written() {
        let (session, run) = (SessionId::parse("s").unwrap(), RunId::parse("r").unwrap());
        let torn = Finding::new(Code::TornTail, Severity::Damage, PathBuf::from("a/b.jsonl"));
        let loose = Finding::new(Code::StaleTemp, Severity::Info, PathBuf::from("x"));
        let mut report = Report::default();
        report.tell(torn.of_run(&session, &run).at(7).says("it is \"torn\"", "it is cut"));
        report.tell(loose.leaves("somebody was here", "it may be needed"));
        report.summary.is_live = true;
        report.summary.journal_bytes = u64::MAX;
        assert_eq!(Report::from_json(&report.to_json()), Some(report));
        for odd in ["", "{}", r#"{"findings":[{}],"summary":{}}"#] {
            assert_eq!(Report::from_json(odd), None);
        }
    }
}
