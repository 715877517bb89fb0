//! A program of the user's that is told the number.
//!
//! It gets the arguments group, desired number, reason and type of event, as Windmill's custom
//! scripts do, and the same as environment variables.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use async_trait::async_trait;
use headcount_core::{Missing, Silence, Span};
use schemars::JsonSchema;
use serde::Deserialize;
use tokio::process::Command;

use crate::clock;
use crate::config::Place;
use crate::finding::Finding;
use crate::limits::{LOOK_TIMEOUT, OUTPUT_BYTES, STATUS_BYTES};
use crate::secret::{self, Secret};
use crate::targets::assumed::{Assumed, ending, problem_with_initial};
use crate::targets::command::{Ended, Fault, run};
use crate::targets::{FleetSeen, Order, Promise, Scaled, Target, TargetError, answer, program};

/// The longest time that a script may take.
const LONGEST: Span = Span::from_hours(1);

/// A program that is told the number of workers.
#[derive(Clone, Debug, PartialEq, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct ScriptConfig {
    /// The program, or the program and its first arguments. It gets four more: group, desired
    /// number of workers, reason and type of event (`full_scaleout`, `scaleout` or `scalein`, as
    /// Windmill has it); and the environment variables `HEADCOUNT_GROUP`, `_DESIRED`, `_REASON`,
    /// `_EVENT` (the kind of event as `headcount events` tells it), `_CURRENT`, `_VICTIMS` (ids with spaces
    /// between) and `_TOKEN` (a number that grows with every new Headcount that acts for the
    /// group). What it prints goes into the event; if the last line is a JSON object with
    /// `started`, `removed` (lists of ids) or `note`, it tells what was done.
    pub command: Words,
    /// What runs `command`, for a script without a `#!` line: `bash`.
    pub interpreter: Option<Words>,
    /// After this long, at most 1h, the script is killed, with everything it started that is still in
    /// its process group.
    pub timeout: Span,
    /// A program that prints how many workers there are: a number, or a JSON object with `ready`,
    /// `starting` and so on, or with a list of `workers`. `interpreter` does not apply to it.
    pub status_command: Option<Words>,
    /// Without `status_command`: how many workers there are before the first change. From then on
    /// the number that was set last is taken for the number there is.
    pub initial: Option<u32>,
    /// The script removes exactly the workers in `HEADCOUNT_VICTIMS`, and no others.
    pub exact_victims: bool,
    /// Environment variables for both programs, besides Headcount's own.
    pub env: BTreeMap<String, Secret>,
}

/// A program, alone or with arguments. A path starts at the folder of the configuration file.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(untagged, expecting = "expected a program, or a list of it and its arguments")]
pub enum Words {
    /// The program alone.
    One(String),
    /// The program and arguments.
    Many(Vec<String>),
}

impl Default for ScriptConfig {
    fn default() -> Self {
        Self {
            command: Words::Many(Vec::new()),
            interpreter: None,
            timeout: Span::from_secs(60),
            status_command: None,
            initial: None,
            exact_victims: false,
            env: BTreeMap::new(),
        }
    }
}

impl ScriptConfig {
    /// See [`crate::registry`].
    pub fn problems(&self) -> Vec<(String, String)> {
        let mut found = Vec::new();
        let mut say = |key: &str, what: &str| found.push((key.to_owned(), what.to_owned()));
        let programs = [
            ("command", Some(&self.command)),
            ("interpreter", self.interpreter.as_ref()),
            ("status_command", self.status_command.as_ref()),
        ];
        for (key, words) in programs {
            let words = words.map_or(&["-".to_owned()][..], Words::all).to_vec();
            if words.first().is_none_or(String::is_empty) {
                say(key, "is empty; give the program, as ./scale.sh");
            }
            if !words.iter().all(|word| program::can_be_passed(word)) {
                say(key, "holds a NUL character");
            }
        }
        for name in self.env.keys() {
            if let Some(what) = program::fault_of_variable(name) {
                say(&format!("env.{name}"), &what);
            }
        }
        if self.timeout <= Span::ZERO || self.timeout > LONGEST {
            say("timeout", "must be above 0 and at most 1h");
        }
        if let Some(what) = problem_with_initial(self.initial) {
            say("initial", &what);
        }
        match (&self.status_command, self.initial) {
            (None, None) => say(
                "initial",
                "is missing: without status_command say how many workers there are now",
            ),
            (Some(_), Some(_)) => say("initial", "has no meaning beside status_command; remove it"),
            _ => {}
        }
        found
    }

