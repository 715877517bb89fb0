//! What a running Headcount keeps, for the verbs that watch and steer it. A configuration that is
//! broken at the moment does not hide it: the running one still uses the old one.

use std::path::PathBuf;

use headcount_core::state::Controls;

use crate::cli::{Globals, WrongUse, out};
use crate::config::{self, Config, GroupConfig};
use crate::daemon::{Running, dry_name};
use crate::store::{Latest, Store};
use crate::telemetry::complain;

/// The store of a Headcount, and its configuration if that can be read.
pub struct Kept {
    /// What it keeps.
    pub store: Store,
    config: Option<Config>,
    folder: PathBuf,
    known: Vec<Latest>,
}

impl Kept {
    /// Opens what the Headcount of this configuration keeps.
    ///
    /// # Errors
    /// There is no such store, or neither it nor the configuration can be read.
    pub fn open(globals: &Globals) -> anyhow::Result<Self> {
        let found = config::find(globals).map(|found| found.config);
        let folder = match (&globals.state_dir, &found) {
            (Some(folder), _) => folder.clone(),
            (None, Ok(config)) => config.state_dir.clone(),
            (None, Err(_)) => config::default_state_dir(),
        };
        let config = match found {
            Ok(config) => Some(config),
            Err(errors) if folder.join("state.db").exists() => {
                let what = anyhow::Error::from(errors)
                    .context("this configuration is not the one in use, which goes on");
                complain(&what);
                None
            }
            Err(errors) => return Err(errors.into()),
        };
        let store = Store::open_existing(&folder)?;
        let known = store.latest(None);
        Ok(Self { store, config, folder, known })
    }

    /// The groups: those of the configuration; without one, all that were ever seen.
    pub fn groups(&self) -> Vec<&str> {
        match &self.config {
            Some(config) => config.groups.iter().map(|g| g.name.as_str()).collect(),
            None => self.known.iter().map(|l| l.group.as_str()).collect(),
        }
    }

    /// The group with this name, or the only one.
    ///
    /// # Errors
    /// There is none with this name, or several to choose from.
    pub fn pick(&self, name: Option<&str>) -> anyhow::Result<String> {
        let groups = self.groups();
        let there_are = groups.join(", ");
        match (name, &groups[..]) {
            (Some(name), _) if groups.contains(&name) || self.latest(name).is_some() => {
                Ok(name.into())
            }
            (Some(name), _) => {
                Err(WrongUse(format!("there is no group `{name}`; there are: {there_are}")).into())
            }
            (None, [only]) => Ok((*only).into()),
            (None, _) => Err(WrongUse(format!("say which group: {there_are}")).into()),
        }
    }

    /// What was seen and decided last in a group; if it only ever ran dry, what the dry run did.
    pub fn latest(&self, group: &str) -> Option<&Latest> {
        let named = |name: &str| self.known.iter().find(|latest| latest.group == name);
        named(group).or_else(|| named(&dry_name(group)))
    }

    /// A group's configuration, if it can be read.
    pub fn config(&self, group: &str) -> Option<&GroupConfig> {
        self.config.as_ref()?.group(group)
    }

    /// What people ask for in a group.
    pub fn controls(&self, group: &str) -> Controls {
        self.store.controls(group)
    }

    /// Says that nobody runs, if so: what is shown is old, what is asked for waits.
    pub fn warn_if_nobody_runs(&self) -> std::io::Result<()> {
        if Running::is_there(&self.folder) == Some(false) {
            let what = format!("no headcount runs with its state in {}", self.folder.display());
            out::line(out::styled(out::WARNING, what))?;
        }
        Ok(())
    }
}
