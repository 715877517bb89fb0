//! `headcount import`: writes a configuration from the settings of another autoscaler.

mod windmill;

use std::io::{ErrorKind, Read, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, ensure};

use crate::cli::{Globals, WrongUse};
use crate::config::PLACES;
use crate::limits::IMPORT_BYTES;
use crate::regular_file;

/// Arguments of `headcount import`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Whose settings
    #[command(subcommand)]
    from: From,
}

/// Whose settings can be read.
#[derive(Debug, clap::Subcommand)]
enum From {
    /// The autoscaling of Windmill's worker groups
    Windmill(windmill::Args),
}

/// Where the configuration goes.
#[derive(Debug, clap::Args)]
struct Output {
    /// The file to write; `-` prints it
    #[arg(short, long, value_name = "FILE", default_value = PLACES[0])]
    output: PathBuf,
    /// Write over a file that is there
    #[arg(long)]
    force: bool,
}

impl Args {
    /// Reads, and writes the configuration.
    ///
    /// # Errors
    /// The settings cannot be read or make no sense, or the file is there already.
    pub fn run(self, globals: &Globals) -> anyhow::Result<ExitCode> {
        match self.from {
            From::Windmill(args) => args.run(globals),
        }
    }
}

impl Output {
    /// Whether it goes to standard output.
    fn is_printed(&self) -> bool {
        self.output == Path::new("-")
    }

    /// Refuses early what [`Self::write`] would refuse.
    fn ready(&self) -> Result<(), WrongUse> {
        if self.is_printed() || self.force || !self.output.exists() {
            Ok(())
        } else {
            Err(self.kept())
        }
    }

    fn write(&self, text: &str) -> anyhow::Result<()> {
        if self.is_printed() {
            super::out::print(text)?;
            return Ok(());
        }
        let name = || format!("{} cannot be written", self.output.display());
        let folder = self.output.parent().filter(|folder| !folder.as_os_str().is_empty());
        let mut draft = tempfile::Builder::new()
            .permissions(std::os::unix::fs::PermissionsExt::from_mode(0o644))
            .tempfile_in(folder.unwrap_or(Path::new(".")))
            .with_context(name)?;
        draft.write_all(text.as_bytes()).with_context(name)?;
        if self.force {
            draft.persist(&self.output).map_err(|e| e.error).with_context(name)?;
            return Ok(());
        }
        match draft.persist_noclobber(&self.output) {
            Ok(_) => Ok(()),
            Err(e) if e.error.kind() == ErrorKind::AlreadyExists => Err(self.kept().into()),
            Err(e) => Err(e.error).with_context(name),
        }
    }

    fn kept(&self) -> WrongUse {
        let file = self.output.display();
        WrongUse(format!("{file} is there already; name another with --output, or use --force"))
    }
}

/// A text from a file, or from standard input for `-`.
fn read(source: &Path) -> anyhow::Result<String> {
    let is_input = source == Path::new("-");
    let name = if is_input { "standard input".into() } else { source.display().to_string() };
    let unreadable = || format!("{name} cannot be read");
    let bytes = if is_input {
        let mut bytes = Vec::new();
        std::io::stdin().take(IMPORT_BYTES + 1).read_to_end(&mut bytes).with_context(unreadable)?;
        bytes
    } else {
        regular_file::read(source, IMPORT_BYTES).with_context(unreadable)?
    };
    ensure!(bytes.len() as u64 <= IMPORT_BYTES, "{name} is larger than {IMPORT_BYTES} bytes");
    String::from_utf8(bytes).with_context(|| format!("{name} is not UTF-8 text"))
}
