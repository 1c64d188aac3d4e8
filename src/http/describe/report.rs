//! The doctor's report.

use super::shape::{count, flag, list, one, text, words};
use crate::doctor::{Code, Severity};

objects! {
    /// What an examination of the data directory found.
    open CheckReport {
        /// The worst first.
        must "findings": list(one::<Finding>()),
        must "summary": one::<CheckSummary>(),
    }

    /// Something that is not as it should be.
    open Finding {
        must "code": one::<FindingCode>(),
        must "severity": one::<FindingSeverity>(),
        must "session": text().or_null(),
        must "run": text().or_null(),
        /// From the data directory on.
        must "file": text(),
        /// The first byte of the damaged line.
        must "offset": count().or_null(),
        /// What it means for the user.
        must "message": text(),
        /// What a repair would do, or why it would do nothing.
        must "repair": text(),
    }

    /// Numbers of an examination.
    open CheckSummary {
        must "sessions": count(),
        must "journals": count(),
        must "journal_bytes": count(),
        must "events": count(),
        must "damage": count(),
        must "warning": count(),
        must "info": count(),
        /// Findings that were only counted, because there are too many of them.
        must "untold": count(),
        /// Whether a writer was at work meanwhile.
        must "live_writer": flag(),
    }
}

named! {
    /// What a finding is about.
    FindingCode => words(Code::ALL.iter().map(|code| code.as_str()));

    /// Something is lost; something stays wrong until it is repaired; worth knowing.
    FindingSeverity => words([Severity::Damage, Severity::Warning, Severity::Info].map(Severity::as_str));
}
