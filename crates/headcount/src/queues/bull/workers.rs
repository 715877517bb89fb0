//! Who takes jobs from the queue, and who of them holds one. Two sources say a part each: workers
//! answer a status request (by their host's name, with what they run), and the connections on which
//! they wait for jobs show in Redis' list of clients (by address, free or full).

use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use ::redis::{Cmd, cmd};
use headcount_core::{QueueReading, Span, Timestamp};
use serde::Deserialize;
use serde_json::Value;
use tokio::time::{Instant, timeout_at};

use super::Trip;
use super::keys::Keys;
use super::wake::Ears;
use crate::clock;
use crate::limits::{
    CLASH_KEPT, CLIENTS_BYTES_PER_SECOND, JOB_AGE, REPLIES, REPLY_KEPT, REPLY_WAIT, SILENCE_PROVES,
};
use crate::queues::{Consumer, Identity};

/// What is remembered of the workers.
#[derive(Debug)]
pub(super) struct Workers {
    client_name: String,
    commands: String,
    slots: u32,
    cluster: bool,
    /// Marks the answers to our own requests.
    me: String,
    asked: u64,
    clients_due: Option<Instant>,
    /// Connections that ask for no job though a slot is free, by when they were first seen so.
    silent_since: HashMap<u64, Instant>,
    /// Connections that asked for a job in the last look, by what their workers ran then, and when
    /// they were asked that.
    asking: HashMap<u64, (usize, Instant)>,
    /// The most jobs that each worker was seen to run while it asked for another: it can run one
    /// more than that.
    room_beside: HashMap<String, usize>,
    /// Names that two workers had at once, by when.
    clashing: HashMap<String, Instant>,
    /// How many answered, and how many are connected.
    pub(super) last: (usize, usize),
}

/// A worker's answer to a status request.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Reply {
    heard: Instant,
    sender: String,
    hostname: String,
    addresses: Vec<IpAddr>,
    /// How many jobs it runs; absent when it does not say.
    running: Option<usize>,
    /// When the first of them began, by its clock, as far as that makes sense.
    first_began: Option<Timestamp>,
    /// Whose request it answers.
    asked_by: Option<String>,
}

/// A connection on which a worker waits for jobs.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Client {
    id: u64,
    peer: Option<SocketAddr>,
    state: ClientState,
    /// It has done nothing else for this long.
    idle: Duration,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ClientState {
    /// It waits for a job: a slot is free.
    Free,
    /// It took a job and asks for no other.
    Full,
    /// It did not ask on this connection yet: new, connected again while it is full, or draining.
    Silent,
    /// It has not asked for a job for a while though it could run one.
    Draining,
}

#[derive(Deserialize)]
struct Message {
    response: String,
    payload: Status,
}

#[derive(Deserialize, Default)]
#[serde(default, rename_all = "camelCase")]
struct Status {
    sender_id: String,
    hostname: String,
    interfaces: Vec<Interface>,
    running_jobs_summary: Option<Vec<Value>>,
    queue_name: Option<String>,
    requesting_user_id: Option<String>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct Interface {
    address: String,
    internal: bool,
}

impl Workers {
    /// Nobody known yet.
    pub(super) fn new(keys: &Keys, slots: u32, cluster: bool) -> Self {
        Self {
            client_name: keys.client_name.clone(),
            commands: keys.commands.clone(),
            slots,
            cluster,
            me: format!("headcount-{:08x}", fastrand::u32(..)),
            asked: 0,
            clients_due: None,
            silent_since: HashMap::new(),
            asking: HashMap::new(),
            room_beside: HashMap::new(),
            clashing: HashMap::new(),
            last: (0, 0),
        }
    }

    /// Asks all workers what they run.
    pub(super) fn request(&mut self) -> Cmd {
        self.asked += 1;
        let request = serde_json::json!({
            "senderId": self.me,
            "command": "get-worker-status",
            "payload": { "requestingUserId": self.token() },
        });
        let mut publish = cmd("PUBLISH");
        publish.arg(&self.commands).arg(request.to_string());
        publish
    }

