// curl in a loop, each time with the id of the last event that it saw; kill -9 in the middle of the answer.

import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { createInterface } from 'node:readline';
import { assertEveryEventOnce, beginRun } from '../events.mjs';
import { base, play, server, sleep, step, until } from '../harness.mjs';

/** Follows once, until the connection ends. */
async function follow(path, seen) {
  const resume = seen.events.length > 0 ? ['-H', `Last-Event-ID: ${seen.events.at(-1).id}`] : [];
  const curl = spawn('curl', ['-sN', '-H', 'Accept: text/event-stream', ...resume, base + path]);
  const ended = new Promise((resolve, reject) => curl.on('close', resolve).on('error', reject));
  let frame = {};
  for await (const line of createInterface({ input: curl.stdout })) {
    const [, name, value] = line.match(/^(\w+): (.*)$/) ?? [];
    if (name) frame[name] = value;
    if (line !== '') continue;
    if (frame.event === 'end') seen.end = JSON.parse(frame.data);
    else if (frame.id) seen.events.push({ id: frame.id, data: JSON.parse(frame.data) });
    else assert.equal(frame.data, undefined, `a notice that nobody expects: ${JSON.stringify(frame)}`);
    frame = {};
  }
  return ended;
}

async function followThrough(path, seen) {
  while (!seen.end) {
    seen.exits.push(await follow(path, seen));
    await sleep(100);
  }
}

play(async () => {
  const path = await beginRun('curl');
  const seen = { events: [], exits: [], end: null };
  const followed = followThrough(path, seen);
  await until('it answers', () => seen.events.length > 40);
  await server.kill();
  step('killed');
  await sleep(300);
  await server.start();
  await followed;
  await assertEveryEventOnce('curl', seen.events, seen.end);
  assert.equal(seen.exits.at(-1), 0, 'the last connection had a proper end');
  assert(seen.exits.length > 1 && seen.exits[0] !== 0, 'the first one was cut');
});
