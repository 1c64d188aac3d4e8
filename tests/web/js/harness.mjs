// What every scene needs: a server that can be killed, what it has saved, and patience with an end.

import assert from 'node:assert/strict';
import { createInterface } from 'node:readline';

export const base = process.env.LASTWORD_BASE;
const SCENE_SECONDS_MAX = 60;
const WAIT_MS_MAX = 15_000;

const answers = createInterface({ input: process.stdin })[Symbol.asyncIterator]();

/** Asks the test that started this script for something that only it can do. */
async function ask(what) {
  process.stdout.write(`ask ${what}\n`);
  assert.equal((await answers.next()).value, `done ${what}`);
}

export const server = {
  kill: () => ask('kill'),
  start: () => ask('start'),
  /** Asks the server to end, which waits for the runs. */
  drain: () => ask('drain'),
  /** Gives the server other tokens, which it takes up by itself. */
  setTokens: (...tokens) => ask(`tokens ${tokens.join(',')}`),
};

/** An outside producer, which answers in a session: its run has begun. */
export async function newProducer(session, message, headers = {}) {
  const path = `/v1/sessions/${session}/runs`;
  const { run_id: run } = await call('POST', path, { message, lease_seconds: 600 }, headers);
  const lines = (events) => events.map(([event, payload]) => JSON.stringify({ event, payload })).join('\n');
  const append = (...events) => call('POST', `${path}/${run}/events`, lines(events), headers);
  return { run, append, say: (text) => append(['token', { text }]), end: () => append(['done', {}]) };
}

/** Plays the scene of this script. Whoever listens is told of its end, and why it was not a good one. */
export async function play(scene) {
  const late = () => { throw new Error('the scene does not end'); };
  setTimeout(late, SCENE_SECONDS_MAX * 1000).unref();
  try {
    await scene();
  } catch (error) {
    process.stderr.write(`${error.stack}\n`, () => process.exit(1));
    return;
  }
  process.stdout.write(`passed ${process.env.LASTWORD_SCENE}\n`, () => process.exit(0));
}

/** Says how far the scene is. */
export const step = (text) => process.stdout.write(`step ${text}\n`);

export const sleep = (ms) => new Promise((resolve) => { setTimeout(resolve, ms); });

/** Waits until something holds. */
export async function until(what, holds) {
  const end = Date.now() + WAIT_MS_MAX;
  while (!(await holds())) {
    assert(Date.now() < end, `waited in vain until ${what}`);
    await sleep(5);
  }
}

/** Calls the server. A body that is a text is JSON lines. */
export async function call(method, path, body, headers = {}) {
  const isLines = typeof body === 'string';
  const sent = body && { 'content-type': isLines ? 'application/x-ndjson' : 'application/json' };
  const text = isLines ? body : body && JSON.stringify(body);
  const response = await fetch(base + path, { method, headers: { ...sent, ...headers }, body: text });
  const answer = await response.text();
  assert(response.ok, `${method} ${path}: ${response.status} ${answer}`);
  return answer && JSON.parse(answer);
}

export const sessionOf = (id) => call('GET', `/v1/sessions/${id}`);

/** What the session has of a run's answer. */
export function savedAnswer(session, run) {
  const isOfRun = (item) => (item._run_id ?? item._recovered_stream_id) === run;
  const rows = session.messages.filter((row) => row.role === 'assistant' && isOfRun(row));
  const words = rows.filter((row) => !row._error);
  return {
    texts: words.map((row) => row.content).filter(Boolean),
    thoughts: words.map((row) => row.reasoning).filter(Boolean),
    tools: session.tool_calls.filter(isOfRun).map((card) => [card.name, card.done]),
    markers: rows.filter((row) => row._error).map((row) => row.interruption_cause ?? row.type),
  };
}