    fn token(&self) -> String {
        format!("{}-{}", self.me, self.asked)
    }

    /// Whether the list of connections may be asked for again.
    pub(super) fn are_clients_due(&self, now: Instant) -> bool {
        self.clients_due.is_none_or(|due| now >= due)
    }

    /// A server with thousands of connections makes a long list.
    pub(super) fn note_clients_size(&mut self, bytes: usize, now: Instant) {
        let seconds = (bytes / CLIENTS_BYTES_PER_SECOND) as u64;
        self.clients_due = Some(now + Duration::from_secs(seconds));
    }

    /// Whether a worker of this queue is in the list of connections.
    pub(super) fn are_connected(&self, list: Option<&str>) -> bool {
        let name = format!(" name={} ", self.client_name);
        list.is_some_and(|list| list.contains(&name))
    }

    /// Names that several workers have.
    pub(super) fn clashes(&self) -> Vec<&str> {
        self.clashing.keys().map(String::as_str).collect()
    }

    /// Who takes jobs; absent if neither source knows of anybody.
    pub(super) async fn seen(
        &mut self,
        trip: &Trip,
        reading: &QueueReading,
        ears: &Ears,
    ) -> Option<Vec<Consumer>> {
        let now = Instant::now();
        let mut clients = trip.clients.as_deref().map(|list| self.clients(list));
        let replies = self.replies(trip, clients.as_ref().map(Vec::len), ears).await;
        self.note_clashes(&replies, now);
        if let Some(clients) = &mut clients {
            let unfinished = reading.active.saturating_add(reading.orphaned.unwrap_or(0));
            self.mark_draining(&replies, clients, unfinished, (trip.sent, now));
        }
        self.last = (replies.len(), clients.as_ref().map_or(0, Vec::len));
        self.consumers(&replies, clients, reading.active)
    }

    /// The connection in a line of the list, if a worker of this queue waits for jobs on it. In a
    /// cluster Bull names a connection to some node, and waits on another one without a name.
    fn client(&self, line: &str) -> Option<Client> {
        let fields: HashMap<&str, &str> =
            line.split(' ').filter_map(|field| field.split_once('=')).collect();
        let asks = fields.get("cmd").is_some_and(|cmd| ["brpoplpush", "blmove"].contains(cmd));
        let name = *fields.get("name")?;
        let is_named = name == self.client_name;
        if !(if self.cluster { asks && (is_named || name.is_empty()) } else { is_named }) {
            return None;
        }
        Some(Client {
            id: fields.get("id")?.parse().ok()?,
            peer: fields.get("addr")?.parse().ok(),
            state: if fields.get("flags")?.contains('b') {
                ClientState::Free
            } else if asks {
                ClientState::Full
            } else {
                ClientState::Silent
            },
            // Both ends are cut to whole seconds.
            idle: Duration::from_secs(fields.get("idle")?.parse::<u64>().ok()?.saturating_sub(1)),
        })
    }

    fn clients(&self, list: &str) -> Vec<Client> {
        list.lines().filter_map(|line| self.client(line)).collect()
    }

