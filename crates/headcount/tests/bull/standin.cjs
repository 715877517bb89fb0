#!/usr/bin/env node
// Stands in for n8n's queue mode in tests: the real Bull, the same keys, channels, names, signals
// and exit codes, but no workflows. A job sleeps (or burns CPU) for `ms` milliseconds.
//
//   standin.cjs worker [NAME]                        one worker in the foreground
//   standin.cjs fire COUNT [MS=3000] [PRIORITY=100]  enqueues jobs as n8n's main instance does
//   standin.cjs later COUNT DELAY_MS                 enqueues delayed jobs, which n8n never does
//   standin.cjs pause | resume                       for the whole queue
//
// Environment, as n8n reads it: QUEUE_BULL_REDIS_{HOST,PORT,USERNAME,PASSWORD,CLUSTER_NODES},
// QUEUE_BULL_PREFIX, N8N_REDIS_KEY_PREFIX, N8N_CONCURRENCY_PRODUCTION_LIMIT,
// N8N_GRACEFUL_SHUTDOWN_TIMEOUT (s), QUEUE_WORKER_{LOCK_DURATION,LOCK_RENEW_TIME,STALLED_INTERVAL}
// (ms). Of the stand-in alone: STANDIN_SOCKET (path of a unix socket), STANDIN_QUEUE (jobs),
// STANDIN_START_MS (delay before the worker takes jobs), STANDIN_BURN=1 (jobs burn CPU),
// STANDIN_ADDRESS (the address that the worker says it has, as if in a network of its own).
'use strict';

const crypto = require('crypto');
const os = require('os');
const Queue = require('bull');
const Redis = require('ioredis');

const env = process.env;
const number = (name, otherwise) => Number(env[name] || otherwise);
const sleep = ms => new Promise(done => setTimeout(done, ms));

const nodes = (env.QUEUE_BULL_REDIS_CLUSTER_NODES || '').split(',').filter(Boolean);
const queueName = env.STANDIN_QUEUE || 'jobs';
const keyPrefix = env.N8N_REDIS_KEY_PREFIX || 'n8n';
// In a cluster n8n makes the prefix a hash tag, so that all keys of the queue share a slot.
const plainPrefix = env.QUEUE_BULL_PREFIX || 'bull';
const prefix = nodes.length && !plainPrefix.startsWith('{') ? `{${plainPrefix}}` : plainPrefix;

function connect() {
  const login = { username: env.QUEUE_BULL_REDIS_USERNAME, password: env.QUEUE_BULL_REDIS_PASSWORD };
  const patient = { ...login, maxRetriesPerRequest: null, enableReadyCheck: false };
  if (nodes.length) {
    const startAt = nodes.map(node => {
      const [host, port] = node.split(':');
      return { host, port: Number(port) };
    });
    return new Redis.Cluster(startAt, { redisOptions: patient, enableReadyCheck: false });
  }
  const place = env.STANDIN_SOCKET
    ? { path: env.STANDIN_SOCKET }
    : { host: env.QUEUE_BULL_REDIS_HOST || '127.0.0.1', port: number('QUEUE_BULL_REDIS_PORT', 6379) };
  return new Redis({ ...place, ...patient });
}

function openQueue() {
  const settings = {
    lockDuration: number('QUEUE_WORKER_LOCK_DURATION', 60000),
    lockRenewTime: number('QUEUE_WORKER_LOCK_RENEW_TIME', 10000),
    stalledInterval: number('QUEUE_WORKER_STALLED_INTERVAL', 30000),
    maxStalledCount: 0,
  };
  const queue = new Queue(queueName, { prefix, settings, createClient: connect });
  queue.on('error', error => console.error('queue error:', error.message));
  return queue;
}

async function enqueue(count, ms, options) {
  const queue = openQueue();
  for (let i = 0; i < count; i += 1) {
    const data = { workflowId: 'standin', executionId: crypto.randomUUID(), loadStaticData: false, ms };
    await queue.add('job', data, { removeOnComplete: 0, removeOnFail: 0, ...options });
  }
  console.log(`enqueued ${count}`);
  process.exit(0);
}

async function setPaused(paused) {
  const queue = openQueue();
  await (paused ? queue.pause() : queue.resume());
  console.log(paused ? 'paused' : 'resumed');
  process.exit(0);
}

async function burnOrSleep(ms) {
  if (env.STANDIN_BURN !== '1') return sleep(ms);
  for (const end = Date.now() + ms; Date.now() < end; await sleep(0)) {
    for (let i = 0; i < 2e6; i += 1);
  }
}

