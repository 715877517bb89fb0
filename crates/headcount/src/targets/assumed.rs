//! A number that nobody can be asked for: the last one that was set, kept over restarts.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use headcount_core::rules::MOST_WORKERS;
use headcount_core::{FleetReading, Missing, Silence};

use crate::limits::DETAIL_CHARS;
use crate::targets::FleetSeen;

/// The number that was set last.
#[derive(Debug)]
pub(super) struct Assumed {
    file: PathBuf,
    initial: u32,
    known: Option<u32>,
}

impl Assumed {
    /// Kept in `state_dir`; before anything was set it is `initial`.
    pub(super) fn new(state_dir: &Path, initial: u32) -> Self {
        Self { file: state_dir.join("assumed-workers"), initial, known: None }
    }

    /// The number that was set last.
    ///
    /// # Errors
    /// The file exists but does not tell: the initial number would be a guess then.
    pub(super) fn get(&mut self) -> Result<u32, Missing> {
        if let Some(number) = self.known {
            return Ok(number);
        }
        let why = |why, detail| Missing {
            why,
            detail: format!("{}: {detail}; write the number of workers there", self.file.display()),
        };
        let number = match std::fs::read_to_string(&self.file) {
            Err(e) if e.kind() == ErrorKind::NotFound => self.initial,
            Err(e) => return Err(why(Silence::Unreachable, e.to_string())),
            Ok(text) => number(&text).map_err(|detail| why(Silence::Malformed, detail))?,
        };
        self.known = Some(number);
        Ok(number)
    }

    /// The same as a look at a fleet.
    ///
    /// # Errors
    /// As [`Self::get`].
    pub(super) fn fleet(&mut self) -> Result<FleetSeen, Missing> {
        let reading = FleetReading { ready: self.get()?, ..FleetReading::default() };
        Ok(FleetSeen { reading, ..FleetSeen::default() })
    }

    /// Remembers a number. If it cannot be written it is remembered for this run only.
    pub(super) fn set(&mut self, number: u32) {
        self.known = Some(number);
        if let Err(error) = self.write(number) {
            tracing::warn!(file = %self.file.display(), %error,
                "the number of workers that was set cannot be kept for after a restart");
        }
    }

    fn write(&self, number: u32) -> std::io::Result<()> {
        if let Some(folder) = self.file.parent() {
            std::fs::create_dir_all(folder)?;
        }
        let draft = self.file.with_extension("new");
        std::fs::write(&draft, format!("{number}\n"))?;
        std::fs::rename(&draft, &self.file)
    }
}

/// A number of workers as a program prints it.
pub(super) fn number(text: &str) -> Result<u32, String> {
    let text = text.trim();
    match text.parse::<u32>() {
        Ok(number) if number <= MOST_WORKERS => Ok(number),
        Ok(number) => Err(format!("{number} is above the limit of {MOST_WORKERS} workers")),
        Err(_) => Err(format!("`{}` is no number of workers", brief(text))),
    }
}

/// The start of a text, for a message.
pub(super) fn brief(text: &str) -> String {
    crate::brief::brief(text, DETAIL_CHARS)
}

/// The end of a text, for a message: what went wrong stands there.
pub(super) fn ending(text: &str) -> String {
    let surplus = text.chars().count().saturating_sub(DETAIL_CHARS);
    let rest: String = text.chars().skip(surplus).collect();
    if surplus > 0 { format!("...{rest}") } else { rest }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_survives_and_a_damaged_file_is_not_guessed() {
        let folder = tempfile::tempdir().unwrap();
        let state_dir = folder.path().join("state");
        let mut first = Assumed::new(&state_dir, 2);
        assert_eq!(first.get(), Ok(2));
        first.set(5);
        assert_eq!(first.get(), Ok(5));
        assert_eq!(Assumed::new(&state_dir, 2).get(), Ok(5));
        std::fs::write(state_dir.join("assumed-workers"), "5 or 6").unwrap();
        let unknown = Assumed::new(&state_dir, 2).get().unwrap_err();
        assert_eq!(unknown.why, Silence::Malformed);
        assert!(unknown.detail.contains("`5 or 6` is no number of workers"), "{}", unknown.detail);
    }

    #[test]
    fn only_a_plausible_number_is_a_number() {
        assert_eq!(number(" 7\n"), Ok(7));
        for wrong in ["", "-1", "1.5", "seven", "10001", "99999999999"] {
            assert!(number(wrong).is_err(), "{wrong}");
        }
        assert_eq!(brief(&format!("a{}", "x".repeat(300))), format!("a{}…", "x".repeat(198)));
        assert_eq!(ending(&format!("{}z", "x".repeat(300))), format!("...{}z", "x".repeat(199)));
        assert_eq!((brief("abc"), ending("abc")), ("abc".to_owned(), "abc".to_owned()));
    }
}
