// curl in a loop, each time with the id of the last event that it saw; kill -9 in the middle of the answer. It follows
// the run, or the session; it is the first to come back, or somebody else has read the session before.

import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { createInterface } from 'node:readline';
import { assertEveryEventOnce, beginRun } from '../events.mjs';
import { base, play, server, sessionOf, step, until } from '../harness.mjs';

/** Events that did not reach the reader before the crash. */
const UNSEEN = 3;

/** Follows once, until the connection or the run ends. */
async function follow(path, seen) {
  const resume = seen.events.length > 0 ? ['-H', `Last-Event-ID: ${seen.events.at(-1).id}`] : [];
  const curl = spawn('curl', ['-sN', '-H', 'Accept: text/event-stream', ...resume, base + path]);
  const ended = new Promise((resolve, reject) => { curl.on('close', resolve).on('error', reject); });
  let frame = {};
  for await (const line of createInterface({ input: curl.stdout })) {
    const [, name, value] = line.match(/^(\w+): (.*)$/) ?? [];
    if (name) frame[name] = value;
    if (line !== '') continue;
    if (frame.event === 'end') break;
    if (frame.id) seen.events.push({ id: frame.id, data: JSON.parse(frame.data) });
    else assert.equal(frame.data, undefined, `a notice that nobody expects: ${JSON.stringify(frame)}`);
    frame = {};
  }
  if (frame.event === 'end') seen.end = JSON.parse(frame.data);
  if (seen.end && !seen.closes) curl.kill();
  seen.exits.push(await ended);
}

/** Follows until the run has ended, and comes back when the server is there again. */
async function followThrough(path, seen, isBack) {
  await follow(path, seen);
  await isBack;
  while (!seen.end) await follow(path, seen);
}

async function across(session, stream, isReadBefore) {
  const path = await beginRun(session);
  const seen = { events: [], exits: [], end: null, closes: stream === 'run' };
  let comeBack;
  const isBack = new Promise((resolve) => { comeBack = resolve; });
  const followed = followThrough(stream === 'run' ? path : `/v1/sessions/${session}/events`, seen, isBack);
  await until('it answers', () => seen.events.length > 40);
  await server.kill();
  await until('the connection is cut', () => seen.exits.length > 0);
  await server.start();
  seen.events.splice(-UNSEEN); // they were on their way when the server died
  if (isReadBefore) await sessionOf(session);
  comeBack();
  await followed;
  await assertEveryEventOnce(session, seen.events, seen.end);
  assert.notEqual(seen.exits[0], 0, 'the first connection was cut');
  if (seen.closes) assert.equal(seen.exits.at(-1), 0, 'the last one had a proper end');
}

play(async () => {
  for (const stream of ['run', 'session']) {
    for (const isReadBefore of [false, true]) {
      step(`the ${stream}${isReadBefore ? ', read before' : ''}`);
      await across(`${stream}-${isReadBefore}`, stream, isReadBefore);
    }
  }
});