    /// Marks the silent ones that are draining for sure. A worker that is told to go connects anew
    /// and never asks, but so does a full one that lost its connection: silence proves something
    /// only while the worker is known to have a free slot. `unfinished` is the number of jobs in
    /// the active list, `(sent, now)` the time of the look.
    fn mark_draining(
        &mut self,
        replies: &[(Reply, bool)],
        clients: &mut [Client],
        unfinished: u64,
        (sent, now): (Instant, Instant),
    ) {
        let joined = joins(replies, clients);
        let owner: HashMap<u64, &(Reply, bool)> = joined
            .iter()
            .zip(replies)
            .filter_map(|(client, reply)| Some((client.as_ref()?.id, reply)))
            .collect();
        let nobody_runs =
            unfinished == 0 && replies.iter().all(|(r, _)| r.running.unwrap_or(0) == 0);
        self.room_beside.retain(|sender, _| replies.iter().any(|(r, _)| r.sender == *sender));
        let before = std::mem::take(&mut self.silent_since);
        let asking = std::mem::take(&mut self.asking);
        for client in clients {
            let owner = owner.get(&client.id);
            let running = owner.and_then(|(reply, fresh)| reply.running.filter(|_| *fresh));
            match (client.state, owner, running) {
                (ClientState::Free, Some((reply, _)), Some(running)) => {
                    // The list is older than the answer, which may tell of a job taken since. What
                    // the worker said last time was true while it asked, if it asks since then.
                    let then = asking.get(&client.id);
                    if let Some((running, at)) = then
                        && client.idle >= now.duration_since(*at)
                    {
                        let most = self.room_beside.entry(reply.sender.clone()).or_default();
                        *most = (*running).max(*most);
                    }
                    self.asking.insert(client.id, (running, sent));
                }
                (ClientState::Silent, ..) => {
                    let has_room = match (owner, running) {
                        (None, _) => nobody_runs,
                        (Some(_), None) => false,
                        (Some((reply, _)), Some(running)) => self.has_room(&reply.sender, running),
                    };
                    if has_room {
                        let since = before.get(&client.id).copied().unwrap_or(now);
                        self.silent_since.insert(client.id, since);
                        if now.duration_since(since) >= SILENCE_PROVES {
                            client.state = ClientState::Draining;
                        }
                    }
                }
                _ => {}
            }
        }
    }

    /// Whether a worker that runs so many jobs has a slot left, for sure: the configured number of
    /// slots may not be the worker's own.
    fn has_room(&self, sender: &str, running: usize) -> bool {
        let seen = self.room_beside.get(sender).filter(|_| !self.clashing.contains_key(sender));
        running == 0 || seen.is_some_and(|most| running <= *most)
    }

    /// The answers to this look's request, waited for briefly, and, of workers that did not answer
    /// it, the last ones if they are recent.
    async fn replies(
        &self,
        trip: &Trip,
        clients: Option<usize>,
        ears: &Ears,
    ) -> Vec<(Reply, bool)> {
        let token = self.token();
        let is_fresh = |reply: &Reply| match &reply.asked_by {
            Some(asked_by) => *asked_by == token,
            None => reply.heard >= trip.sent,
        };
        let known = latest(ears.replies(), |_| false).len();
        let expected = clients.unwrap_or(1).max(known) as u64;
        let expected = expected.min(trip.asked.unwrap_or(0));
        let until = Instant::now() + REPLY_WAIT;
        loop {
            let heard = ears.replies();
            let fresh = heard.iter().filter(|reply| is_fresh(reply)).count() as u64;
            if fresh >= expected || timeout_at(until, ears.reply()).await.is_err() {
                return latest(heard, is_fresh);
            }
        }
    }

    /// Workers that share a name cannot be told apart by it.
    fn note_clashes(&mut self, replies: &[(Reply, bool)], now: Instant) {
        self.clashing.retain(|_, at| now.duration_since(*at) < CLASH_KEPT);
        let mut names: HashMap<&str, usize> = HashMap::new();
        for (reply, _) in replies.iter().filter(|(_, fresh)| *fresh) {
            *names.entry(&reply.sender).or_default() += 1;
            *names.entry(&reply.hostname).or_default() += 1;
        }
        for (name, _) in names.into_iter().filter(|(_, times)| *times > 1).take(REPLIES) {
            if self.clashing.insert(name.to_string(), now).is_none() {
                tracing::debug!(name, "several workers have this name: it tells nothing");
            }
        }
    }

