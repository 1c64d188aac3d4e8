// Long answers: loaded anew in the middle of 20,000 tokens, followed in bursts, of thousands of tools, and of 10,000 rows.
// The page is never blocked for long, and every word is shown once.

import assert from 'node:assert/strict';
import {
  assertQuiet, keepPicture, openPage, timeBlocked, waitForText, waitForTheEnd, watchBlocking,
} from '../browser.mjs';
import { call, newProducer, play, step } from '../harness.mjs';

const TOKENS = 20_000;
/** Events of one request of a producer. */
const BURST = 500;
const BLOCKED_MS_MAX = 1000;
const SHOWN_MS_MAX = 6000;

/** Words that are all different: with paragraphs, or on one line without an end. */
const words = (from, count, hasLines) => Array.from({ length: count }, (_, nth) => {
  const end = hasLines && nth % 40 === 39 ? '.\n\n' : ' ';
  return `word${from + nth}${end}`;
});
const tokens = (texts) => texts.map((text) => ['token', { text }]);

const textOf = (page, path) => page.$eval(path, (element) => element.textContent);

async function newSession(id) {
  await call('POST', '/v1/sessions', { session_id: id });
  return id;
}

/** Opens the page at a session, and waits until it has a text. Nothing of that may block it. */
async function assertLoads(page, server, session, selector, text) {
  await page.goto('about:blank');
  const start = Date.now();
  await page.goto(`${server}#${session}`);
  await waitForText(page, selector, text);
  const [shown, { all, longest }] = [Date.now() - start, await timeBlocked(page)];
  step(`${session}: shown after ${shown} ms, blocked for ${Math.round(all)} ms, ${Math.round(longest)} ms at the longest`);
  assert(all < BLOCKED_MS_MAX, `${session} blocked the page for ${all} ms`);
  assert(shown < SHOWN_MS_MAX, `${session} was shown after ${shown} ms`);
}

play(async () => {
  const { browser, page, complaints } = await openPage();
  const server = new URL(page.url()).href;
  await watchBlocking(page);
  const reads = [];
  page.on('request', (request) => { if (/sessions\/[^/]+\?limit/.test(request.url())) reads.push(request.url()); });

  for (const hasLines of [true, false]) {
    const session = await newSession(hasLines ? 'paragraphs' : 'one-line');
    const producer = await newProducer(session, 'Tell me everything.');
    const before = words(0, TOKENS, hasLines);
    await producer.append(...tokens(before));
    await assertLoads(page, server, session, '#live .other .words', `word${TOKENS - 1}[. ]`);
    assert.equal(await textOf(page, '#live .other .words'), before.join(''));
    const { scrollTop, scrollHeight, clientHeight } = await page.$eval('#transcript', (box) => (
      { scrollTop: box.scrollTop, scrollHeight: box.scrollHeight, clientHeight: box.clientHeight }));
    assert(scrollTop + clientHeight > scrollHeight - 80, 'the end is in sight');
    if (hasLines) await keepPicture(page, 'live');

    step('in bursts');
    reads.length = 0;
    await page.evaluate(() => { window.blocked = { all: 0, longest: 0 }; });
    const after = words(TOKENS, TOKENS, hasLines);
    for (let at = 0; at < TOKENS; at += BURST) await producer.append(...tokens(after.slice(at, at + BURST)));
    await waitForText(page, '#live .other .words', `word${2 * TOKENS - 1}[. ]`);
    const { longest } = await timeBlocked(page);
    step(`blocked for ${Math.round(longest)} ms at the longest`);
    assert(longest < BLOCKED_MS_MAX, `a burst blocked the page for ${longest} ms`);
    assert.equal(await textOf(page, '#live .other .words'), [...before, ...after].join(''));
    assert(reads.length < 5, `the session was read ${reads.length} times meanwhile`);
    await producer.end();
    await waitForTheEnd(page);
    assert.equal((await textOf(page, '#rows .other .words')).trim(), [...before, ...after].join('').trim());
  }

  step('tools');
  const tools = await newProducer(await newSession('tools'), 'Try everything.');
  const calls = Array.from({ length: 2000 }, (_, nth) => [
    ['tool', { tool_call_id: `t${nth}`, name: 'look', args: { nth } }],
    ['tool_complete', { tool_call_id: `t${nth}`, name: 'look', result: nth }],
  ]);
  await tools.append(...calls.flat(), ['token', { text: 'I have seen it all.' }]);
  await assertLoads(page, server, 'tools', '#live', 'I have seen it all');
  assert.equal(await page.locator('#live .tool.done').count(), calls.length);

  step('rows');
  const rows = await newProducer(await newSession('rows'), 'One row after the other.');
  const paragraphs = Array.from({ length: 10_000 }, (_, nth) => ['interim_assistant', { text: `Row ${nth}.` }]);
  await rows.append(...paragraphs);
  await rows.end();
  await assertLoads(page, server, 'rows', '#rows', 'Row 9999');
  assert.equal(await page.locator('#rows article').count(), 100);
  const top = () => page.evaluate(() => document.querySelectorAll('#rows article')[0].textContent);
  assert.match(await top(), /Row 9900/);
  await page.click('#earlier');
  await page.waitForFunction(() => document.querySelectorAll('#rows article').length === 200);
  assert.match(await top(), /Row 9800/);
  assertQuiet(complaints);
  await browser.close();
});
