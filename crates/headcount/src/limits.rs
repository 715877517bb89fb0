//! Every limit on waits, retries, buffers and bodies, in one place.

use std::time::Duration;

/// One look at a queue or a target may take this long; then it counts as missing.
pub const LOOK_TIMEOUT: Duration = Duration::from_secs(5);
/// `headcount check` waits so long for a queue or a target.
pub const CHECK_TIMEOUT: Duration = Duration::from_secs(30);
/// A configuration file may be this large, bytes.
pub const CONFIG_BYTES: u64 = 1 << 20;
/// A configuration file may be nested this deeply.
pub const CONFIG_DEPTH: usize = 32;
/// A configuration file may have this many keys and values, aliases followed.
pub const CONFIG_NODES: usize = 100_000;
/// Of the errors in a configuration file this many are shown.
pub const CONFIG_ERRORS_SHOWN: usize = 50;
/// The settings of another autoscaler may be this large, bytes.
pub const IMPORT_BYTES: u64 = 16 << 20;
/// A line of observations may be this long, bytes.
pub const OBSERVATION_BYTES: usize = 1 << 20;
/// A file of saved state may be this large, bytes.
pub const STATE_BYTES: u64 = 16 << 20;
/// A secret file may be this large, bytes.
pub const SECRET_BYTES: u64 = 64 << 10;
/// Output of a command that is kept for messages, bytes.
pub const OUTPUT_BYTES: usize = 8 << 10;
/// An answer that lists the workers may be this large, bytes.
pub const STATUS_BYTES: usize = 1 << 20;
/// An order is sent to a webhook at most so often.
pub const WEBHOOK_ATTEMPTS: u32 = 4;
/// After the first time this long passes, then twice as long each time.
pub const WEBHOOK_BACK_OFF: Duration = Duration::from_millis(500);
/// A server that asks to wait longer than this fails.
pub const WEBHOOK_WAIT: Duration = Duration::from_secs(10);
/// A connection to a webhook takes no longer than this.
pub const WEBHOOK_CONNECT: Duration = Duration::from_secs(4);
/// So many redirects within one server are followed.
pub const WEBHOOK_REDIRECTS: usize = 3;
/// Alerts that wait to be posted, of one group.
pub const ALERTS_QUEUED: usize = 64;
/// An alert that does not get through is posted again after this long, then twice as long each time.
pub const ALERT_BACK_OFF: Duration = Duration::from_secs(15);
/// So often at the most, each time with the attempts of a webhook.
pub const ALERT_ROUNDS: u32 = 5;
/// At the end of a group, alerts that are on their way get this long.
pub const ALERT_LAST_WORDS: Duration = Duration::from_secs(5);
/// Samples and events are kept this long unless configured, days.
pub const KEEP_DAYS: u32 = 30;
/// How many workers were online is kept this long, for bills: 25 months.
pub const USAGE_KEPT: headcount_core::Span = headcount_core::Span::from_hours(24 * 762);
/// Hours of usage kept in memory while the store cannot be written.
pub const BUFFERED_USAGE: usize = 10_000;
/// Between two looks at a target so far apart at the most, the number of the first one counts as that
/// of the minutes between; or two of the group's own `look`s, if they take longer.
pub const USAGE_GAP: headcount_core::Span = headcount_core::Span::from_secs(120);
/// Events kept in memory while the store cannot be written.
pub const BUFFERED_EVENTS: usize = 1_000;
/// Samples kept in memory while the store cannot be written.
pub const BUFFERED_SAMPLES: usize = 10_000;
/// Somebody else acts for a group: ask again after this long.
pub const STAND_BY: headcount_core::Span = headcount_core::Span::from_secs(2);
/// Between two looks at least this long passes, whatever wakes the loop.
pub const LEAST_REST: Duration = Duration::from_millis(100);
/// Ticks that a slow watcher may fall behind before it misses some.
pub const TICKS_BEHIND: usize = 1_024;
/// The store is flushed this often.
pub const FLUSH_EVERY: Duration = Duration::from_secs(2);
/// The configuration file is compared with the one in use this often.
pub const RELOAD_EVERY: Duration = Duration::from_secs(2);
/// At the end, groups may take this long beyond their targets' own limits.
pub const STOP_TIMEOUT: Duration = Duration::from_secs(10 * 60);
/// Output of one worker process that is kept, bytes: half of it as `.1`.
pub const WORKER_LOG_BYTES: u64 = 10 << 20;
/// Output files of workers that are gone, kept for a look at them.
pub const WORKER_LOGS: usize = 50;
/// All of them together, bytes.
pub const WORKER_LOGS_BYTES: u64 = 100 << 20;
/// A worker process that ends sooner than this after its start did not start well.
pub const EARLY_DEATH: Duration = Duration::from_secs(10);
/// What a worker process leaves behind in its process group gets this long after SIGTERM.
pub const LEFTOVERS_GRACE: Duration = Duration::from_secs(5);
/// A child command's output is read for this long after its end: something that it left in the
/// background may hold the pipe open for ever.
pub const LAST_WORDS: Duration = Duration::from_millis(500);
/// A request to the Docker Engine outside a look may take this long.
pub const ENGINE_TIMEOUT: Duration = Duration::from_secs(30);
/// An answer of the Docker Engine may be this large, bytes.
pub const ENGINE_BODY_BYTES: usize = 64 << 20;
/// So many names are tried for a new container.
pub const NAMES_TRIED: u32 = 1_000;
/// The engine is asked to make one container under so many names that others have, in one change.
pub const NAMES_REFUSED: usize = 20;
/// After a change, Swarm gets this long to say which tasks it picks.
pub const SWARM_PICKS: Duration = Duration::from_secs(2);
/// It is asked this often.
pub const SWARM_POLL: Duration = Duration::from_millis(100);
/// One look asks the Docker Engine for the details of at most this many containers.
pub const INSPECTS_PER_LOOK: usize = 32;
/// A container that was told to go is looked at this often, besides waiting for its end.
pub const DRAIN_LOOK: Duration = Duration::from_secs(10);
/// The same after an error.
pub const DRAIN_POLL: Duration = Duration::from_secs(1);
/// The last lines of a container that died are shown if they come within this long.
pub const LAST_LINES_TIMEOUT: Duration = Duration::from_secs(5);
/// A command that is only asked something, its version for example, may take this long.
pub const QUERY_TIMEOUT: Duration = Duration::from_secs(20);
/// A connection to Redis and its answer may take this long together: less than a look.
pub const REDIS_TIMEOUTS: Duration = Duration::from_millis(4_500);
/// After a first failure to connect to Redis or PostgreSQL this long passes, then twice as long each time.
pub const RECONNECT_BACK_OFF: Duration = Duration::from_millis(50);
/// At most this long passes between two attempts to connect to either.
pub const RECONNECT_BACK_OFF_MAX: Duration = Duration::from_secs(2);
/// A subscription that hears nothing asks this often whether the other side is still there.
pub const REDIS_PING_EVERY: Duration = Duration::from_secs(15);
/// After a failure to connect, files with secrets are read again at most this often.
pub const SECRETS_READ_EVERY: Duration = Duration::from_secs(10);
/// A certificate file may be this large, bytes.
pub const CERTIFICATE_BYTES: u64 = 1 << 20;
/// What a server said is cut to this many characters in messages.
pub const DETAIL_CHARS: usize = 200;
/// A state seen in two looks counts if they are at least this long apart.
pub const SECOND_SAMPLE: Duration = Duration::from_millis(500);
/// A worker with a free slot that asks for no job for this long takes none any more. Bull itself
/// waits 5 s after an error before it asks again.
pub const SILENCE_PROVES: Duration = Duration::from_secs(10);
/// Locks of at most this many active jobs are looked at; more count as held.
pub const ACTIVE_JOBS: usize = 1_024;
/// Waiting jobs are counted apart for at most this many priorities.
pub const PRIORITIES: usize = 16;
/// The first look waits this long for the subscription, so that it hears the workers' answers.
pub const FIRST_HEARING: Duration = Duration::from_millis(500);
/// A queue that has new jobs all the time wakes the loop this often.
pub const WAKE_EVERY: Duration = Duration::from_secs(1);
/// A message on a channel may be this large, bytes; larger ones are not read.
pub const MESSAGE_BYTES: usize = 1 << 20;
/// Finished jobs that are kept, between two looks, for the history.
pub const FINISHED_JOBS: usize = 4_096;
/// Finished jobs kept in memory while the store cannot be written.
pub const BUFFERED_JOBS: usize = 50_000;
/// Finished jobs that are stored of one group: one every 2.6 s for 30 days; older ones go.
pub const JOBS_KEPT: u32 = 1_000_000;
/// Samples that are stored of one group; older ones go. One every 5 s for 30 days are 518,400, and
/// a queue that wakes the loop all the time has one a second.
pub const SAMPLES_KEPT: u32 = 3_000_000;
/// Waiting jobs whose start is awaited.
pub const WAITING_JOBS: usize = 65_536;
/// Begun jobs whose end is awaited.
pub const STARTED_JOBS: usize = 4_096;
/// A begun job that no look shows is forgotten after this long.
pub const STARTED_KEPT: headcount_core::Span = headcount_core::Span::from_secs(60);
/// Answers of workers that are kept.
pub const REPLIES: usize = 4_096;
/// An answer of a worker counts for this long.
pub const REPLY_KEPT: Duration = Duration::from_secs(3);
/// A job that is said to run for longer than this was begun by a wrong clock.
pub const JOB_AGE: headcount_core::Span = headcount_core::Span::from_hours(24 * 366);
/// A look waits this long for the answers of workers.
pub const REPLY_WAIT: Duration = Duration::from_millis(150);
/// A name that two workers used is not believed for this long.
pub const CLASH_KEPT: Duration = Duration::from_secs(10 * 60);
/// A list of connections of this many bytes is asked for at most once a second, a larger one less
/// often in proportion.
pub const CLIENTS_BYTES_PER_SECOND: usize = 256 << 10;
/// Other queues are searched for at most this often.
pub const NEIGHBOURS_EVERY: Duration = Duration::from_secs(60);
/// Other queues that are named.
pub const NEIGHBOURS: usize = 20;
/// Keys looked through in one call of a search.
pub const SCAN_KEYS: u32 = 10_000;
/// Calls of one search.
pub const SCAN_CALLS: u32 = 10;
/// The compatible list of snapshots may take this long to write.
pub const METRICS_LIST_TIMEOUT: Duration = Duration::from_secs(2);
/// A failure that repeats is told this often.
pub const WARN_EVERY: Duration = Duration::from_secs(60);
/// Samples of the host that are kept: one a second for 15 minutes.
pub const HOST_SAMPLES: usize = 900;
/// As much of a file of the kernel is read, bytes; `/proc/stat` grows with the cores.
pub const KERNEL_FILE_BYTES: u64 = 1 << 20;
/// A change that takes long is told this often.
pub const STILL_EVERY: Duration = Duration::from_secs(10);
/// A group whose loop broke starts again after this long, then twice as long each time.
pub const LOOP_BACK_OFF: Duration = Duration::from_secs(1);
/// At most this long passes before it starts again; if it ran longer, all begins anew.
pub const LOOP_BACK_OFF_MAX: Duration = Duration::from_secs(5 * 60);
/// A number that was another one so often in a row right after it was set is set by somebody else.
pub const CONTESTED: u32 = 3;
/// It is set again after this long, then twice as long each time.
pub const CONTEST_BACK_OFF: Duration = Duration::from_secs(5);
/// At most this long passes between two times.
pub const CONTEST_BACK_OFF_MAX: Duration = Duration::from_secs(5 * 60);
/// A group that is opened anew may take this long to let go of what it does.
pub const LEAVE_TIMEOUT: Duration = Duration::from_secs(30);
/// HTTP connections at the same time; more wait.
pub const HTTP_CONNECTIONS: usize = 64;
/// An HTTP connection may last this long.
pub const HTTP_LIFETIME: Duration = Duration::from_secs(30);
/// A host is known after its first sample, which takes half a second; do not wait longer than this.
pub const FIRST_SAMPLE: Duration = Duration::from_secs(2);
/// Files and sockets that may be open at once, where the system lets us ask for so many.
pub const OPEN_FILES: u64 = 16_384;
/// A connection to a Kubernetes API server may take this long.
pub const KUBERNETES_CONNECT: Duration = Duration::from_secs(3);
/// A request to it that is part of a look may take this long: less than the look.
pub const KUBERNETES_LOOK: Duration = Duration::from_millis(4_500);
/// Any other request to it may take this long.
pub const KUBERNETES_TIMEOUT: Duration = Duration::from_secs(10);
/// An answer of it may be this large, bytes: a page of pods takes about 10 MB.
pub const KUBERNETES_BYTES: usize = 64 << 20;
/// A login to it, by the command of a kubeconfig, may take this long.
pub const KUBERNETES_LOGIN: Duration = Duration::from_secs(30);
/// A file with a token is read again after this long.
pub const TOKEN_READ_EVERY: Duration = Duration::from_secs(60);
/// A login that ends this soon is made anew.
pub const TOKEN_AHEAD: Duration = Duration::from_secs(60);
/// All deletion costs of one scale-in may take this long together.
pub const ANNOTATE_TIMEOUT: Duration = Duration::from_secs(5);
/// So many pods are annotated at the same time.
pub const ANNOTATE_AT_ONCE: usize = 8;
/// A change is tried so often while somebody else changes the same object.
pub const CONFLICTS: usize = 3;
/// A list of pods serves several groups for this long.
pub const POD_LIST_AGE: Duration = Duration::from_secs(1);
/// A list that took long serves so many times as long as it took.
pub const POD_LIST_SHARE: u32 = 5;
/// And each of its pages makes it serve this long: two pages a second.
pub const POD_PAGE_AGE: Duration = Duration::from_millis(500);
/// But no longer than this.
pub const POD_LIST_AGE_MAX: Duration = Duration::from_secs(10);
/// A list of pods comes in pages of this many.
pub const PODS_PER_PAGE: u32 = 500;
/// And has at most this many pages.
pub const POD_PAGES: usize = 40;
/// What an account may do is asked this often: a Role may change.
pub const ACCESS_REVIEW_EVERY: Duration = Duration::from_secs(10 * 60);
/// Of the groups of one API server whose time for that has come, one asks this often: six requests.
pub const REVIEW_EVERY: Duration = Duration::from_secs(1);
/// The workloads on one API server are read this often, 20 a second: with as many renewals of
/// leases, a list of pods and six questions about access, 200 groups stay under 50 requests a second.
pub const WORKLOAD_READ_EVERY: Duration = Duration::from_millis(50);
/// But none is older than this: as many as 1,200 groups have.
pub const WORKLOAD_AGE_MAX: Duration = Duration::from_secs(60);
/// A lease in Kubernetes is lost this long after the last sign of its holder.
pub const LEASE_DURATION: Duration = Duration::from_secs(30);
/// It is renewed this often.
pub const LEASE_RENEW_EVERY: Duration = Duration::from_secs(10);
/// Its holder acts no more this long after the last renewal that succeeded.
pub const LEASE_TRUSTED: Duration = Duration::from_secs(20);
/// A connection to a Nomad agent may take this long.
pub const NOMAD_CONNECT: Duration = Duration::from_secs(3);
/// A request to Nomad that is part of a look may take this long: less than the look.
pub const NOMAD_LOOK: Duration = Duration::from_millis(4_500);
/// Any other request to Nomad may take this long.
pub const NOMAD_TIMEOUT: Duration = Duration::from_secs(10);
/// An answer of Nomad may be this large, bytes: a thousand allocations with ten events each.
pub const NOMAD_BYTES: usize = 32 << 20;
/// After a change Nomad is watched this long, to tell who was started or goes.
pub const NOMAD_FOLLOW: Duration = Duration::from_secs(3);
/// A new count has this much of a lead before the stops that belong to it.
pub const NOMAD_STOP_LAG: Duration = Duration::from_millis(2);
/// A connection to AWS may take this long.
pub const AWS_CONNECT: Duration = Duration::from_secs(3);
/// Credentials for AWS may take this long to get: less than a look.
pub const AWS_LOGIN: Duration = Duration::from_secs(4);
/// All requests of one look at an ECS service may take this long together: less than the look.
pub const AWS_LOOK: Duration = Duration::from_millis(4_500);
/// All requests of one change of an ECS service may take this long together.
pub const AWS_TIMEOUT: Duration = Duration::from_secs(10);
/// If AWS says that it is asked too often, it is asked again after about this long, then twice as long.
pub const AWS_BACK_OFF: Duration = Duration::from_millis(300);
/// So often at the most.
pub const AWS_TRIES: u32 = 4;
/// An answer of AWS may be this large, bytes: a hundred tasks are about 400 KB.
pub const AWS_ANSWER_BYTES: usize = 8 << 20;
/// A list of tasks comes in pages of a hundred, and has at most this many.
pub const TASK_PAGES: usize = 50;
/// While tasks start or end they are listed this often.
pub const TASKS_IN_MOTION: Duration = Duration::from_secs(2);
/// The tasks of a service whose numbers do not change are listed this often.
pub const TASKS_AT_REST: Duration = Duration::from_secs(30);
/// A task stays protected for this long, unless it is released or protected again, minutes.
pub const TASK_PROTECTED_MINUTES: u32 = 60;
/// All requests for protection between two changes may take this long together.
pub const PROTECTION_TIMEOUT: Duration = Duration::from_secs(3);
/// A connection to PostgreSQL and its answer may take this long together: less than a look.
pub const POSTGRES_TIMEOUTS: Duration = Duration::from_millis(4_500);
/// PostgreSQL itself ends a statement that takes too long; an answer may come this much later.
pub const POSTGRES_MARGIN: Duration = Duration::from_millis(200);
/// Rows of one answer of PostgreSQL; more are an error.
pub const POSTGRES_ROWS: usize = 100_000;
/// A look at a Windmill database serves all groups for this long.
pub const WINDMILL_LOOK_AGE: Duration = Duration::from_millis(900);
/// A look that took long serves so many times as long as it took.
pub const WINDMILL_LOOK_SHARE: u32 = 5;
/// But no longer than this.
pub const WINDMILL_LOOK_AGE_MAX: Duration = Duration::from_secs(5);
/// Which tables and columns a Windmill database has is asked this often, and after each error.
pub const WINDMILL_ERA_AGE: Duration = Duration::from_secs(60);
/// Running jobs, and workers, of a Windmill database; more are an error.
pub const WINDMILL_ROWS: usize = 20_000;
/// A connection to Windmill's HTTP API may take this long.
pub const WINDMILL_API_CONNECT: Duration = Duration::from_secs(3);
/// One request to it may take this long, outside a look.
pub const WINDMILL_API_TIMEOUT: Duration = Duration::from_secs(10);
/// An answer of it may be this large, bytes: a thousand workers are about 600 KB.
pub const WINDMILL_API_BYTES: usize = 8 << 20;
/// Its list of workers comes in pages of this many.
pub const WINDMILL_WORKERS_PER_PAGE: usize = 1_000;
/// And has at most this many pages.
pub const WINDMILL_WORKER_PAGES: usize = 20;
/// The end of a job in Windmill is asked for after this long, then twice as long each time.
pub const WINDMILL_JOB_POLL: Duration = Duration::from_millis(200);
/// At most this long passes between two times.
pub const WINDMILL_JOB_POLL_MAX: Duration = Duration::from_secs(2);
/// A job that was cancelled may take this long to end.
pub const WINDMILL_JOB_CANCELLED: Duration = Duration::from_secs(5);
/// After a change, Windmill's workers may take this long to come or go.
pub const WINDMILL_WORKERS_MOVE: Duration = Duration::from_secs(5 * 60);
/// Changes that wait to be written into Windmill; more are dropped.
pub const WINDMILL_EVENTS_QUEUED: usize = 100;
/// At the end of a group, those that wait may take this long.
pub const WINDMILL_LAST_WORDS: Duration = Duration::from_secs(5);