    fn consumers(
        &self,
        replies: &[(Reply, bool)],
        clients: Option<Vec<Client>>,
        active: u64,
    ) -> Option<Vec<Consumer>> {
        let list_known = clients.is_some();
        let mut clients = clients.unwrap_or_default();
        if replies.is_empty() && clients.is_empty() {
            return None;
        }
        let free_is_idle = self.free_is_idle(&clients, active);
        let joined: Vec<Option<Client>> = joins(replies, &clients);
        clients.retain(|client| !joined.iter().flatten().any(|j| j.id == client.id));
        let mut consumers = Vec::new();
        for ((reply, fresh), client) in replies.iter().zip(joined) {
            let mut consumer = self.of_reply(reply, *fresh);
            match client {
                Some(client) => merge(&mut consumer, of_client(&client, free_is_idle)),
                // Every connection belongs to somebody else: this worker has none.
                None if list_known && clients.is_empty() => consumer.consuming = Some(false),
                None => {}
            }
            consumers.push(consumer);
        }
        consumers.extend(clients.iter().map(|client| of_client(client, free_is_idle)));
        Some(consumers)
    }

    /// Whether a free slot proves that its worker holds no job. Each full worker holds one at least;
    /// if these are all that are active, none is left for the others.
    fn free_is_idle(&self, clients: &[Client], active: u64) -> bool {
        let count = |is: fn(ClientState) -> bool| {
            clients.iter().filter(|client| is(client.state)).count() as u64
        };
        let full = count(|state| state == ClientState::Full);
        let silent = count(|state| matches!(state, ClientState::Silent | ClientState::Draining));
        match self.slots {
            1 => active <= full + silent,
            // Of the nameless connections in a cluster some may belong to another queue.
            _ if self.cluster => active == 0,
            _ => active <= full,
        }
    }

    fn of_reply(&self, reply: &Reply, fresh: bool) -> Consumer {
        let mut known_as = Vec::new();
        let is_clear = |name: &str| !name.is_empty() && !self.clashing.contains_key(name);
        if let Some(container) = reply.container()
            && is_clear(&reply.sender)
        {
            known_as.push(Identity::Container(container.to_string()));
        }
        if is_clear(&reply.hostname) {
            known_as.push(Identity::Hostname(reply.hostname.clone()));
        }
        let busy = match reply.running {
            // It may have taken a job since.
            Some(0) if !fresh => None,
            running => running.map(|jobs| jobs > 0),
        };
        let oldest_job = reply.first_began.map(|at| clock::now().since(at).max(Span::ZERO));
        Consumer { known_as, busy, oldest_job, ..Consumer::default() }
    }
}

impl Reply {
    /// The answer in `payload`, if it is one of a worker of `queue`.
    pub(super) fn parse(payload: &[u8], queue: &str) -> Option<Self> {
        let message: Message = serde_json::from_slice(payload).ok()?;
        if message.response != "response-to-get-worker-status" {
            return None;
        }
        let status = message.payload;
        if status.queue_name.is_some_and(|name| name != queue) {
            return None;
        }
        let jobs = status.running_jobs_summary;
        let now = clock::now();
        let began = jobs.iter().flatten().filter_map(|job| began(job, now));
        let outside = status.interfaces.iter().filter(|interface| !interface.internal);
        Some(Self {
            heard: Instant::now(),
            sender: status.sender_id,
            hostname: status.hostname,
            addresses: outside.filter_map(|i| i.address.parse().ok()).collect(),
            first_began: began.min(),
            running: jobs.map(|jobs| jobs.len()),
            asked_by: status.requesting_user_id,
        })
    }

    /// Whether it still says something.
    pub(super) fn is_kept(&self) -> bool {
        self.heard.elapsed() < REPLY_KEPT
    }

