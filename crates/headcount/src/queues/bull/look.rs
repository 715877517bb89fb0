//! What the queue holds, read in one go: by a script that changes nothing, or, where Redis refuses
//! scripts, by plain commands in two round trips.

use ::redis::{
    Cmd, ErrorKind, Pipeline, RedisError, ServerErrorKind, Value, cmd, from_redis_value,
};
use headcount_core::reading::LIST_LIMIT;
use headcount_core::{Missing, Timestamp};

use super::keys::Keys;
use crate::limits::{ACTIVE_JOBS, PRIORITIES};
use crate::queues::redis::{Redis, malformed, missing};

/// What the queue holds.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Raw {
    /// The counter of all jobs ever added.
    pub(super) id: Option<u64>,
    pub(super) waiting: u64,
    /// Jobs that wait in a paused queue.
    pub(super) held: u64,
    pub(super) paused: bool,
    pub(super) active_len: u64,
    pub(super) delayed: u64,
    /// Of the delayed jobs those whose time has come; a worker must be there to move them.
    pub(super) due: u64,
    /// The oldest active jobs, at most [`ACTIVE_JOBS`].
    pub(super) active: Vec<Active>,
    /// When the next jobs to be taken were added, at most [`LIST_LIMIT`].
    pub(super) added: Vec<Timestamp>,
    /// Waiting jobs per priority, the most urgent first.
    pub(super) priorities: Vec<(String, u64)>,
}

/// An entry of the list of active jobs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Active {
    pub(super) id: String,
    pub(super) locked: bool,
    pub(super) since: Option<Timestamp>,
    /// When it was added.
    pub(super) added: Option<Timestamp>,
}

type Counts = (Option<u64>, u64, u64, bool, u64, u64, u64);
type Texts = Vec<Option<String>>;
type Lists = (Vec<String>, Vec<bool>, Texts, Texts, Texts, Vec<String>, Vec<u64>);

/// Served from the right: the tail of both lists holds the oldest entries.
const SCRIPT: &str = "
local id, wait, paused, meta, active, delayed, priority = unpack(KEYS)
local base, due = ARGV[1], ARGV[2]
local jobs = redis.call('LRANGE', active, -tonumber(ARGV[3]), -1)
local locks, since, came, added, names, numbers = {}, {}, {}, {}, {}, {}
for i, job in ipairs(jobs) do
  locks[i] = redis.call('EXISTS', base .. job .. ':lock')
  since[i] = redis.call('HGET', base .. job, 'processedOn')
  came[i] = redis.call('HGET', base .. job, 'timestamp')
end
for i, job in ipairs(redis.call('LRANGE', wait, -tonumber(ARGV[4]), -1)) do
  added[i] = redis.call('HGET', base .. job, 'timestamp')
end
local at = '-inf'
for i = 1, tonumber(ARGV[5]) do
  local first = redis.call('ZRANGEBYSCORE', priority, at, '+inf', 'WITHSCORES', 'LIMIT', 0, 1)
  if not first[2] then break end
  names[i] = first[2]
  numbers[i] = redis.call('ZCOUNT', priority, first[2], first[2])
  at = '(' .. first[2]
end
return {
  { redis.call('GET', id), redis.call('LLEN', wait), redis.call('LLEN', paused),
    redis.call('EXISTS', meta), redis.call('LLEN', active), redis.call('ZCARD', delayed),
    redis.call('ZCOUNT', delayed, '-inf', due) },
  { jobs, locks, since, came, added, names, numbers },
}";

impl Raw {
    /// Whether Redis holds anything of the queue.
    pub(super) fn exists(&self) -> bool {
        self.id.is_some() || self.paused || self.held() > 0 || self.active_len + self.delayed > 0
    }

    /// Jobs added and not yet taken, now or later.
    fn held(&self) -> u64 {
        self.waiting + self.held
    }

    /// Jobs added and not finished.
    pub(super) fn unfinished(&self) -> u64 {
        self.held() + self.active_len + self.delayed
    }

    fn count(&mut self, counts: Counts) {
        (self.id, self.waiting, self.held, self.paused, self.active_len, self.delayed, self.due) =
            counts;
    }
}

/// The script that reads it all.
pub(super) fn script(keys: &Keys, now: Timestamp) -> Cmd {
    let mut eval = cmd("EVAL");
    eval.arg(SCRIPT).arg(7);
    for part in ["id", "wait", "paused", "meta-paused", "active", "delayed", "priority"] {
        eval.arg(keys.key(part));
    }
    eval.arg(keys.key("")).arg(due_score(now)).arg(ACTIVE_JOBS).arg(LIST_LIMIT).arg(PRIORITIES);
    eval
}

