//! Words that depend on a number.

use std::fmt::Display;

/// So many of something: `1 worker`, `2 workers`. For nouns that take an s.
pub fn counted<N: Display + PartialEq + From<u8>>(n: N, noun: &str) -> String {
    let s = if n == N::from(1) { "" } else { "s" };
    format!("{n} {noun}{s}")
}

#[cfg(test)]
mod tests {
    use super::counted;

    #[test]
    fn one_is_singular() {
        assert_eq!(
            [0_u32, 1, 2].map(|n| counted(n, "worker")),
            ["0 workers", "1 worker", "2 workers"]
        );
    }
}
