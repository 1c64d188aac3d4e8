// What other programs wrote, and what no program should have: rows, events and tools in unusual forms. And the reader's place.

import assert from 'node:assert/strict';
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { assertQuiet, createSession, look, openPage, waitForState, waitForTheEnd, waitForWords } from '../browser.mjs';
import { call, newProducer, play, step, until } from '../harness.mjs';

const data = process.env.LASTWORD_SCENE_DATA;

/** A value that breaks whoever takes it for a text. */
const ODD = { toString: 1 };

/** Lays a session of another program into the data directory. */
function lay(id, rows, more = {}) {
  const session = { session_id: id, title: `The ${id} one`, created_at: 1, updated_at: 1, messages: rows, ...more };
  writeFileSync(join(data, `${id}.json`), JSON.stringify(session).replaceAll('"DEEP"', '['.repeat(20_000) + ']'.repeat(20_000)));
}

const rowsOf = (page) => page.$$eval('#rows > article', (rows) => rows.map((row) => row.lastElementChild?.textContent ?? row.textContent));

async function show(page, id) {
  await page.evaluate((id) => { location.hash = id; }, id);
  await until(`${id} is shown`, async () => !['', 'Loading…'].includes(await page.textContent('#heading')));
}

play(async () => {
  const { browser, page, complaints } = await openPage();

  step('a session of another program');
  lay('old', [{ role: 'user', content: 'Where to?', timestamp: 1 }, { role: 'assistant', content: 'To the sea.', timestamp: 2 }]);
  await show(page, 'old');
  assert.equal(await page.textContent('#heading'), 'The old one');
  assert.deepEqual(await rowsOf(page), ['Where to?', 'To the sea.']);

  step('rows that nobody should write');
  lay('odd', [
    null, { role: ODD, content: 'a role' }, { role: 'user', content: [{ text: ODD }] }, { role: 'user', content: 'DEEP' },
    { role: 'constructor', content: 'a word', timestamp: 1e300, attachments: 'abc' }, { role: 'assistant', content: 'The last.' },
  ], { title: { a: 1 }, tool_calls: [null, { name: ODD, assistant_msg_idx: 5, args: 'DEEP' }] });
  await show(page, 'odd');
  const rows = await rowsOf(page);
  assert.equal(rows.length, 6);
  assert.deepEqual([rows[1], rows[4]], ['a role', 'a word']);
  assert.equal(await page.textContent('#heading'), '{"a":1}');
  assert(!(await page.textContent('#transcript')).match(/Invalid Date|attached|\[object/));

  step('odd events in an answer that is live');
  const id = await createSession(page, 'Odd events');
  const answer = await newProducer(id, 'Say it oddly.');
  await answer.say('one ');
  await answer.append(['tool', { name: ODD, tool_call_id: 'z' }], ['token', { text: [{ text: ODD }] }], ['attempt', { attempt: ODD }]);
  await answer.append(['snapshot', {}], ['end', {}], ['gap', {}]);
  await answer.say('two ');
  await answer.say('three');
  await waitForWords(page, 'three');
  const shown = await page.textContent('#live');
  for (const word of ['one ', 'two ', 'three']) assert.equal(shown.split(word).length, 2, `${word} is shown once: ${shown}`);
  await answer.end();
  await waitForTheEnd(page);

  step('calls without ids');
  const calls = await newProducer(id, 'Read two files.');
  await calls.append(['tool', { name: 'read', args: { file: 1 } }], ['tool', { name: 'read', args: { file: 2 } }]);
  await page.waitForFunction(() => document.querySelectorAll('#live .tool').length === 2);
  await calls.append(['tool_complete', { name: 'read', result: 'first' }]);
  await page.waitForFunction(() => document.querySelector('#live .tool').className === 'tool done');
  const live = await page.$$eval('#live .tool', (tools) => tools.map((tool) => tool.textContent.replace(/\s+/g, ' ')));
  assert.deepEqual(live.map((text) => text.slice(0, 17).trim()), ['read: done{ "file', 'read: at work{ "f']);
  await waitForState(page, 'read at work');
  await calls.append(['tool', { name: 'cat', tool_call_id: 'c' }], ['tool', { name: 'cat', tool_call_id: 'c' }]);
  await calls.append(['tool_complete', { tool_call_id: 'c', result: 'first' }], ['tool_complete', { name: 'cat', result: 'second' }]);
  await page.waitForFunction(() => document.querySelectorAll('#live .tool.done').length === 3);
  await calls.append(['cancel', {}]);
  await waitForTheEnd(page);
  const saved = await look(page);
  assert.deepEqual(saved.tools.slice(-4), ['read: done', 'read: not finished', 'cat: done', 'cat: done']);

  step('a reader who reads further up stays there when the answer ends');
  const long = await newProducer(id, 'Say a lot.');
  await long.say(Array.from({ length: 300 }, (_, nth) => `line ${nth}\n`).join(''));
  await waitForWords(page, 'line 299');
  const place = (top) => page.evaluate((top) => {
    const box = document.querySelector('#transcript');
    if (top !== undefined) box.scrollTop = top;
    return Math.round(box.scrollTop);
  }, top);
  await place(1200);
  await long.end();
  await waitForTheEnd(page);
  assert.equal(await place(), 1200);
  assertQuiet(complaints);
  await browser.close();
});
