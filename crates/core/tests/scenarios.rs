//! Stories in `tests/scenarios/*.txt`: what was seen, and what must be decided.
//!
//! ```text
//! rules {"workers": {"min": 1, "max": 4}}     the group's rules, JSON
//! cadence own                                 else every line is a policy tick
//! 30  queue 3/1  cpu 20  ready 2  => 3 scale_out backlog [a b]
//! ```
//!
//! A line is a time in seconds, what is seen, and after `=>` the number, the kind, the rule that
//! had the last word, and the victims if there are any. Seen can be: `queue WAITING/ACTIVE`, `cpu`,
//! `mem`, `ready`, `starting`, `draining`, `busy`, `died` and a number, `paused`, `SOURCE silent`,
//! `SOURCE old SECONDS`, and workers as `name:idle`, `name:busy`, `name:unknown`. Unsaid is an
//! empty queue and a CPU at 10 %.
//!
//! Between two lines: `failed` (else the change was done), `restart` (nobody saw the outcome),
//! `scale N [until T]`, `pause all|in|out [until T]`, `release`.
#![expect(clippy::unwrap_used, reason = "a test stops where it goes wrong")]

use std::path::Path;

use headcount_core::decision::Direction;
use headcount_core::reading::{FleetReading, HostReading, QueueReading, Worker, WorkerState};
use headcount_core::state::{Fixed, Outcome, Pause};
use headcount_core::{
    Cadence, Decision, Observation, Reading, Rules, Silence, Span, State, Timestamp, decide,
};

/// The group as it stands between two lines.
struct Story {
    rules: Rules,
    cadence: Cadence,
    state: State,
    outcome: Option<Outcome>,
    restarted: bool,
}

impl Story {
    fn new() -> Self {
        Self {
            rules: Rules::default(),
            cadence: Cadence::EveryLook,
            state: State::default(),
            outcome: Some(Outcome::Done),
            restarted: false,
        }
    }

    /// One line that is not a look.
    fn order(&mut self, words: &[&str], line: &str) {
        let until = |i: usize| words.get(i).map(|t| at(t));
        match words[0] {
            "rules" => {
                self.rules = serde_json::from_str(&line["rules".len()..]).expect("rules are JSON");
                assert!(self.rules.problems().is_empty(), "{:?}", self.rules.problems());
            }
            "cadence" if words[1] == "own" => self.cadence = Cadence::OwnPoll,
            "failed" => self.outcome = Some(Outcome::Failed),
            "not_now" => self.outcome = Some(Outcome::NotNow),
            "restart" => {
                self.outcome = None;
                self.restarted = true;
                let stored = serde_json::to_string(&self.state).unwrap();
                self.state = serde_json::from_str(&stored).unwrap();
            }
            "scale" => {
                let workers = words[1].parse().unwrap();
                self.state.controls.fixed = Some(Fixed { workers, until: until(3) });
            }
            "pause" => {
                let direction = match words[1] {
                    "all" => Direction::All,
                    "in" => Direction::In,
                    "out" => Direction::Out,
                    other => panic!("no direction: {other}"),
                };
                self.state.controls.pause = Some(Pause { direction, until: until(3) });
            }
            "release" => self.state.controls = Default::default(),
            other => panic!("no such order: {other}"),
        }
    }

    /// One look.
    fn look(&mut self, words: &[&str]) -> Decision {
        let now = at(words[0]);
        match self.outcome {
            Some(outcome) => self.state.note(outcome, now),
            None if self.restarted => self.state.resume(&self.rules, now),
            None => {}
        }
        (self.outcome, self.restarted) = (Some(Outcome::Done), false);
        let seen = observation(now, &words[1..]);
        decide(&self.rules, &mut self.state, &seen, self.cadence, now)
    }
}

fn at(seconds: &str) -> Timestamp {
    let seconds: i64 = seconds.parse().unwrap_or_else(|_| panic!("no time: {seconds}"));
    // A Monday at midnight, UTC.
    Timestamp::from_millis(1_789_948_800_000 + seconds * 1000)
}

