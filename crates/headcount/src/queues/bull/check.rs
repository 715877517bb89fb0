//! What a person who sets up a Bull queue should know.

use ::redis::{cmd, from_redis_value};
use headcount_core::{Missing, Silence};

use super::Bull;
use crate::finding::{Fact, Finding};
use crate::limits::SECOND_SAMPLE;
use crate::queues::redis::{Hearing, Topic};
use crate::queues::{Queue, QueueSeen};

const ABOUT: &str = "queue";

impl Bull {
    /// Everything, each with its fix.
    pub(super) async fn findings(&mut self) -> Vec<Finding> {
        self.neighbours.forget();
        if let Err(missing) = self.read().await {
            return vec![self.unreadable(&missing)];
        }
        // Orphans show from the second sample on.
        tokio::time::sleep(SECOND_SAMPLE).await;
        let seen = match self.read().await {
            Ok(seen) => seen,
            Err(missing) => return vec![self.unreadable(&missing)],
        };
        let mut findings = vec![Finding::good(
            ABOUT,
            format!("redis {} answers, queue {}", self.redis.place(), self.keys.queue),
        )];
        findings.extend(self.of_queue(&seen));
        findings.push(self.of_eviction().await);
        findings.extend(self.of_rights());
        findings.extend(self.of_workers(&seen));
        findings
    }

    fn unreadable(&self, missing: &Missing) -> Finding {
        let fix = match missing.why {
            Silence::Denied => denied(&missing.detail),
            Silence::Refused => "start redis, or correct host and port in url",
            Silence::Timeout => "look whether redis is overloaded or behind a firewall",
            Silence::NotFound => {
                "set prefix (QUEUE_BULL_PREFIX) and queue to those of a queue that \
                 exists, and the database number in url to n8n's"
            }
            Silence::Malformed => "look whether url names a redis, and whether it needs rediss://",
            _ => "check url, network and TLS settings",
        };
        Finding::problem(ABOUT, missing.to_string(), fix)
    }

    fn of_queue(&self, seen: &QueueSeen) -> Vec<Finding> {
        let reading = &seen.reading;
        let mut findings = Vec::new();
        if reading.paused == Some(true) {
            findings.push(Finding::warning(
                ABOUT,
                format!(
                    "the queue is paused: {} in it and no worker takes them",
                    count(reading.held.unwrap_or(0), "job waits", "jobs wait")
                ),
                "resume it; until then headcount counts nothing as waiting",
            ));
        }
        if let Some(orphans) = reading.orphaned.filter(|n| *n > 0) {
            findings.push(Finding::warning(
                ABOUT,
                count(
                    orphans,
                    "active job has no lock: its worker died",
                    "active jobs have no lock: their workers died",
                ),
                "keep one worker running, it clears them; let workers drain before they are killed",
            ));
        }
        if reading.finished_total == Some(0) && reading.waiting + reading.active == 0 {
            findings.push(Finding::warning(
                ABOUT,
                "the queue has never had a job",
                "if n8n has run jobs, compare prefix, queue and the database number with n8n's",
            ));
        }
        findings
    }

    /// A Redis that evicts keys loses jobs without a word.
    async fn of_eviction(&self) -> Finding {
        let mut info = cmd("INFO");
        info.arg("memory");
        let answers = self.redis.ask_masters(&info).await.unwrap_or_default();
        let texts: Vec<String> =
            answers.into_iter().filter_map(|answer| from_redis_value(answer.ok()?).ok()).collect();
        let value = |text: &String, key: &str| {
            text.lines().find_map(|line| line.strip_prefix(key)).map(|v| v.trim().to_string())
        };
        let policies: Vec<_> =
            texts.iter().filter_map(|text| value(text, "maxmemory_policy:")).collect();
        match policies.iter().find(|policy| *policy != "noeviction") {
            _ if policies.is_empty() => Finding::warning(
                ABOUT,
                "redis does not tell its eviction policy",
                "allow INFO for the user, or make sure that maxmemory-policy is noeviction",
            ),
            None => Finding::good(ABOUT, "redis evicts no keys"),
            Some(policy) => Finding::problem(
                ABOUT,
                format!("redis may evict jobs: maxmemory-policy is {policy}"),
                "CONFIG SET maxmemory-policy noeviction, and the same in redis.conf",
            ),
        }
    }

    fn of_rights(&self) -> Vec<Finding> {
        let mut findings = Vec::new();
        let mut lacks = |said: &Option<String>, loss: &str, fix: &str| {
            if let Some(said) = said {
                findings.push(Finding::warning(ABOUT, format!("{loss} ({said})"), fix));
            }
        };
        lacks(
            &self.refused.script,
            "scripts are refused: a look takes two round trips and tells no priorities",
            "ACL SETUSER name +eval",
        );
        lacks(
            &self.refused.clients,
            "connections cannot be seen: full and draining workers are not recognised",
            "ACL SETUSER name +client|list",
        );
        lacks(
            &self.refused.status_request,
            "workers cannot be asked what they run",
            "ACL SETUSER name +publish &n8n:*",
        );
        if let Some(denied) = self.deaf_to() {
            findings.push(Finding::warning(
                ABOUT,
                format!("some messages cannot be heard: {denied}"),
                "ACL SETUSER name +subscribe +psubscribe allchannels",
            ));
        }
        findings
    }

