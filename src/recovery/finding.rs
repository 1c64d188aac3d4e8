//! What a marker says of an answer, from what is known of its run.

use super::evidence::Evidence;
use crate::model::marker::{Finding, failed_marker, interrupted_marker, stopped_marker};
use crate::model::{Row, RunEnd, trim};

/// What is to be said of a run that no event of ours has ended.
pub(super) fn finding_of(evidence: &Evidence) -> Finding {
    let is_crash = evidence.ending == Some(RunEnd::InterruptedByCrash);
    let failure = evidence
        .failure
        .as_ref()
        .filter(|_| !is_crash)
        .map(|failure| trim(&failure.message))
        .filter(|words| !words.is_empty());
    match (evidence.ending, evidence.has_output()) {
        (Some(RunEnd::InterruptedByUser), true) => Finding::StoppedRecovered,
        (Some(RunEnd::InterruptedByUser), false) => Finding::StoppedEmpty,
        (Some(RunEnd::Completed), true) => Finding::Complete,
        (Some(RunEnd::ToolLimitReached), true) => Finding::LimitRecovered,
        (_, true) => failure.map_or(Finding::Recovered, |why| Finding::FailedRecovered(why.to_owned())),
        (_, false) => failure.map_or(Finding::Pending, |why| Finding::FailedPending(why.to_owned())),
    }
}

/// What is to be said when nothing is left to hope for.
pub(super) fn lost(evidence: &Evidence) -> Finding {
    match finding_of(evidence) {
        Finding::FailedPending(why) => Finding::FailedLost(why),
        _ => Finding::Lost,
    }
}

/// The marker of a run that an event of ours has ended; none if it ended by itself.
pub(super) fn final_marker(evidence: &Evidence, run: &str, now_seconds: i64) -> Option<Row> {
    let mut marker = match (&evidence.failure, evidence.ending) {
        (_, Some(RunEnd::Completed)) => return None,
        (_, Some(RunEnd::InterruptedByUser)) => stopped_marker(now_seconds),
        (_, Some(RunEnd::InterruptedByCrash)) if evidence.has_output() => {
            interrupted_marker(&Finding::Recovered, "producer_gone", run, now_seconds)
        }
        (_, Some(RunEnd::InterruptedByCrash)) => interrupted_marker(&Finding::Lost, "producer_gone", run, now_seconds),
        (Some(failure), _) => failed_marker(&failure.kind, &failure.message, now_seconds),
        (None, _) => return None,
    };
    marker.fields_mut().set_text("_run_id", run);
    Some(marker)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::fold::{Folded, FoldedRow};
    use crate::recovery::{Failure, JournalState, RunNote};

    /// What is known of a run that ended like this, with a word of it or without.
    fn evidence(ending: Option<RunEnd>, why: Option<&str>, has_output: bool) -> Evidence {
        let content = "a word".to_owned();
        let row = FoldedRow {
            content,
            reasoning: String::new(),
            timestamp: None,
            first_seq: Some(1),
            parts: Vec::new(),
            truncated_from: None,
        };
        Evidence {
            journal: JournalState::Sealed { bytes: 100 },
            folded: Folded { rows: has_output.then_some(row).into_iter().collect(), ..Folded::default() },
            ending,
            failure: why.map(|why| Failure { kind: String::new(), message: why.to_owned() }),
            is_ours: false,
            error_row: None,
            agent: None,
            note: RunNote::default(),
            damaged: 0,
        }
    }

    #[test]
    fn a_marker_says_how_the_answer_ended_and_what_was_found_of_it() {
        let why = || "no key".to_owned();
        for (ending, failure, with_output, without) in [
            (None, None, Finding::Recovered, Finding::Pending),
            (Some(RunEnd::Completed), None, Finding::Complete, Finding::Pending),
            (Some(RunEnd::InterruptedByUser), None, Finding::StoppedRecovered, Finding::StoppedEmpty),
            (Some(RunEnd::ToolLimitReached), None, Finding::LimitRecovered, Finding::Pending),
            (Some(RunEnd::Errored), Some(" no key "), Finding::FailedRecovered(why()), Finding::FailedPending(why())),
            (Some(RunEnd::Errored), Some(" "), Finding::Recovered, Finding::Pending),
            // The words of a crash are the program's own, and not why the answer failed.
            (Some(RunEnd::InterruptedByCrash), Some("no key"), Finding::Recovered, Finding::Pending),
        ] {
            assert_eq!(finding_of(&evidence(ending, failure, true)), with_output, "{ending:?}");
            assert_eq!(finding_of(&evidence(ending, failure, false)), without, "{ending:?}");
        }
        assert_eq!(lost(&evidence(Some(RunEnd::Errored), Some("no key"), false)), Finding::FailedLost(why()));
        assert_eq!(lost(&evidence(None, None, false)), Finding::Lost);
    }
}