    /// See [`crate::registry`].
    pub fn open(&self, place: &Place) -> anyhow::Result<Box<dyn Target>> {
        let base = &place.base_dir;
        let mut command = self.command.locate(base);
        if let Some(interpreter) = &self.interpreter {
            // A bare name is a file here, not a program in PATH.
            command.program = base.join(&command.program).components().collect();
            command = interpreter.locate(base).before(command);
        }
        Ok(Box::new(Script {
            command,
            status: self.status_command.as_ref().map(|words| words.locate(base)),
            assumed: Assumed::new(&place.state_dir, self.initial.unwrap_or(0)),
            timeout: clock::duration(self.timeout),
            group: place.group.clone(),
            directory: base.clone(),
            config: self.clone(),
        }))
    }
}

impl Words {
    fn all(&self) -> &[String] {
        match self {
            Self::One(word) => std::slice::from_ref(word),
            Self::Many(words) => words,
        }
    }

    fn locate(&self, base: &Path) -> Call {
        let (first, rest) = self.all().split_first().map_or(("", &[][..]), |(f, r)| (f, r));
        Call { program: program::locate(base, first), arguments: rest.to_vec() }
    }
}

/// A program with its first arguments.
#[derive(Clone, Debug)]
struct Call {
    program: PathBuf,
    arguments: Vec<String>,
}

impl Call {
    /// This program with `script` as what it runs.
    fn before(mut self, script: Self) -> Self {
        self.arguments.push(script.program.to_string_lossy().into_owned());
        self.arguments.extend(script.arguments);
        self
    }

    fn command(&self) -> Command {
        let mut command = Command::new(&self.program);
        command.args(&self.arguments);
        command
    }

    fn name(&self) -> String {
        self.program.display().to_string()
    }

    /// The whole of it, to tell it from others.
    fn line(&self) -> String {
        format!("{} {}", self.name(), self.arguments.join(" "))
    }
}

struct Script {
    config: ScriptConfig,
    command: Call,
    status: Option<Call>,
    assumed: Assumed,
    timeout: Duration,
    group: String,
    directory: PathBuf,
}

impl Script {
    /// Runs one of the programs; keeps the last `keep` bytes of each output.
    async fn run(
        &self,
        mut command: Command,
        limit: Duration,
        keep: usize,
    ) -> Result<Ended, Fault> {
        command
            .envs(self.config.env.iter().map(|(name, value)| (name, value.expose())))
            .env("HEADCOUNT_GROUP", &self.group)
            .current_dir(&self.directory);
        let mut ended = run(command, limit, keep).await?;
        for said in [&mut ended.output, &mut ended.errors] {
            *said = secret::without(said, self.config.env.values().map(Secret::expose));
        }
        Ok(ended)
    }

    /// What it is, for messages.
    fn what(&self) -> String {
        format!("script {}", self.command.name())
    }

    /// Tells the script.
    async fn tell(&self, order: &Order) -> Result<Scaled, TargetError> {
        let desired = order.to.to_string();
        // A program cannot be given a NUL.
        let reason = order.reason.replace('\0', " ");
        let event_type = order.kind.event_type(order.from, order.to);
        let mut command = self.command.command();
        command
            .args([self.group.as_str(), &desired, &reason, event_type])
            .env("HEADCOUNT_DESIRED", &desired)
            .env("HEADCOUNT_REASON", &reason)
            .env("HEADCOUNT_EVENT", order.kind.name())
            .env("HEADCOUNT_CURRENT", order.from.to_string())
            .env("HEADCOUNT_VICTIMS", order.victims.join(" "))
            .env("HEADCOUNT_TOKEN", order.token.to_string());
        let ended =
            self.run(command, self.timeout, OUTPUT_BYTES).await.map_err(|fault| match fault {
                Fault::Timeout(limit) => {
                    TargetError::Timeout { what: self.what(), seconds: limit.as_secs() }
                }
                Fault::Start(e) => TargetError::Failed {
                    what: self.what(),
                    detail: why_no_start(&self.command, &e),
                },
            })?;
        if !ended.status.success() {
            let detail = format!("{}: {}", ended.status, ending(&ended.said()));
            return Err(TargetError::Failed { what: self.what(), detail });
        }
        // The report is the end of the output, and what a program complains of comes before it.
        Ok(answer::done(&format!("{}\n{}", ended.errors, ended.output)))
    }

    /// Asks `status_command`.
    async fn ask(&self, call: &Call) -> Result<FleetSeen, Missing> {
        let missing = |why, detail: String| {
            Err(Missing { why, detail: format!("status_command {}: {detail}", call.name()) })
        };
        let limit = self.timeout.min(LOOK_TIMEOUT);
        match self.run(call.command(), limit, STATUS_BYTES).await {
            Err(Fault::Start(e)) => missing(Silence::NotFound, why_no_start(call, &e)),
            Err(fault @ Fault::Timeout(_)) => missing(Silence::Timeout, fault.to_string()),
            Ok(ended) if !ended.status.success() => {
                missing(Silence::Refused, format!("{}: {}", ended.status, ending(&ended.said())))
            }
            Ok(ended) if ended.output.len() >= STATUS_BYTES => {
                missing(Silence::Malformed, format!("says more than {STATUS_BYTES} bytes"))
            }
            Ok(ended) => answer::fleet(&ended.output).or_else(|(why, detail)| missing(why, detail)),
        }
    }
}