    /// In a container n8n's name for a worker ends in the container's short id, unless the container
    /// was given a host name.
    fn container(&self) -> Option<&str> {
        let id = self.sender.strip_prefix("worker-")?;
        let is_id = id.len() == 12 && id.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'));
        is_id.then_some(id)
    }
}

/// When a running job began. n8n writes a date; a number of milliseconds is understood too. What
/// is still to come or lies too far back tells of a wrong clock only.
fn began(job: &Value, now: Timestamp) -> Option<Timestamp> {
    let at = match &job["startedAt"] {
        Value::String(date) => date.parse::<jiff::Timestamp>().ok()?.as_millisecond(),
        number => number.as_i64()?,
    };
    let at = Timestamp::from_millis(at);
    (Span::ZERO..=JOB_AGE).contains(&now.since(at)).then_some(at)
}

/// All fresh replies, and the last of each sender that has no fresh one.
fn latest(mut heard: Vec<Reply>, is_fresh: impl Fn(&Reply) -> bool) -> Vec<(Reply, bool)> {
    heard.retain(Reply::is_kept);
    let (fresh, older): (Vec<_>, Vec<_>) = heard.into_iter().partition(is_fresh);
    let mut last: HashMap<String, Reply> = HashMap::new();
    for reply in older {
        if !fresh.iter().any(|f| f.sender == reply.sender) {
            last.insert(reply.sender.clone(), reply);
        }
    }
    let older = last.into_values().map(|reply| (reply, false));
    fresh.into_iter().map(|reply| (reply, true)).chain(older).collect()
}

/// For each reply the one connection that comes from an address of that worker alone.
fn joins(replies: &[(Reply, bool)], clients: &[Client]) -> Vec<Option<Client>> {
    let has = |reply: &Reply, client: &Client| {
        client.peer.is_some_and(|peer| reply.addresses.contains(&peer.ip()))
    };
    let only_client = |reply: &Reply| {
        let mut of_it = clients.iter().filter(|client| has(reply, client));
        of_it.next().filter(|_| of_it.next().is_none())
    };
    let is_only_reply =
        |client: &Client| replies.iter().filter(|(reply, _)| has(reply, client)).count() == 1;
    replies
        .iter()
        .map(|(reply, _)| only_client(reply).filter(|client| is_only_reply(client)).cloned())
        .collect()
}

fn of_client(client: &Client, free_is_idle: bool) -> Consumer {
    Consumer {
        known_as: client.peer.map(Identity::Peer).into_iter().collect(),
        busy: match client.state {
            ClientState::Full => Some(true),
            ClientState::Free if free_is_idle => Some(false),
            _ => None,
        },
        oldest_job: None,
        draining: client.state == ClientState::Draining,
        consuming: Some(client.state != ClientState::Draining),
    }
}

/// One worker, known from both sides; whoever says busy is believed.
fn merge(consumer: &mut Consumer, other: Consumer) {
    consumer.known_as.extend(other.known_as);
    consumer.busy = match (consumer.busy, other.busy) {
        (Some(true), _) | (_, Some(true)) => Some(true),
        (one, another) => one.or(another),
    };
    consumer.oldest_job = consumer.oldest_job.max(other.oldest_job);
    consumer.draining = other.draining;
    consumer.consuming = other.consuming;
}

#[cfg(test)]
mod tests {
    use super::super::BullConfig;
    use super::*;

    const LINE: &str = "id=12 addr=172.18.0.5:49086 laddr=172.18.0.2:6379 fd=17 \
        name=bull:am9icw== age=2 idle=2 flags=b db=0 events=r cmd=brpoplpush user=default";

    fn workers(slots: u32) -> Workers {
        Workers::new(&Keys::new(&BullConfig::default(), false), slots, false)
    }

    fn client(id: u64, ip: [u8; 4], state: ClientState) -> Client {
        Client { id, peer: Some(SocketAddr::from((ip, 1000))), state, idle: Duration::ZERO }
    }

    fn reply(sender: &str, ip: [u8; 4], running: usize) -> (Reply, bool) {
        let reply = Reply {
            heard: Instant::now(),
            sender: sender.into(),
            hostname: sender.trim_start_matches("worker-").into(),
            addresses: vec![IpAddr::from(ip)],
            running: Some(running),
            first_began: None,
            asked_by: None,
        };
        (reply, true)
    }

