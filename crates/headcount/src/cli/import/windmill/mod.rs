//! `headcount import windmill`: the autoscaling of worker groups, from Windmill's database or from JSON.

mod rows;
mod scaling;
mod yaml;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use headcount_core::Missing;
use serde::Serialize;
use serde_json::Value;

use super::{Output, read};
use crate::cli::{Globals, WrongUse, block_on, out};
use crate::postgres::{Postgres, PostgresConfig};
use crate::secret::Secret;
use rows::Row;
use scaling::{Integration, Scaling};

/// The tags and the autoscaling of all groups, without what may be secret, and how many workers of
/// the group are live. Workers of a native process have eight rows. What is no object, or has no
/// name, is no worker group to Windmill either.
const GROUPS: &str = "\
SELECT json_build_object('name', name, 'config', CASE WHEN jsonb_typeof(config) = 'object'
    THEN config - 'env_vars_static' - 'init_bash' - 'periodic_script_bash' END,
  'live', (SELECT count(DISTINCT CASE WHEN worker_group = 'native' THEN worker_instance ELSE worker END)
    FROM worker_ping WHERE worker_group = substr(name, 9) AND ping_at > now() - interval '30 s'))
FROM config WHERE name LIKE 'worker\\_\\__%' AND coalesce(jsonb_typeof(config), 'null') IN ('object', 'null')
ORDER BY name";

/// Where the url is expected if it was not in a file.
const URL_FILE: &str = "windmill-url";

/// Arguments of `headcount import windmill`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
JSON is a group's configuration, its `autoscaling` alone, rows with `name` and `config`, or what \
/api/configs/list_worker_groups answers. In Windmill's database:
  SELECT json_agg(row_to_json(c)) FROM config c WHERE name LIKE 'worker\\_\\_%'")]
pub struct Args {
    /// A file with JSON; `-` is standard input
    #[arg(value_name = "JSON-FILE", required_unless_present_any = ["url", "url_file"],
        conflicts_with_all = ["url", "url_file"])]
    source: Option<PathBuf>,
    /// Windmill's DATABASE_URL. It is not written anywhere
    #[arg(long, value_name = "URL", conflicts_with = "url_file")]
    url: Option<String>,
    /// A file with Windmill's DATABASE_URL; the configuration names the file
    #[arg(long, value_name = "FILE")]
    url_file: Option<PathBuf>,
    /// Only this group; may be given several times. Names the group of JSON that does not
    #[arg(short, long = "group", value_name = "NAME")]
    groups: Vec<String>,
    #[command(flatten)]
    output: Output,
}

/// A worker group and its rules.
struct Group {
    /// As Windmill has it.
    name: String,
    /// Its live workers, where they are known.
    live: Option<u32>,
    native: bool,
    scaling: Scaling,
}

/// What was done, for programs.
#[derive(Serialize)]
struct Report<'a> {
    file: Option<&'a Path>,
    groups: Vec<GroupReport<'a>>,
}

#[derive(Serialize)]
struct GroupReport<'a> {
    group: &'a str,
    enabled: bool,
    target: &'static str,
    notes: &'a [String],
}

impl Args {
    pub(super) fn run(self, globals: &Globals) -> anyhow::Result<ExitCode> {
        self.output.ready()?;
        let rows = match &self.source {
            Some(source) => rows::parse(&read(source)?)
                .map_err(|what| WrongUse(format!("{}: {what}", shown(source))))?,
            None => self.ask()?,
        };
        let (groups, wrong) = self.chosen(rows)?;
        if groups.is_empty() && !wrong.is_empty() {
            return Err(WrongUse(wrong.join("\n")).into());
        }
        let text = yaml::write(&groups, &self.url_file()?);
        self.output.write(&text)?;
        if !self.output.is_printed() {
            self.report(&groups, globals.json)?;
        }
        if wrong.is_empty() {
            return Ok(ExitCode::SUCCESS);
        }
        Err(WrongUse(format!("left out, correct them in Windmill:\n{}", wrong.join("\n"))).into())
    }

