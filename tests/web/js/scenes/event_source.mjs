// A browser's EventSource follows a run and its session; kill -9 in the middle of the answer; it goes on by itself.

import assert from 'node:assert/strict';
import { assertQuiet, openPage } from '../browser.mjs';
import { assertEveryEventOnce, beginRun } from '../events.mjs';
import { play, server, sleep, step } from '../harness.mjs';

const NAMES = ['attempt', 'reasoning', 'token', 'tool', 'tool_complete', 'done', 'cancel', 'apperror', 'error'];

/** Follows both streams in the page. */
function follow(page, paths) {
  return page.evaluate(([paths, names]) => {
    window.seen = paths.map((path) => {
      const seen = { events: [], ends: [], others: [], opened: 0 };
      const source = new EventSource(path);
      source.onopen = () => { seen.opened += 1; };
      for (const name of names) {
        source.addEventListener(name, (event) => {
          if (event.data) seen.events.push({ id: event.lastEventId, data: JSON.parse(event.data) });
        });
      }
      source.addEventListener('end', (event) => seen.ends.push(JSON.parse(event.data)));
      for (const name of ['snapshot', 'gap', 'message']) source.addEventListener(name, () => seen.others.push(name));
      return seen;
    });
  }, [paths, NAMES]);
}

play(async () => {
  const { browser, page, complaints } = await openPage();
  step('follow');
  const path = await beginRun('source');
  await follow(page, [path, '/v1/sessions/source/events?after=now']);
  await page.waitForFunction(() => window.seen.every((seen) => seen.events.length > 40));
  await server.kill();
  step('killed');
  await sleep(300);
  await server.start();
  await page.waitForFunction(() => window.seen.every((seen) => seen.ends.length > 0));
  await sleep(500); // whoever says something twice says it now
  for (const seen of await page.evaluate(() => window.seen)) {
    await assertEveryEventOnce('source', seen.events, seen.ends[0]);
    assert.deepEqual([seen.ends.length, seen.others, seen.opened], [1, [], 2]);
  }
  assertQuiet(complaints);
  await browser.close();
});