    #[test]
    fn a_line_of_the_client_list() {
        let state = |line: &str| workers(1).client(line).map(|client| client.state);
        assert_eq!(state(LINE), Some(ClientState::Free));
        assert_eq!(state(&LINE.replace("flags=b", "flags=N")), Some(ClientState::Full));
        let silent = LINE.replace("flags=b", "flags=N").replace("brpoplpush", "client|setname");
        assert_eq!(state(&silent), Some(ClientState::Silent));
        assert_eq!(state(&LINE.replace("am9icw==", "am9i")), None);
        assert_eq!(state(""), None);
        let by_socket = LINE.replace("172.18.0.5:49086", "/run/redis.sock:0");
        assert_eq!(workers(1).client(&by_socket).unwrap().peer, None);
    }

    #[test]
    fn in_a_cluster_only_what_asks_for_jobs_tells_something() {
        let mut workers = workers(1);
        workers.cluster = true;
        let state = |line: &str| workers.client(line).map(|client| client.state);
        let nameless = LINE.replace("bull:am9icw==", "");
        assert_eq!(state(&nameless), Some(ClientState::Free));
        assert_eq!(state(&nameless.replace("flags=b", "flags=N")), Some(ClientState::Full));
        assert_eq!(state(&LINE.replace("flags=b", "flags=N").replace("brpoplpush", "NULL")), None);
        assert!(workers.are_connected(Some(LINE)));
    }

    /// The state of a worker's silent connection after so long, with `running` jobs all the time,
    /// if it was seen to ask for one beside `beside` others before.
    fn silent(running: usize, beside: Option<usize>, after: Duration) -> ClientState {
        let ip = [172, 18, 0, 5];
        let mut workers = workers(1);
        let start = Instant::now();
        if let Some(beside) = beside {
            let mut asking = [client(1, ip, ClientState::Free)];
            asking[0].idle = Duration::from_secs(2);
            for (running, after) in [(beside, 0), (beside + 1, 1), (beside + 9, 9)] {
                let at = start + Duration::from_secs(after);
                let replies = [reply("worker-a", ip, running)];
                workers.mark_draining(&replies, &mut asking, 9, (at, at));
            }
        }
        let mut now = |at| {
            let mut clients = [client(2, ip, ClientState::Silent)];
            workers.mark_draining(&[reply("worker-a", ip, running)], &mut clients, 9, (at, at));
            clients[0].state
        };
        assert_eq!(now(start), ClientState::Silent, "one look proves nothing");
        now(start + after)
    }

    #[test]
    fn only_silence_beside_a_free_slot_is_draining_and_only_after_a_while() {
        use ClientState::{Draining, Silent};
        let brief = SILENCE_PROVES / 2;
        for (running, beside, after, state) in [
            (0, None, brief, Silent),
            (0, None, SILENCE_PROVES, Draining),
            (1, None, SILENCE_PROVES, Silent),
            (1, Some(0), SILENCE_PROVES, Silent),
            (1, Some(1), SILENCE_PROVES, Draining),
            (2, Some(1), SILENCE_PROVES, Silent),
        ] {
            assert_eq!(silent(running, beside, after), state, "{running} {beside:?} {after:?}");
        }
    }

    #[test]
    fn busy_workers_that_connect_again_are_neither_draining_nor_stuck() {
        let silent = LINE.replace("flags=b", "flags=N").replace("brpoplpush", "NULL");
        let list = format!("{silent}\n{}", silent.replace("id=12", "id=13"));
        let (near, start) = ([127, 0, 0, 1], Instant::now());
        // The answers cannot be joined to the connections, as with processes on one machine.
        let mut workers = workers(1);
        let mut look = |running, unfinished, after| {
            let replies = [reply("worker-a", near, running), reply("worker-b", near, running)];
            let mut clients = workers.clients(&list);
            let at = (start, start + after);
            workers.mark_draining(&replies, &mut clients, unfinished, at);
            clients.iter().map(|client| of_client(client, false)).collect::<Vec<_>>()
        };
        for (running, unfinished) in [(1, 2), (0, 1), (1, 0)] {
            for after in [Duration::ZERO, SILENCE_PROVES] {
                let seen = look(running, unfinished, after);
                assert!(seen.iter().all(|c| !c.draining && c.consuming == Some(true)), "{seen:?}");
                assert!(seen.iter().all(|c| c.busy.is_none()), "{seen:?}");
            }
        }
        look(0, 0, SILENCE_PROVES);
        assert!(look(0, 0, 2 * SILENCE_PROVES).iter().all(|c| c.draining), "nobody has a job");
    }

