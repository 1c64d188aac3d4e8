//! Times of events: which of them are usable.

/// A moment in seconds from its JSON text. Usable is a number above 0 whose whole seconds fit an `i64`; anything else
/// (0, a negative number, a boolean, a text) is not a time.
pub(crate) fn seconds_of(raw: &[u8]) -> Option<f64> {
    let is_usable = |seconds: &f64| *seconds > 0.0 && *seconds < i64::MAX as f64;
    std::str::from_utf8(raw).ok()?.parse().ok().filter(is_usable)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::fold::{FoldEvent, Folder, Provenance};

    const UNUSABLE: [&str; 18] = [
        "0",
        "0.0",
        "-0.0",
        "-5",
        "-1e300",
        "true",
        "false",
        "null",
        "\"1800000000\"",
        "[1]",
        "{}",
        "",
        "1e400",
        "-1e400",
        "1e300",
        "9223372036854775808",
        "NaN",
        "inf",
    ];

    #[test]
    fn a_time_is_a_number_above_0_and_nothing_else_is_one() {
        for raw in UNUSABLE {
            assert_eq!(seconds_of(raw.as_bytes()), None, "{raw}");
        }
        for (raw, seconds) in [("0.5", 0.5), ("1", 1.0), ("1800000000.050000", 1_800_000_000.05), ("1.8e9", 1.8e9)] {
            assert_eq!(seconds_of(raw.as_bytes()), Some(seconds), "{raw}");
        }
    }

    /// The times of the rows that an event with the time `first` and a later token make, read at 77.
    fn times(name: &str, payload: &str, first: Option<&str>) -> Vec<Option<i64>> {
        let mut folder = Folder::default();
        let first = (1, name, payload, first);
        for (seq, name, payload, at) in [first, (2, "token", r#"{"text":"y"}"#, Some("200.9"))] {
            let created_at = at.map(str::as_bytes);
            folder.push(&FoldEvent { seq: Some(seq), is_foreign: false, name, payload, created_at });
        }
        let rows = folder.finish().rows;
        rows.iter().map(|row| row.to_row(Provenance::Recovered("r"), 77).timestamp()).collect()
    }

    #[test]
    fn a_row_has_the_time_of_its_first_event_or_that_of_the_read() {
        let text = r#"{"text":"x"}"#;
        for unusable in UNUSABLE.map(Some).into_iter().chain([None]) {
            assert_eq!(times("token", text, unusable), [Some(77)], "{unusable:?}");
            assert_eq!(times("reasoning", text, unusable), [Some(77)], "{unusable:?}");
            assert_eq!(times("interim_assistant", text, unusable), [Some(77), Some(200)], "{unusable:?}");
            assert_eq!(times("tool", "{}", unusable), [Some(77), Some(200)], "{unusable:?}");
        }
        assert_eq!(times("token", text, Some("0.5")), [Some(0)]);
    }
}