#[async_trait]
impl Target for Script {
    fn promise(&self) -> Promise {
        if self.config.exact_victims { Promise::ExactVictims } else { Promise::NumberOnly }
    }

    fn scales(&self) -> String {
        format!("script:{}:{}", self.group, self.command.line())
    }

    async fn status(&mut self) -> Result<FleetSeen, Missing> {
        match &self.status {
            Some(call) => self.ask(call).await,
            None => self.assumed.fleet(),
        }
    }

    async fn scale(&mut self, order: &Order) -> Result<Scaled, TargetError> {
        if self.status.is_some() {
            return self.tell(order).await;
        }
        self.assumed.announce(order.to, &self.what())?;
        let told = self.tell(order).await;
        match told {
            Ok(_) => self.assumed.set(order.to),
            Err(_) => self.assumed.withdraw(),
        }
        told
    }

    async fn check(&mut self) -> Vec<Finding> {
        let about = "target";
        let mut found = Vec::new();
        for (key, call) in
            [("command", Some(&self.command)), ("status_command", self.status.as_ref())]
        {
            let Some(call) = call else { continue };
            found.push(match program::fault(&call.program) {
                None if program::lacks_interpreter(&call.program) => {
                    let fix = match key {
                        "command" => "set `interpreter: bash`, or begin it with #!/bin/sh",
                        _ => "begin it with #!/bin/sh, or name what runs it: [bash, ./status.sh]",
                    };
                    let what = format!("{key}: {} has no #! line: it does not start", call.name());
                    Finding::problem(about, what, fix)
                }
                None => Finding::good(about, format!("{key}: {} can be started", call.name())),
                Some(what) => Finding::problem(about, what, format!("correct `{key}`")),
            });
        }
        if let Some(script) = self.command.arguments.first()
            && self.config.interpreter.is_some()
            && !Path::new(script).is_file()
        {
            let what = format!("script {script} is not there");
            found.push(Finding::problem(about, what, "correct `command`"));
        }
        match self.status().await {
            Ok(seen) if self.status.is_some() => {
                let what = format!("status_command says {}", workers(&seen));
                found.push(Finding::good(about, what));
            }
            Ok(seen) => found.push(Finding::warning(
                about,
                format!("nobody is asked how many workers there are; assumed: {}", workers(&seen)),
                "give a `status_command` that prints the number",
            )),
            Err(missing) => found.push(Finding::problem(
                about,
                missing.to_string(),
                "run it by hand and correct what it says",
            )),
        }
        found
    }
}

fn workers(seen: &FleetSeen) -> String {
    match seen.reading.capacity() {
        1 => "1 worker".into(),
        n => format!("{n} workers"),
    }
}

/// Says more than the operating system does.
fn why_no_start(call: &Call, error: &std::io::Error) -> String {
    if error.raw_os_error() == Some(rustix::io::Errno::NOEXEC.raw_os_error()) {
        return format!("{} has no #! line; set `interpreter: bash`", call.name());
    }
    program::fault(&call.program).unwrap_or_else(|| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn problems_name_their_key() {
        let keys = |config: &ScriptConfig| {
            config.problems().into_iter().map(|(key, _)| key).collect::<Vec<_>>()
        };
        assert_eq!(keys(&ScriptConfig::default()), ["command", "initial"]);
        let good = ScriptConfig {
            command: Words::One("./scale.sh".into()),
            initial: Some(1),
            ..ScriptConfig::default()
        };
        assert_eq!(keys(&good), [""; 0]);
        let wrong = ScriptConfig {
            timeout: Span::ZERO,
            status_command: Some(Words::One("x".into())),
            env: [("HEADCOUNT_GROUP".to_owned(), Secret::from("x"))].into(),
            ..good
        };
        assert_eq!(keys(&wrong), ["env.HEADCOUNT_GROUP", "timeout", "initial"]);
        let absurd = ScriptConfig {
            timeout: Span::from_hours(999_999),
            initial: Some(99_999_999),
            status_command: None,
            env: BTreeMap::new(),
            ..wrong
        };
        let said = absurd.problems();
        let limit = "99999999 is above the limit of 10000 workers".to_owned();
        assert_eq!(said[1], ("initial".to_owned(), limit), "{said:?}");
        assert_eq!(keys(&absurd), ["timeout", "initial"]);
    }
}