fn observation(now: Timestamp, words: &[&str]) -> Observation {
    let mut queue = QueueReading::default();
    let mut host = HostReading { cpu_raw: 10.0, ..HostReading::default() };
    let mut fleet = FleetReading::default();
    let (mut silent, mut old, mut listed) = (Vec::new(), Vec::new(), Vec::new());
    let mut words = words.iter();
    while let Some(word) = words.next() {
        if let Some((id, busy)) = word.split_once(':') {
            let busy = match busy {
                "idle" => Some(false),
                "busy" => Some(true),
                _ => None,
            };
            let state = WorkerState::Ready;
            listed.push(Worker { id: id.into(), state, busy, started_at: None, version: None });
            continue;
        }
        if *word == "paused" {
            queue.paused = Some(true);
            continue;
        }
        let value = *words.next().unwrap_or_else(|| panic!("`{word}` needs a value"));
        let number = || value.parse::<u32>().unwrap_or_else(|_| panic!("no number: {value}"));
        match (*word, value) {
            (source, "silent") => silent.push(source),
            (source, "old") => old.push((source, *words.next().expect("`old` needs seconds"))),
            ("queue", value) => {
                let (waiting, active) = value.split_once('/').expect("WAITING/ACTIVE");
                queue.waiting = waiting.parse().unwrap();
                queue.active = active.parse().unwrap();
            }
            ("cpu", value) => host.cpu_raw = value.parse().unwrap(),
            ("mem", value) => host.mem = Some(value.parse().unwrap()),
            ("ready", _) => fleet.ready = number(),
            ("starting", _) => fleet.starting = number(),
            ("draining", _) => fleet.draining = number(),
            ("busy", _) => fleet.busy = Some(number()),
            ("died", _) => fleet.died = number(),
            (other, _) => panic!("nothing is called `{other}`"),
        }
    }
    if !listed.is_empty() {
        fleet = FleetReading::of(listed);
    }
    let taken = |source| {
        let age = old.iter().find(|(s, _)| *s == source).map_or("0", |(_, age)| age);
        now.plus(Span::from_secs(-age.parse::<i64>().unwrap()))
    };
    let is_silent = |source| silent.contains(&source);
    Observation {
        t: now,
        queue: reading(queue, is_silent("queue"), taken("queue")),
        host: reading(host, is_silent("host"), taken("host")),
        fleet: reading(fleet, is_silent("fleet"), taken("fleet")),
        budget: None,
    }
}

fn reading<T>(value: T, silent: bool, taken_at: Timestamp) -> Reading<T> {
    if silent {
        return Reading::missing(Silence::Refused, "");
    }
    Reading::known(value, taken_at)
}

/// `3 scale_in idle [a b]`, as the stories write it.
fn written(decision: &Decision) -> String {
    let wanted = decision.wanted.map_or("?".into(), |n| n.to_string());
    let Decision { kind, rule, victims, .. } = decision;
    let victims =
        if victims.is_empty() { String::new() } else { format!(" [{}]", victims.join(" ")) };
    format!("{wanted} {kind} {rule}{victims}")
}

/// Plays one story; returns how many looks it had and adds what went another way to `wrong`.
fn play(path: &Path, wrong: &mut Vec<String>) -> usize {
    let text = std::fs::read_to_string(path).unwrap();
    let (mut story, mut looks) = (Story::new(), 0);
    for (i, line) in text.lines().enumerate() {
        let line = line.split(" #").next().unwrap_or_default().trim();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let (left, expected) = line.split_once("=>").unwrap_or((line, ""));
        let words: Vec<&str> = left.split_whitespace().collect();
        if expected.is_empty() {
            story.order(&words, line);
            continue;
        }
        let decision = story.look(&words);
        let expected = expected.split_whitespace().collect::<Vec<_>>().join(" ");
        let (number, decided) = (i + 1, written(&decision));
        if decided != expected {
            let why: Vec<String> =
                decision.trail.iter().map(|s| format!("    {}: {}", s.rule, s.why)).collect();
            let why = why.join("\n");
            wrong.push(format!("{}:{number}: {line}\n  was {decided}\n{why}", path.display()));
        }
        looks += 1;
    }
    looks
}

#[test]
fn every_story_ends_as_written() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/scenarios");
    let mut stories: Vec<_> =
        std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    stories.sort();
    assert!(stories.len() >= 8, "stories are missing: {stories:?}");
    let mut wrong = Vec::new();
    for story in &stories {
        assert!(play(story, &mut wrong) > 2, "{} has hardly any looks", story.display());
    }
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
}