    #[test]
    fn a_worker_known_from_both_sides_is_one_consumer() {
        let ip = [172, 18, 0, 5];
        let replies = [reply("worker-0123456789ab", ip, 0)];
        let clients = vec![client(1, ip, ClientState::Free)];
        let seen = workers(1).consumers(&replies, Some(clients), 0).unwrap();
        let known_as = vec![
            Identity::Container("0123456789ab".into()),
            Identity::Hostname("0123456789ab".into()),
            Identity::Peer(SocketAddr::from((ip, 1000))),
        ];
        let idle =
            Consumer { known_as, busy: Some(false), consuming: Some(true), ..Consumer::default() };
        assert_eq!(seen, [idle]);
    }

    #[test]
    fn either_side_that_says_busy_is_believed() {
        let ip = [172, 18, 0, 5];
        for (running, state, active, busy) in [
            (0, ClientState::Free, 0, Some(false)),
            (1, ClientState::Free, 1, Some(true)),
            (0, ClientState::Full, 1, Some(true)),
            (0, ClientState::Silent, 0, Some(false)),
        ] {
            let replies = [reply("worker-0123456789ab", ip, running)];
            let seen =
                workers(2).consumers(&replies, Some(vec![client(1, ip, state)]), active).unwrap();
            assert_eq!((seen.len(), seen[0].busy), (1, busy), "{running} {state:?}");
        }
    }

    #[test]
    fn a_free_slot_is_idle_only_if_others_hold_all_active_jobs() {
        use ClientState::{Draining, Free, Full};
        for (slots, states, active, busy) in [
            (1, vec![Free, Full], 1, Some(false)),
            (1, vec![Free, Full], 2, None),
            (1, vec![Free, Draining], 1, Some(false)),
            (10, vec![Free, Draining], 1, None),
            (10, vec![Free, Full], 10, None),
            (10, vec![Free, Free], 0, Some(false)),
        ] {
            let clients: Vec<_> =
                (1..).zip(&states).map(|(id, state)| client(id, [10, 0, 0, 1], *state)).collect();
            let seen = workers(slots).consumers(&[], Some(clients), active).unwrap();
            assert_eq!(seen[0].busy, busy, "{slots} {states:?} {active}");
        }
    }

    #[test]
    fn workers_behind_one_address_stay_apart() {
        let ip = [10, 0, 0, 1];
        let replies = [reply("worker-a", ip, 0), reply("worker-b", ip, 1)];
        let clients = vec![client(1, ip, ClientState::Free), client(2, ip, ClientState::Full)];
        let seen = workers(1).consumers(&replies, Some(clients), 1).unwrap();
        assert_eq!(seen.len(), 4);
        assert_eq!(seen[0].consuming, None, "which connection is whose is unknown");
    }

    #[test]
    fn a_worker_that_answers_but_has_no_connection_takes_no_jobs() {
        let replies = [reply("worker-a", [10, 0, 0, 1], 0), reply("worker-b", [10, 0, 0, 2], 0)];
        let clients = vec![client(1, [10, 0, 0, 2], ClientState::Free)];
        let seen = workers(1).consumers(&replies, Some(clients), 0).unwrap();
        assert_eq!(seen.iter().map(|c| c.consuming).collect::<Vec<_>>(), [Some(false), Some(true)]);
    }