    /// The rows of the database.
    fn ask(&self) -> anyhow::Result<Vec<Row>> {
        let config = PostgresConfig {
            url: self.url.as_deref().map(Secret::from),
            url_file: self.url_file.clone(),
            ..PostgresConfig::default()
        };
        if let Some((key, what)) = config.problems().into_iter().next() {
            return Err(WrongUse(format!("--{}: {what}", key.replace('_', "-"))).into());
        }
        let postgres = Postgres::open(&config, Path::new(""))?;
        let told = block_on(postgres.ask(GROUPS))?;
        let told = told.map_err(|Missing { detail, .. }| {
            let fix = match detail.contains("permission denied") {
                true => "; the role needs SELECT on config and worker_ping",
                false => "",
            };
            anyhow::anyhow!("windmill's groups cannot be read: {detail}{fix}")
        })?;
        if told.is_empty() {
            anyhow::bail!("there is no worker group in config at {}", postgres.place());
        }
        rows::parse(&told.join("\n"))
            .map_err(|what| anyhow::anyhow!("{}: {what}", postgres.place()))
    }

    /// The groups that are wanted, understood, and what makes no sense in others.
    fn chosen(&self, rows: Vec<Row>) -> Result<(Vec<Group>, Vec<String>), WrongUse> {
        let mut groups = Vec::new();
        let mut wrong = Vec::new();
        let unnamed = match self.groups.as_slice() {
            [] => "default",
            [one] => one,
            _ if rows.iter().any(|row| row.name.is_none()) => {
                let what = "the JSON does not name its group; give --group once, with its name";
                return Err(WrongUse(what.into()));
            }
            _ => "",
        };
        let mut there = Vec::new();
        for Row { name, config, live } in rows {
            let name = name.unwrap_or_else(|| unnamed.to_owned());
            there.push(name.clone());
            if !self.groups.is_empty() && !self.groups.contains(&name) {
                continue;
            }
            let native = match config.get("native_mode") {
                Some(Value::Bool(native)) => *native,
                _ => name == "native",
            };
            match Scaling::of(&config) {
                Ok(scaling) => groups.push(Group { name, live, native, scaling }),
                Err(faults) => {
                    wrong.extend(faults.into_iter().map(|fault| format!("group {name}: {fault}")));
                }
            }
        }
        if let Some(name) = self.groups.iter().find(|name| !there.contains(name)) {
            let what = format!("there is no worker group `{name}`; there are {}", there.join(", "));
            return Err(WrongUse(what));
        }
        Ok((groups, wrong))
    }

    /// The file with the url, as the written file should name it.
    fn url_file(&self) -> anyhow::Result<PathBuf> {
        let Some(file) = &self.url_file else { return Ok(URL_FILE.into()) };
        let folder = self.output.output.parent().unwrap_or(Path::new(""));
        let is_here = folder.as_os_str().is_empty() || folder == Path::new(".");
        Ok(if is_here { file.clone() } else { std::path::absolute(file)? })
    }

    fn report(&self, groups: &[Group], json: bool) -> std::io::Result<()> {
        let file = &self.output.output;
        if json {
            let groups = groups.iter().map(GroupReport::of).collect();
            return out::print_json_line(&Report { file: Some(file), groups });
        }
        let about = |group: &Group| format!("{} ({})", group.name, target_of(group));
        let names: Vec<String> = groups.iter().map(about).collect();
        out::line(format!("wrote {}: {}", file.display(), names.join(", ")))?;
        for Group { name, scaling, .. } in groups {
            for note in &scaling.notes {
                out::line(out::styled(out::WARNING, format!("{name}: {note}")))?;
            }
        }
        out::line("next: `headcount check`, then `headcount run --dry-run`")
    }
}

/// A source, for messages.
fn shown(source: &Path) -> String {
    if source == Path::new("-") { "standard input".into() } else { source.display().to_string() }
}

impl<'a> GroupReport<'a> {
    fn of(group: &'a Group) -> Self {
        let Scaling { enabled, notes, .. } = &group.scaling;
        let enabled = *enabled == Some(true);
        Self { group: &group.name, enabled, target: target_of(group), notes }
    }
}

/// The target that is written for a group.
fn target_of(group: &Group) -> &'static str {
    match &group.scaling.integration {
        _ if group.scaling.enabled != Some(true) => "dry_run",
        Integration::DryRun | Integration::Other(_) => "dry_run",
        Integration::Script { .. } => "windmill_script",
        Integration::Kubernetes => "kubernetes",
    }
}
