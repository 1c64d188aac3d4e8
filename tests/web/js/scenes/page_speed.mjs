// Long answers: loaded anew in the middle of 20,000 tokens, followed in bursts, of thousands of tools, and of 10,000 rows.
// The page is never blocked for long, and every word is shown once.

import assert from 'node:assert/strict';
import { assertQuiet, keepPicture, newStopwatch, openPage, waitForText, waitForTheEnd } from '../browser.mjs';
import { call, newProducer, play, step } from '../harness.mjs';

const TOKENS = 20_000;
/** Events of one request of a producer. */
const BURST = 500;
/** What loading a session may cost, and 20,000 tokens that arrive in bursts. */
const LOADING_SECONDS_MAX = 1;
const BURSTS_SECONDS_MAX = 3;

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
async function assertLoads(page, stopwatch, server, session, selector, text) {
  await page.goto('about:blank');
  await stopwatch();
  await page.goto(`${server}#${session}`);
  await waitForText(page, selector, text);
  const seconds = await stopwatch();
  step(`${session}: shown with ${seconds.toFixed(2)} s of work`);
  assert(seconds < LOADING_SECONDS_MAX, `${session} blocked the page for up to ${seconds} s`);
}

play(async () => {
  const { browser, page, complaints } = await openPage();
  const server = new URL(page.url()).href;
  const stopwatch = await newStopwatch(page);
  const reads = [];
  page.on('request', (request) => { if (/sessions\/[^/]+\?limit/.test(request.url())) reads.push(request.url()); });

  for (const hasLines of [true, false]) {
    const session = await newSession(hasLines ? 'paragraphs' : 'one-line');
    const producer = await newProducer(session, 'Tell me everything.');
    const before = words(0, TOKENS, hasLines);
    await producer.append(...tokens(before));
    await assertLoads(page, stopwatch, server, session, '#live .other .words', `word${TOKENS - 1}[. ]`);
    assert.equal(await textOf(page, '#live .other .words'), before.join(''));
    const { scrollTop, scrollHeight, clientHeight } = await page.$eval('#transcript', (box) => (
      { scrollTop: box.scrollTop, scrollHeight: box.scrollHeight, clientHeight: box.clientHeight }));
    assert(scrollTop + clientHeight > scrollHeight - 80, 'the end is in sight');
    if (hasLines) await keepPicture(page, 'live');

    step('in bursts');
    reads.length = 0;
    await stopwatch();
    const after = words(TOKENS, TOKENS, hasLines);
    for (let at = 0; at < TOKENS; at += BURST) await producer.append(...tokens(after.slice(at, at + BURST)));
    await waitForText(page, '#live .other .words', `word${2 * TOKENS - 1}[. ]`);
    const seconds = await stopwatch();
    step(`${seconds.toFixed(2)} s of work`);
    assert(seconds < BURSTS_SECONDS_MAX, `the bursts kept the page busy for ${seconds} s`);
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
  await assertLoads(page, stopwatch, server, 'tools', '#live', 'I have seen it all');
  assert.equal(await page.locator('#live .tool.done').count(), calls.length);

  step('rows');
  const rows = await newProducer(await newSession('rows'), 'One row after the other.');
  const paragraphs = Array.from({ length: 10_000 }, (_, nth) => ['interim_assistant', { text: `Row ${nth}.` }]);
  await rows.append(...paragraphs);
  await rows.end();
  await assertLoads(page, stopwatch, server, 'rows', '#rows', 'Row 9999');
  assert.equal(await page.locator('#rows article').count(), 100);
  const top = () => page.evaluate(() => document.querySelectorAll('#rows article')[0].textContent);
  assert.match(await top(), /Row 9900/);
  await page.click('#earlier');
  await page.waitForFunction(() => document.querySelectorAll('#rows article').length === 200);
  assert.match(await top(), /Row 9800/);
  assertQuiet(complaints);
  await browser.close();
});
