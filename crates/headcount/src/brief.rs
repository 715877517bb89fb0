//! What others say at length, cut for a message.

/// The start of `text`, of `most` characters at the most, cut between two words where there are
/// some; it ends in `…` if something is missing.
pub fn brief(text: &str, most: usize) -> String {
    if text.chars().count() <= most {
        return text.to_owned();
    }
    let cut: String = text.chars().take(most.saturating_sub(1)).collect();
    let next = text[cut.len()..].chars().next();
    let whole = match cut.rfind(char::is_whitespace) {
        // A long word, such as an address, says more when it is cut than when it is left out.
        Some(end) if end > cut.len() / 2 && !next.is_some_and(char::is_whitespace) => &cut[..end],
        _ => &cut,
    };
    format!("{}…", whole.trim_end())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_stay_whole_and_the_limit_is_kept() {
        for (text, most, expected) in [
            ("", 5, ""),
            ("short", 5, "short"),
            ("no credentials were found", 18, "no credentials…"),
            ("no credentials were found", 19, "no credentials…"),
            ("no credentials were found", 20, "no credentials were…"),
            ("a https://very.long/address", 12, "a https://v…"),
            ("äöüäöü", 4, "äöü…"),
            ("xx", 0, "…"),
        ] {
            let cut = brief(text, most);
            assert_eq!(cut, expected, "{text} {most}");
            assert!(cut.chars().count() <= most.max(1));
        }
    }
}
