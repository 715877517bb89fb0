//! What `headcount check` says of a Windmill script, without running it: whether Windmill is there and
//! knows the token, what the script takes, and where it runs.

use headcount_core::Silence;
use serde::Deserialize;
use serde_json::Value;

use super::WindmillScript;
use super::api::{ApiError, Ask};
use crate::finding::Finding;
use crate::limits::LOOK_TIMEOUT;
use crate::targets::Target;
use crate::targets::assumed::brief;

const ABOUT: &str = "target";
/// Without the first two no script can scale anything.
const ARGUMENTS: [&str; 4] = ["worker_group", "desired_workers", "reason", "event_type"];

/// Who asks.
#[derive(Deserialize)]
struct User {
    username: Option<String>,
    email: Option<String>,
}

/// What is known of a script.
#[derive(Deserialize)]
#[serde(default)]
#[derive(Default)]
struct Script {
    schema: Value,
    tag: Option<String>,
    archived: bool,
    language: String,
}

impl WindmillScript {
    pub(super) async fn findings(&mut self) -> Vec<Finding> {
        let place = self.api.place().to_owned();
        let mut found = match self.api.text(ask("asking for the version", "version")).await {
            Ok(version) => {
                vec![Finding::good(ABOUT, format!("windmill {} at {place}", brief(version.trim())))]
            }
            Err(error) => return vec![unreached(&error)],
        };
        let who = self.api.within("users/whoami");
        match self.api.get::<User>(ask("asking who the token is", &who)).await {
            Ok(User { username, email }) => {
                let user = email.or(username).unwrap_or_else(|| "a user".into());
                let what = format!("asks as {user} in workspace {}", self.config.workspace);
                found.push(Finding::good(ABOUT, what));
            }
            Err(error) => {
                found.push(self.not_known(&error));
                return found;
            }
        }
        let path = self.api.within(&format!("scripts/get/p/{}", self.config.path));
        match self.api.get::<Script>(ask("reading the script", &path)).await {
            Ok(script) => found.extend(self.of_script(&script)),
            Err(error) => found.push(self.no_script(&error)),
        }
        found.push(self.number().await);
        found
    }

    fn of_script(&self, script: &Script) -> Vec<Finding> {
        let path = &self.config.path;
        let fix = "declare the arguments worker_group, desired_workers, reason and event_type, in \
                   this order";
        let taken = script.schema.get("properties").and_then(Value::as_object);
        let takes = |name: &&str| taken.is_none_or(|taken| taken.contains_key(*name));
        let missing: Vec<&str> = ARGUMENTS.iter().filter(|name| !takes(name)).copied().collect();
        let names = missing.join(", ");
        let mut found = vec![match missing.as_slice() {
            _ if script.archived => {
                let what = format!("script {path} is archived");
                Finding::problem(ABOUT, what, "unarchive it, or correct `path`")
            }
            [] => Finding::good(ABOUT, format!("script {path} ({}) is there", script.language)),
            [first, ..] if ARGUMENTS[..2].contains(first) => {
                Finding::problem(ABOUT, format!("script {path} takes no {names}"), fix)
            }
            _ => Finding::warning(ABOUT, format!("script {path} takes no {names}"), fix),
        }];
        let own = script.tag.as_deref().filter(|tag| !tag.is_empty());
        found.push(match self.config.tag.as_deref().or(own) {
            Some(tag) => Finding::good(ABOUT, format!("it runs on workers with the tag {tag}")),
            None => Finding::warning(
                ABOUT,
                "the script has no tag: where the scaled group itself runs it, it waits until a \
                 worker is free there, and at 0 workers for ever",
                "set `tag` to one that workers of another group listen to",
            ),
        });
        found
    }

    async fn number(&mut self) -> Finding {
        let asked = self.assumed.is_none();
        match self.status().await {
            Ok(seen) => {
                let there = match seen.reading.capacity() {
                    1 => "1 worker".to_owned(),
                    n => format!("{n} workers"),
                };
                match asked {
                    true => {
                        let what = format!("windmill shows {there} of group {}", self.group);
                        Finding::good(ABOUT, what)
                    }
                    false => Finding::warning(
                        ABOUT,
                        format!("nobody is asked how many workers there are; assumed: {there}"),
                        "remove `initial`, so that windmill is asked",
                    ),
                }
            }
            Err(missing) => Finding::problem(
                ABOUT,
                missing.to_string(),
                "use the token of an admin, or set `initial`",
            ),
        }
    }

    fn not_known(&self, error: &ApiError) -> Finding {
        let workspace = &self.config.workspace;
        let fix = match error.status {
            Some(401) => "make a new token in windmill: account settings, tokens".to_owned(),
            Some(403 | 404) => {
                format!("correct `workspace`, or add the token's user to workspace {workspace}")
            }
            _ => "look into windmill's log".to_owned(),
        };
        Finding::problem(ABOUT, error.to_string(), fix)
    }

    fn no_script(&self, error: &ApiError) -> Finding {
        let fix = match error.status {
            Some(404) => {
                format!("correct `path`, or make the script in workspace {}", self.config.workspace)
            }
            _ => "let the token's user read and run the script".to_owned(),
        };
        Finding::problem(ABOUT, error.to_string(), fix)
    }
}

fn ask<'a>(what: &'a str, path: &'a str) -> Ask<'a> {
    Ask { what, path, query: &[], limit: LOOK_TIMEOUT }
}

fn unreached(error: &ApiError) -> Finding {
    let fix = match error.why {
        Silence::Denied => "correct the token; behind a proxy of yours, let it pass /api",
        _ => "start windmill, or correct `url`",
    };
    Finding::problem(ABOUT, error.to_string(), fix)
}