// The registry of instances: a key that expires unless its owner goes on renewing it.
async function register(redis, hostId) {
  const instanceKey = crypto.randomUUID();
  const entry = `${keyPrefix}:{instance:}${instanceKey}`;
  const members = `${keyPrefix}:{instance:}members`;
  const registeredAt = Date.now();
  const about = { schemaVersion: 1, instanceKey, hostId, instanceType: 'worker', instanceRole: 'unset', version: '2.41.1', registeredAt, poolName: '' };
  const renew = () => redis.multi()
    .set(entry, JSON.stringify({ ...about, lastSeen: Date.now() }), 'EX', 60)
    .sadd(members, entry)
    .exec();
  await renew();
  const timer = setInterval(renew, 30000);
  return async () => {
    clearInterval(timer);
    await redis.multi().del(entry).srem(members, entry).exec();
  };
}

function interfaces() {
  const address = env.STANDIN_ADDRESS;
  if (address) return [{ family: 'IPv4', address, internal: false }];
  return Object.values(os.networkInterfaces()).flat()
    .map(({ family, address, internal }) => ({ family, address, internal }));
}

async function answerStatusRequests(redis, subscriber, { hostId, hostname, running }) {
  const answer = request => redis.publish(`${keyPrefix}:n8n.worker-response`, JSON.stringify({
    senderId: hostId,
    response: 'response-to-get-worker-status',
    payload: {
      senderId: hostId,
      runningJobsSummary: [...running.values()],
      process: { uptime: process.uptime() },
      hostname,
      interfaces: interfaces(),
      version: '2.41.1',
      poolName: '',
      queueName,
      requestingUserId: request.payload && request.payload.requestingUserId,
    },
  }));
  const isForMe = request => request.command === 'get-worker-status'
    && request.senderId !== hostId
    && (!request.targets || request.targets.includes(hostId));
  let timer;
  subscriber.on('message', (_channel, text) => {
    let request;
    try { request = JSON.parse(text); } catch { return; }
    if (!isForMe(request)) return;
    if (!request.debounce) { answer(request); return; }
    clearTimeout(timer);
    timer = setTimeout(answer, 300, request);
  });
  await subscriber.subscribe(`${keyPrefix}:n8n.commands`);
}

async function work(name) {
  const hostname = name || os.hostname();
  const hostId = `worker-${name || crypto.randomUUID()}`;
  const running = new Map();
  await sleep(number('STANDIN_START_MS', 0));

  const redis = connect();
  const leave = await register(redis, hostId);
  await answerStatusRequests(redis, connect(), { hostId, hostname, running });

  const queue = openQueue();
  const concurrency = number('N8N_CONCURRENCY_PRODUCTION_LIMIT', 10);
  queue.process('job', concurrency, async job => {
    const { executionId, workflowId, ms } = job.data;
    running.set(job.id, { executionId, workflowId, workflowName: 'standin', mode: 'webhook', startedAt: new Date().toISOString(), status: 'new' });
    console.log(`started execution ${executionId} (job ${job.id})`);
    try {
      await burnOrSleep(ms);
      await job.progress({ kind: 'job-finished', version: 2, executionId, workerId: hostId, success: true, status: 'success' });
    } finally {
      running.delete(job.id);
    }
    console.log(`finished execution ${executionId} (job ${job.id})`);
  });
  await queue.isReady();
  console.log(`ready, concurrency ${concurrency}`);

  let going = false;
  const drain = async signal => {
    if (going) return;
    going = true;
    console.log(`received ${signal}, draining`);
    const grace = number('N8N_GRACEFUL_SHUTDOWN_TIMEOUT', 30);
    setTimeout(() => process.exit(1), grace * 1000);
    await queue.pause(true, true);
    while (running.size) await sleep(100);
    await leave();
    process.exit(0);
  };
  process.on('SIGTERM', drain);
  process.on('SIGINT', drain);
}

const [role, first, second, third] = process.argv.slice(2);
const roles = {
  worker: () => work(first),
  fire: () => enqueue(Number(first || 1), Number(second || 3000), { priority: Number(third || 100) }),
  later: () => enqueue(Number(first || 1), 0, { delay: Number(second || 60000) }),
  pause: () => setPaused(true),
  resume: () => setPaused(false),
};
if (!roles[role]) {
  console.error('usage: standin.cjs worker [NAME] | fire COUNT [MS] [PRIORITY] | later COUNT DELAY_MS | pause | resume');
  process.exit(2);
}
roles[role]().catch(error => {
  console.error(error);
  process.exit(1);
});
