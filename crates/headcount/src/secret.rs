//! Secrets: given in the file (best as `${ENV}`) or in a file of their own; never shown.

use std::path::Path;

use anyhow::Context;
use schemars::JsonSchema;
use secrecy::{ExposeSecret, SecretString};
use serde::Deserialize;

use crate::limits::SECRET_BYTES;
use crate::regular_file;

/// A secret of fewer characters is not hidden in messages.
const SHORTEST_SECRET: usize = 8;

/// A secret text. Its debug form hides it.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(transparent)]
#[schemars(extend("writeOnly" = true, "format" = "password"))]
pub struct Secret(#[schemars(with = "String")] SecretString);

impl Secret {
    /// The text itself, for the one call that needs it.
    pub fn expose(&self) -> &str {
        self.0.expose_secret()
    }
}

impl From<&str> for Secret {
    fn from(text: &str) -> Self {
        Self(SecretString::from(text))
    }
}

impl PartialEq for Secret {
    fn eq(&self, other: &Self) -> bool {
        self.expose() == other.expose()
    }
}

/// A text without these secrets, for messages: what a program or a server says may repeat what it
/// was given. Of a secret with spaces in it, as `Bearer ...`, each part is one. Those of fewer than 8
/// characters stay: hiding them would hide half of each message.
pub fn without<'a>(text: &str, secrets: impl IntoIterator<Item = &'a str>) -> String {
    let parts = |secret: &'a str| std::iter::once(secret).chain(secret.split_whitespace());
    let all = secrets.into_iter().map(str::trim).flat_map(parts);
    let mut all: Vec<&str> = all.filter(|part| part.chars().count() >= SHORTEST_SECRET).collect();
    // The longest first: one may be a part of another.
    all.sort_unstable_by_key(|part| std::cmp::Reverse(part.len()));
    all.into_iter().fold(text.to_owned(), |text, secret| text.replace(secret, "..."))
}

/// Whether an address may hold a user or a password, as in `http://user:password@host`: then it must
/// not be shown.
pub fn has_login(address: &str) -> bool {
    !address.starts_with("unix://") && address.contains('@')
}

/// The secret given directly, or the one in `file` (relative to `base`, newline at the end cut).
/// An empty one given directly is none: that is what `${NAME:-}` leaves of an unset variable.
///
/// # Errors
/// The file cannot be read, is no regular file, is too large, is empty or is not UTF-8.
pub fn resolve(
    given: Option<&Secret>,
    file: Option<&Path>,
    base: &Path,
) -> anyhow::Result<Option<Secret>> {
    let Some(file) = file else {
        return Ok(given.filter(|secret| !secret.expose().is_empty()).cloned());
    };
    let path = base.join(file);
    let unreadable = || format!("secret file {} cannot be read", path.display());
    let bytes = regular_file::read(&path, SECRET_BYTES).with_context(unreadable)?;
    anyhow::ensure!(
        bytes.len() as u64 <= SECRET_BYTES,
        "secret file {} is too large",
        path.display()
    );
    let text = std::str::from_utf8(&bytes).with_context(unreadable)?;
    let secret = text.trim_end_matches(['\r', '\n']);
    anyhow::ensure!(!secret.is_empty(), "secret file {} is empty", path.display());
    Ok(Some(Secret::from(secret)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_does_not_repeat_secrets() {
        let hidden = |text| without(text, ["hush-hush", "Bearer hush-hush-again", "a", "x\ny", ""]);
        let table = [
            ("MYTOK=hush-hush!", "MYTOK=...!"),
            ("Authorization: Bearer hush-hush-again", "Authorization: ..."),
            ("token hush-hush-again", "token ..."),
            ("Bearer a", "Bearer a"),
        ];
        for (text, expected) in table {
            assert_eq!(hidden(text), expected);
        }
    }

    #[test]
    fn an_address_with_a_login_is_known() {
        for login in ["http://u:p@h", "tcp://u@h:1/", "u:p@h", "http:/u:p@h", "http://u:p/q@h"] {
            assert!(has_login(login), "{login}");
        }
        for plain in ["http://h:1/a", "unix:///run/a@b.sock", "h:1", ""] {
            assert!(!has_login(plain), "{plain}");
        }
    }

    #[test]
    fn comes_from_the_file_or_the_configuration() {
        let folder = tempfile::tempdir().unwrap();
        let base = folder.path();
        let read = |given: Option<&str>, content: Option<&[u8]>| {
            let file = content.map(|content| {
                std::fs::write(base.join("secret"), content).unwrap();
                Path::new("secret")
            });
            let secret = resolve(given.map(Secret::from).as_ref(), file, base);
            secret.map(|s| s.map(|s| s.expose().to_string())).map_err(|e| format!("{e:#}"))
        };
        assert_eq!(read(None, None), Ok(None));
        assert_eq!(read(Some(""), None), Ok(None));
        assert_eq!(read(Some("a "), None), Ok(Some("a ".into())));
        assert_eq!(read(None, Some(b" b\r\n\n")), Ok(Some(" b".into())));
        assert!(read(None, Some(b"\n")).unwrap_err().ends_with("secret is empty"));
        assert!(read(None, Some(b"\xff")).unwrap_err().contains("secret cannot be read"));
        let large = vec![b'x'; 70_000];
        assert!(read(None, Some(&large)).unwrap_err().ends_with("secret is too large"));
        assert!(resolve(None, Some(Path::new("none")), base).is_err());
        assert!(!format!("{:?}", Secret::from("hunter2")).contains("hunter2"));
    }
}