    #[test]
    fn a_name_that_two_share_identifies_nobody() {
        let mut workers = workers(1);
        let replies = [reply("worker-a", [10, 0, 0, 1], 0), reply("worker-a", [10, 0, 0, 1], 1)];
        workers.note_clashes(&replies, Instant::now());
        let seen = workers.consumers(&replies, None, 1).unwrap();
        assert!(seen.iter().all(|consumer| consumer.known_as.is_empty()));
        assert_eq!(workers.clashes().len(), 2);
    }

    #[test]
    fn an_old_answer_proves_a_busy_worker_but_no_idle_one() {
        let workers = workers(1);
        let (idle, _) = reply("worker-a", [10, 0, 0, 1], 0);
        let (busy, _) = reply("worker-b", [10, 0, 0, 2], 1);
        let seen = workers.consumers(&[(idle, false), (busy, false)], None, 1).unwrap();
        assert_eq!(seen.iter().map(|c| c.busy).collect::<Vec<_>>(), [None, Some(true)]);
        assert_eq!(workers.consumers(&[], Some(Vec::new()), 0), None);
    }

    #[test]
    fn the_oldest_job_is_told_and_no_nonsense_counts() {
        let now = clock::now().as_millis();
        let date = |ago: i64| jiff::Timestamp::from_millisecond(now - ago).unwrap().to_string();
        let age = |jobs: Value| {
            let summary = serde_json::json!({ "hostname": "h", "runningJobsSummary": jobs });
            let message = serde_json::json!({
                "response": "response-to-get-worker-status", "payload": summary,
            });
            let reply = Reply::parse(message.to_string().as_bytes(), "jobs").unwrap();
            let consumer = workers(2).of_reply(&reply, true);
            assert_eq!(consumer.busy, Some(jobs != serde_json::json!([])));
            consumer.oldest_job.map(|age| age.as_secs())
        };
        let began = |at: Value| serde_json::json!({ "executionId": "1", "startedAt": at });
        let two = [began(date(70_000).into()), began((now - 90_500).into())];
        assert!((90..=120).contains(&age(two.into_iter().collect()).unwrap()));
        let hour = date(3_600_000);
        assert!((3_600..3_660).contains(&age([began(hour.into())].into_iter().collect()).unwrap()));
        for absurd in [
            date(-60_000).into(),
            (now / 1_000).into(),
            (-1).into(),
            i64::MAX.into(),
            i64::MIN.into(),
            1e300.into(),
            "yesterday".into(),
            Value::Null,
        ] {
            let jobs = [began(absurd.clone())].into_iter().collect();
            assert_eq!(age(jobs), None, "{absurd}");
        }
        assert_eq!(age(serde_json::json!([7])), None);
        assert_eq!(age(serde_json::json!([])), None);
    }

    #[test]
    fn answers_are_read_leniently_but_not_of_other_queues() {
        let with = |payload: &str| {
            let message = format!(
                r#"{{"senderId":"x","response":"response-to-get-worker-status","payload":{payload}}}"#
            );
            Reply::parse(message.as_bytes(), "jobs")
        };
        let full = with(
            r#"{"senderId":"worker-0123456789ab","hostname":"h","queueName":"jobs","extra":1,
            "interfaces":[{"address":"127.0.0.1","internal":true},{"address":"10.0.0.1"}],
            "runningJobsSummary":[{"executionId":"1"}],"requestingUserId":"u"}"#,
        )
        .unwrap();
        assert_eq!(full.container(), Some("0123456789ab"));
        assert_eq!((full.running, full.addresses.len()), (Some(1), 1));
        assert_eq!(with("{}").unwrap().running, None, "it did not say what it runs");
        assert_eq!(with(r#"{"queueName":"jobs-gpu"}"#), None);
        assert_eq!(Reply::parse(b"[]", "jobs"), None);
        assert_eq!(Reply::parse(br#"{"response":"other","payload":{}}"#, "jobs"), None);
    }
}
