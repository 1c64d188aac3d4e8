//! The title of a session that was not given one: the first words of its first message.

/// The title of a session that was not given one, until its first message.
pub const UNTITLED: &str = "Untitled";

/// Characters of a title that is made of a message.
const TITLE_CHARS_MAX: usize = 60;

/// The first words of a message, on one line. Empty if the message has none.
pub fn title_of(message: &str) -> String {
    let words: String = message.split_whitespace().collect::<Vec<_>>().join(" ");
    match words.char_indices().nth(TITLE_CHARS_MAX) {
        Some((end, _)) => format!("{}...", words[..end].trim_end()),
        None => words,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_title_is_the_first_words_of_a_message_on_one_line() {
        let (fits, long) = ("a".repeat(60), "a".repeat(61));
        let cut = format!("{fits}...");
        let umlauts = "ü".repeat(61);
        let cut_umlauts = format!("{}...", "ü".repeat(60));
        for (message, title) in [
            ("Where to?", "Where to?"),
            ("  Two\n\tlines  \r\n", "Two lines"),
            (" \n ", ""),
            (&fits, &fits),
            (&long, &cut),
            (&umlauts, &cut_umlauts),
        ] {
            assert_eq!(title_of(message), title);
        }
    }
}
