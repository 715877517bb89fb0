//! A number that nobody can be asked for: the last one that was set, kept over restarts. It is
//! written down before anything is changed, and what cannot be written down is not done: after a
//! restart the number that there was at first would be taken for the number there is.

use std::fs::File;
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};

use headcount_core::rules::MOST_WORKERS;
use headcount_core::{FleetReading, Missing, Silence};

use crate::limits::DETAIL_CHARS;
use crate::targets::{FleetSeen, TargetError};

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
        let number = number.max(self.announced().unwrap_or(0));
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

    /// Writes down a number that is about to be set. Until [`Self::set`] or [`Self::withdraw`] it is
    /// not known which of the two there are, and after a restart the larger one counts: from there a
    /// number is never lowered by what shall raise it.
    ///
    /// # Errors
    /// It cannot be written down: do not set it.
    pub(super) fn announce(&self, number: u32, what: &str) -> Result<(), TargetError> {
        self.write_draft(number).map_err(|error| {
            let file = self.draft();
            let detail = format!(
                "nothing was changed, since the number of workers cannot be kept for after a \
                 restart: {} cannot be written: {error}",
                file.display()
            );
            TargetError::Failed { what: what.into(), detail }
        })
    }

    /// The announced number was set.
    pub(super) fn set(&mut self, number: u32) {
        self.known = Some(number);
        if let Err(error) = std::fs::rename(self.draft(), &self.file) {
            tracing::warn!(file = %self.file.display(), %error,
                "the number of workers that was set cannot be kept for after a restart");
        }
    }

    /// The announced number was not set.
    pub(super) fn withdraw(&self) {
        // One that stays counts after a restart only if it is the larger one.
        let _ = std::fs::remove_file(self.draft());
    }

    fn write_draft(&self, number: u32) -> std::io::Result<()> {
        if let Some(folder) = self.file.parent() {
            std::fs::create_dir_all(folder)?;
        }
        let mut draft = File::create(self.draft())?;
        draft.write_all(format!("{number}\n").as_bytes())?;
        draft.sync_all()
    }

    fn draft(&self) -> PathBuf {
        self.file.with_extension("new")
    }

    /// The number that was announced when the last run ended.
    fn announced(&self) -> Option<u32> {
        // One that was not written to its end was not sent.
        number(&std::fs::read_to_string(self.draft()).ok()?).ok()
    }
}

/// What is wrong with the number before the first change, if anything.
pub(super) fn problem_with_initial(initial: Option<u32>) -> Option<String> {
    let above = initial.filter(|initial| *initial > MOST_WORKERS)?;
    Some(format!("{above} is above the limit of {MOST_WORKERS} workers"))
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

/// The start of a text, for a message: on one line, without control characters.
pub(super) fn brief(text: &str) -> String {
    crate::brief::brief(&plain(text), DETAIL_CHARS)
}

/// The end of a text, for a message: what went wrong stands there.
pub(super) fn ending(text: &str) -> String {
    let text = plain(text);
    let surplus = text.chars().count().saturating_sub(DETAIL_CHARS);
    let rest: String = text.chars().skip(surplus).collect();
    if surplus > 0 { format!("...{rest}") } else { rest }
}

/// On one line, without what a terminal takes for an order.
pub(super) fn plain(text: &str) -> String {
    let lines = text.split(['\n', '\r']).map(str::trim).filter(|line| !line.is_empty());
    let line = lines.collect::<Vec<_>>().join(" ").replace('\t', " ");
    line.chars().filter(|c| !c.is_control()).collect()
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
        first.announce(5, "scaling").unwrap();
        first.set(5);
        assert_eq!(first.get(), Ok(5));
        assert_eq!(Assumed::new(&state_dir, 2).get(), Ok(5));
        std::fs::write(state_dir.join("assumed-workers"), "5 or 6").unwrap();
        let unknown = Assumed::new(&state_dir, 2).get().unwrap_err();
        assert_eq!(unknown.why, Silence::Malformed);
        assert!(unknown.detail.contains("`5 or 6` is no number of workers"), "{}", unknown.detail);
    }

    #[test]
    fn what_cannot_be_kept_is_not_done() {
        let folder = tempfile::tempdir().unwrap();
        let state_dir = folder.path().join("state");
        std::fs::write(&state_dir, "no folder").unwrap();
        let error = Assumed::new(&state_dir, 1).announce(2, "scaling").unwrap_err().to_string();
        assert!(error.starts_with("scaling: nothing was changed, since the number"), "{error}");
        assert!(error.contains("state/assumed-workers.new cannot be written"), "{error}");
    }

    #[test]
    fn of_a_change_that_was_cut_short_the_larger_number_counts() {
        let folder = tempfile::tempdir().unwrap();
        let open = || Assumed::new(folder.path(), 1);
        open().announce(5, "scaling").unwrap();
        assert_eq!(open().get(), Ok(5), "it may have been set before anything else was");
        open().withdraw();
        assert_eq!(open().get(), Ok(1));
        open().announce(4, "scaling").unwrap();
        open().set(4);
        open().announce(2, "scaling").unwrap();
        assert_eq!(open().get(), Ok(4), "it may have been set or not");
        std::fs::write(folder.path().join("assumed-workers.new"), "").unwrap();
        assert_eq!(open().get(), Ok(4), "it was not even written");
    }

    #[test]
    fn a_message_is_one_line_without_control_characters() {
        assert_eq!(plain(" a\r\n\tb\u{1b}[31m\0c\u{9b} \n"), "a b[31mc");
        assert_eq!((brief("a\nb"), ending("a\nb")), ("a b".to_owned(), "a b".to_owned()));
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