/// Bull scores delayed jobs by their time in ms, shifted by twelve bits for a part of their number.
fn due_score(now: Timestamp) -> i64 {
    now.as_millis().saturating_mul(0x1000).saturating_add(0xfff)
}

/// What the script said.
pub(super) fn parse(value: Value, place: &str) -> Result<Raw, Missing> {
    let odd = |e: ::redis::ParsingError| malformed(place, &format!("odd answer to the look: {e}"));
    let (counts, lists): (Counts, Lists) = from_redis_value(value).map_err(odd)?;
    let (jobs, locks, since, came, added, names, numbers) = lists;
    let mut raw = Raw::default();
    raw.count(counts);
    raw.active = jobs
        .into_iter()
        .zip(locks)
        .zip(since.into_iter().zip(came))
        .map(|((id, locked), (since, came))| {
            let (since, added) = (millis(since), millis(came));
            Active { id, locked, since, added }
        })
        .collect();
    raw.added = added.into_iter().filter_map(millis).collect();
    raw.priorities = names.into_iter().zip(numbers).collect();
    Ok(raw)
}

/// Whether scripts are refused, for good; the same questions may be allowed as plain commands.
pub(super) fn is_refusal(error: &RedisError) -> bool {
    let refusals = [ServerErrorKind::NoPerm, ServerErrorKind::ResponseError];
    matches!(error.kind(), ErrorKind::Server(kind) if refusals.contains(&kind))
}

/// The same by plain commands, put into the shape of the script's answer. Not a snapshot: a job that
/// moves meanwhile may count twice.
pub(super) async fn plainly(redis: &Redis, keys: &Keys, now: Timestamp) -> Result<Raw, Missing> {
    let mut pipeline = Pipeline::new();
    pipeline.cmd("GET").arg(keys.key("id"));
    pipeline.cmd("LLEN").arg(keys.wait());
    pipeline.cmd("LLEN").arg(keys.key("paused"));
    pipeline.cmd("EXISTS").arg(keys.key("meta-paused"));
    pipeline.cmd("LLEN").arg(keys.key("active"));
    pipeline.cmd("ZCARD").arg(keys.key("delayed"));
    pipeline.cmd("ZCOUNT").arg(keys.key("delayed")).arg("-inf").arg(due_score(now));
    pipeline.cmd("LRANGE").arg(keys.wait()).arg(-tail(LIST_LIMIT)).arg(-1);
    pipeline.cmd("LRANGE").arg(keys.key("active")).arg(-tail(ACTIVE_JOBS)).arg(-1);
    let mut counts = ask(redis, keys, &pipeline).await?;
    let jobs = counts.pop().unwrap_or_default();
    let next = counts.pop().unwrap_or_default();
    let ids = |list: &Value| {
        from_redis_value::<Vec<String>>(list.clone())
            .map_err(|e| malformed(redis.place(), &format!("odd list of jobs: {e}")))
    };
    let (job_ids, next_ids) = (ids(&jobs)?, ids(&next)?);

    let mut pipeline = Pipeline::new();
    for job in &job_ids {
        pipeline.cmd("EXISTS").arg(keys.key(&format!("{job}:lock")));
    }
    for job in &job_ids {
        pipeline.cmd("HGET").arg(keys.key(job)).arg("processedOn");
    }
    for job in &job_ids {
        pipeline.cmd("HGET").arg(keys.key(job)).arg("timestamp");
    }
    for job in &next_ids {
        pipeline.cmd("HGET").arg(keys.key(job)).arg("timestamp");
    }
    let mut locks = Vec::new();
    if !pipeline.is_empty() {
        locks = ask(redis, keys, &pipeline).await?;
    }
    let mut since = locks.split_off(job_ids.len().min(locks.len()));
    let mut came = since.split_off(job_ids.len().min(since.len()));
    let added = came.split_off(job_ids.len().min(came.len()));
    let none = || Value::Array(Vec::new());
    let [locks, since, came, added] = [locks, since, came, added].map(Value::Array);
    let lists = vec![jobs, locks, since, came, added, none(), none()];
    parse(Value::Array(vec![Value::Array(counts), Value::Array(lists)]), redis.place())
}

async fn ask(redis: &Redis, keys: &Keys, pipeline: &Pipeline) -> Result<Vec<Value>, Missing> {
    let answers = redis.ask(pipeline, &keys.wait()).await?;
    let values = answers.into_iter().collect::<Result<_, _>>();
    values.map_err(|error| missing(&error, redis.place()))
}

fn tail(limit: usize) -> i64 {
    i64::try_from(limit).unwrap_or(i64::MAX)
}

fn millis(text: Option<String>) -> Option<Timestamp> {
    text?.parse().ok().map(Timestamp::from_millis)
}
