//! Secrets: given in the file (best as `${ENV}`) or in a file of their own; never shown.

use std::path::Path;

use anyhow::Context;
use schemars::JsonSchema;
use secrecy::{ExposeSecret, SecretString};
use serde::Deserialize;

use crate::limits::SECRET_BYTES;

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

/// The secret given directly, or the one in `file` (relative to `base`, trailing newline cut).
///
/// # Errors
/// The file cannot be read, is too large or is not UTF-8.
pub fn resolve(
    given: Option<&Secret>,
    file: Option<&Path>,
    base: &Path,
) -> anyhow::Result<Option<Secret>> {
    let Some(file) = file else { return Ok(given.cloned()) };
    let path = base.join(file);
    let size = std::fs::metadata(&path)
        .with_context(|| format!("secret file {} cannot be read", path.display()))?
        .len();
    anyhow::ensure!(size <= SECRET_BYTES, "secret file {} is too large", path.display());
    let text = std::fs::read_to_string(&path)
        .with_context(|| format!("secret file {} cannot be read", path.display()))?;
    Ok(Some(Secret::from(text.trim_end_matches(['\r', '\n']))))
}