    fn deaf_to(&self) -> Option<String> {
        let hearing = self.ears.as_ref()?.hearing();
        let hearing = hearing.borrow();
        match &*hearing {
            Hearing::NotYet => Some("no subscription yet".into()),
            Hearing::Lost(missing) => Some(missing.to_string()),
            Hearing::Hears { denied } if denied.is_empty() => None,
            Hearing::Hears { denied } => {
                let names = denied.iter().map(|topic| match topic {
                    Topic::Channel(name) | Topic::Pattern(name) => name.as_str(),
                });
                Some(names.collect::<Vec<_>>().join(", "))
            }
        }
    }

    fn of_workers(&self, seen: &QueueSeen) -> Vec<Finding> {
        let (answered, connected) = self.workers.last;
        let mut findings = Vec::new();
        if seen.consumers.is_none() {
            findings.push(Finding::warning(
                ABOUT,
                "no worker of this queue is known to redis",
                "nothing, if none runs; else compare prefix, queue and n8n_prefix with n8n's",
            ));
            return findings;
        }
        if connected == 0 {
            let who = count(answered as u64, "worker answers", "workers answer");
            findings.push(match &self.refused.clients {
                // What is lost by that is told with the rights.
                Some(_) => Finding::good(ABOUT, format!("{who}; connections cannot be seen")),
                None => Finding::warning(
                    ABOUT,
                    format!("{who}, but none takes jobs of queue {}", self.keys.queue),
                    "nothing, if they just start or end; else compare prefix and queue with n8n's",
                ),
            });
            return findings;
        }
        let what = told(connected, answered);
        let finding = if answered < connected {
            Finding::warning(
                ABOUT,
                what,
                "compare n8n_prefix with N8N_REDIS_KEY_PREFIX; a worker that does not answer may \
                 be stuck, and is never taken for idle",
            )
        } else {
            Finding::good(ABOUT, what)
        };
        findings.push(finding.stating(Fact::Consumers(connected)));
        let clashes = self.workers.clashes();
        if !clashes.is_empty() {
            findings.push(Finding::warning(
                ABOUT,
                format!("several workers share a name: {}", clashes.join(", ")),
                "give each its own: no hostname: in compose, no host network",
            ));
        }
        findings
    }
}

/// What to do when Redis refuses, by what it said.
fn denied(said: &str) -> &'static str {
    let said = said.to_lowercase();
    if said.contains("noperm") {
        "let the user read the queue: ACL SETUSER name ~bull:* &* +@read +@pubsub +eval +client|list"
    } else if said.contains("noauth") {
        "redis wants a password: set `password` or `password_file` (and `username`, if it has users)"
    } else if said.contains("wrongpass") || said.contains("authentication") {
        "correct `password` or `password_file` (REDIS_PASSWORD), and `username` if one is given"
    } else {
        "let the user of headcount open redis's socket, or correct url"
    }
}

fn count(n: u64, one: &str, many: &str) -> String {
    format!("{n} {}", if n == 1 { one } else { many })
}

/// How many workers are connected, and how many say what they run.
fn told(connected: usize, answered: usize) -> String {
    let connected_text = count(connected as u64, "worker is connected", "workers are connected");
    match answered {
        0 => format!("{connected_text}, none says what it runs"),
        n if n < connected => format!("{connected_text}, {n} of them answered what they run"),
        _ if connected == 1 => format!("{connected_text} and says what it runs"),
        _ => format!("{connected_text} and say what they run"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_is_answered_by_what_redis_said() {
        let cases = [
            ("redis h:1: WRONGPASS: invalid username-password pair", "correct `password`"),
            ("redis h:1: NOAUTH: Authentication required.", "set `password`"),
            ("redis h:1: NoPerm: no permissions to access a key", "let the user read the queue"),
            ("redis /run/redis.sock: Permission denied (os error 13)", "redis's socket"),
        ];
        for (said, fix) in cases {
            assert!(denied(said).contains(fix), "{said}: {}", denied(said));
        }
    }

    #[test]
    fn one_worker_and_many_are_told_in_whole_sentences() {
        assert_eq!(told(1, 1), "1 worker is connected and says what it runs");
        assert_eq!(told(2, 3), "2 workers are connected and say what they run");
        assert_eq!(told(3, 1), "3 workers are connected, 1 of them answered what they run");
        assert_eq!(told(1, 0), "1 worker is connected, none says what it runs");
    }
}
