//! `headcount replay`: decides again what recorded observations lead to. Pure: reads no clock and
//! changes nothing but its own state file.

use std::io::{self, BufRead, BufReader, BufWriter, Read, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, bail, ensure};
use headcount_core::state::VERSION;
use headcount_core::{Cadence, Observation, Outcome, Rules, State, decide};
use serde::Deserialize;
use serde_json::Value;

use crate::cli::Globals;
use crate::cli::out::DecisionJson;
use crate::config;
use crate::limits::{OBSERVATION_BYTES, STATE_BYTES};

/// Arguments of `headcount replay`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Reads one observation a line from standard input and prints one decision a line, both JSON:
  {\"t\": 0, \"queue\": {\"waiting\": 3, \"active\": 1}, \"host\": {\"cpu_raw\": 41.5}, \
\"fleet\": {\"ready\": 1, \"starting\": 0}}
A decided change counts as done unless the next line has \"outcome\": \"failed\" or \"not_now\".")]
pub struct Args {
    /// The rules: a group of the configuration file, without queue and target
    #[arg(long, value_name = "FILE")]
    policy: PathBuf,
    /// Start from the state in this file, if it exists, and save the state there at the end
    #[arg(long, value_name = "FILE")]
    state: Option<PathBuf>,
}

impl Args {
    /// Replays standard input to standard output.
    ///
    /// # Errors
    /// The policy or state file makes no sense, or a line of the input does not.
    pub fn run(self, _globals: &Globals) -> anyhow::Result<ExitCode> {
        let rules = config::load_rules(&self.policy)?;
        let mut state = match &self.state {
            Some(path) => load_state(path)?,
            None => State::default(),
        };
        let (input, output) = (BufReader::new(io::stdin()), BufWriter::new(io::stdout().lock()));
        replay(&rules, &mut state, input, output)?;
        if let Some(path) = &self.state {
            save_state(&state, path)?;
        }
        Ok(ExitCode::SUCCESS)
    }
}

/// Decides on each line of `input`. What was decided before a bad line is written.
///
/// # Errors
/// A line makes no sense, or input or output fail.
pub fn replay(
    rules: &Rules,
    state: &mut State,
    mut input: BufReader<impl Read>,
    mut output: impl Write,
) -> anyhow::Result<()> {
    let mut line = Vec::new();
    for number in 1_u64.. {
        if input.buffer().is_empty() {
            // The next read may wait for whoever records the observations.
            output.flush()?;
        }
        line.clear();
        let limit = OBSERVATION_BYTES as u64 + 1;
        input.by_ref().take(limit).read_until(b'\n', &mut line).context("standard input")?;
        if line.is_empty() {
            break;
        }
        if line.trim_ascii().is_empty() && line.len() <= OBSERVATION_BYTES {
            continue;
        }
        let read = observation(&line);
        if read.is_err() {
            output.flush()?;
        }
        let (seen, outcome) = read.with_context(|| format!("standard input, line {number}"))?;
        settle(state, outcome);
        let decision = decide(rules, state, &seen, Cadence::EveryLook, seen.t);
        serde_json::to_writer(&mut output, &DecisionJson::from(&decision))
            .map_err(io::Error::from)?;
        output.write_all(b"\n")?;
    }
    // What became of the last change the next line tells, if another replay goes on from here.
    output.flush()?;
    Ok(())
}

/// Notes what became of the last change, at the time it was decided: no other time is known.
fn settle(state: &mut State, outcome: Outcome) {
    if let Some(at) = state.pending.as_ref().map(|pending| pending.at) {
        state.note(outcome, at);
    }
}

/// The observation of a line, and what it says of the last change.
fn observation(line: &[u8]) -> anyhow::Result<(Observation, Outcome)> {
    ensure!(line.len() <= OBSERVATION_BYTES, "longer than {OBSERVATION_BYTES} bytes");
    let value: Value = serde_json::from_slice(line).map_err(|e| {
        let text = e.to_string();
        // The line is the input's, not the parser's.
        let said = text.split(" at line ").next().unwrap_or(&text).to_string();
        anyhow::anyhow!("not JSON at column {}: {said}", e.column())
    })?;
    let Some(keys) = value.as_object() else { bail!("not an observation: write a JSON object") };
    let outcome = match keys.get("outcome").filter(|outcome| !outcome.is_null()) {
        None => Outcome::Done,
        Some(outcome) => Outcome::deserialize(outcome).ok().with_context(|| {
            format!("outcome: {outcome} is none of \"done\", \"failed\" and \"not_now\"")
        })?,
    };
    Ok((Observation::deserialize(&value)?, outcome))
}

/// The state in a file; a new one if there is no such file.
fn load_state(path: &Path) -> anyhow::Result<State> {
    let name = format!("state file {}", path.display());
    let file = match std::fs::File::open(path) {
        Ok(file) => file,
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(State::default()),
        Err(e) => return Err(e).context(name),
    };
    let mut text = Vec::new();
    file.take(STATE_BYTES + 1).read_to_end(&mut text).with_context(|| name.clone())?;
    ensure!(text.len() as u64 <= STATE_BYTES, "{name} is larger than {STATE_BYTES} bytes");
    let hint = "delete it to start anew";
    let value: Value = serde_json::from_slice(&text)
        .with_context(|| format!("{name} is no state of headcount; {hint}"))?;
    match value.get("version").and_then(Value::as_u64) {
        Some(version) if version == u64::from(VERSION) => {}
        Some(version) => {
            bail!("{name} has version {version}, this program reads {VERSION}; {hint}")
        }
        None => bail!("{name} is no state of headcount: it has no version; {hint}"),
    }
    State::deserialize(&value).with_context(|| format!("{name} cannot be read; {hint}"))
}

/// Saves the state: all of it, or none of it if something fails.
fn save_state(state: &State, path: &Path) -> anyhow::Result<()> {
    let name = || format!("state file {} cannot be written", path.display());
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    let mut file =
        tempfile::NamedTempFile::new_in(folder.unwrap_or(Path::new("."))).with_context(name)?;
    serde_json::to_writer(&mut file, state).with_context(name)?;
    file.write_all(b"\n").with_context(name)?;
    file.as_file().sync_all().with_context(name)?;
    file.persist(path).map_err(|e| e.error).with_context(name)?;
    Ok(())
}
