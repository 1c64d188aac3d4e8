//! Tokens: what usage events report, what is known of a run, and sums over runs.

use crate::model::{Object, RunEnd};

/// Tokens, where they are known.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Usage {
    /// Read by the model.
    pub input: Option<u64>,
    /// Written by it.
    pub output: Option<u64>,
    /// Both, as the producer counts.
    pub total: Option<u64>,
}

impl Usage {
    /// No tokens at all: where a sum begins.
    const ZERO: Usage = Usage { input: Some(0), output: Some(0), total: Some(0) };

    /// Reads it, in our words or in those of OpenAI's endpoint; nothing if it names no number.
    pub(super) fn parse(fields: &Object) -> Option<Self> {
        let number = |keys: [&str; 2]| keys.iter().find_map(|key| fields.get(key)?.parse().ok());
        let input = number(["input_tokens", "prompt_tokens"]);
        let output = number(["output_tokens", "completion_tokens"]);
        let total = number(["total_tokens", "total_tokens"]).or_else(|| strict_sum(input, output));
        let usage = Usage { input, output, total };
        usage.says_anything().then_some(usage)
    }

    /// Whether all three numbers are known.
    pub fn is_complete(self) -> bool {
        self.input.is_some() && self.output.is_some() && self.total.is_some()
    }

    /// Whether one of the numbers is known.
    pub fn says_anything(self) -> bool {
        self != Usage::default()
    }

    fn plus(self, other: Usage, sum: fn(Option<u64>, Option<u64>) -> Option<u64>) -> Self {
        Usage {
            input: sum(self.input, other.input),
            output: sum(self.output, other.output),
            total: sum(self.total, other.total),
        }
    }

    pub(super) fn to_json(self) -> String {
        let number = |value: Option<u64>| value.map_or_else(|| "null".to_owned(), |value| value.to_string());
        let (input, output, total) = (number(self.input), number(self.output), number(self.total));
        format!(r#"{{"input_tokens":{input},"output_tokens":{output},"total_tokens":{total}}}"#)
    }
}

/// A sum is unknown if a part is.
fn strict_sum(a: Option<u64>, b: Option<u64>) -> Option<u64> {
    Some(a?.saturating_add(b?))
}

/// The sum of the parts that are known; unknown if none is.
fn known_sum(a: Option<u64>, b: Option<u64>) -> Option<u64> {
    a.zip(b).map(|(a, b)| a.saturating_add(b)).or(a).or(b)
}

/// A sum of usages of which parts may be unknown. The default is one unknown part.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct UsageSum {
    /// The sums that are known. A number is unknown if it is in a part.
    pub known: Usage,
    /// The sums of what is known: it was at least that.
    pub at_least: Usage,
}

impl UsageSum {
    /// The sum of no parts.
    pub const NOTHING: UsageSum =
        UsageSum { known: Usage::ZERO, at_least: Usage { input: None, output: None, total: None } };

    /// The usage that one event reports.
    pub(super) fn reported(usage: Usage) -> Self {
        UsageSum { known: usage, at_least: usage }
    }

    /// This sum and another part.
    pub fn plus(self, other: UsageSum) -> Self {
        let known = self.known.plus(other.known, strict_sum);
        UsageSum { known, at_least: self.at_least.plus(other.at_least, known_sum) }
    }

    /// The usage of a run whose events report this. It is known only of a run that ended by itself: what another one used
    /// after its last report is not.
    pub(super) fn of_run(self, end: Option<RunEnd>) -> Self {
        match end.is_some_and(RunEnd::is_by_itself) {
            true => self,
            false => UsageSum { known: Usage::default(), ..self },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn usage(input: u64, output: u64) -> Usage {
        Usage { input: Some(input), output: Some(output), total: Some(input + output) }
    }

    #[test]
    fn a_sum_is_unknown_if_a_part_is_and_says_what_it_is_at_least() {
        let known = UsageSum::reported(usage(3, 4));
        assert_eq!(UsageSum::NOTHING.plus(known).plus(known), UsageSum::reported(usage(6, 8)));
        let unknown = UsageSum::NOTHING.plus(known).plus(UsageSum::default());
        assert_eq!((unknown.known, unknown.at_least), (Usage::default(), usage(3, 4)));
        let input_alone = UsageSum::reported(Usage { input: Some(1), ..Usage::default() });
        let sum = known.plus(input_alone);
        assert_eq!(sum.known, Usage { input: Some(4), ..Usage::default() });
        assert_eq!(sum.at_least, Usage { input: Some(4), output: Some(4), total: Some(7) });
    }

    #[test]
    fn only_a_run_that_ended_by_itself_has_a_known_usage() {
        let reported = UsageSum::reported(usage(3, 4));
        for end in RunEnd::ALL {
            let is_known = matches!(end, RunEnd::Completed | RunEnd::ToolLimitReached);
            assert_eq!(reported.of_run(Some(end)).known.is_complete(), is_known, "{end:?}");
        }
        assert_eq!(reported.of_run(None), UsageSum { known: Usage::default(), at_least: usage(3, 4) });
    }
}
