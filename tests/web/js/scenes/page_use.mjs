// The page in use: stopped answers, a list that is live, searched and paged, and texts of others, which stay texts.

import assert from 'node:assert/strict';
import {
  assertQuiet, createSession, keepPicture, look, openPage, say, waitForMarkers, waitForTheEnd, waitForWords,
} from '../browser.mjs';
import { call, play, step, until } from '../harness.mjs';

const EVIL = '<img src=x onerror="alert(1)"><script>alert(2)</script>';

const titles = (page) => page.$$eval('#sessions a', (links) => links.map((link) => link.firstChild.textContent));

play(async () => {
  const { browser, page, complaints } = await openPage();
  step('stop');
  const id = await createSession(page);
  await say(page, EVIL);
  await waitForWords(page, 'Good question');
  await page.click('#stop');
  await waitForMarkers(page, 1);
  const stopped = await look(page);
  assert.match(stopped.markers[0], /^You stopped this answer/);
  assert(!stopped.tools.some((tool) => tool.includes('at work')), 'nothing is at work in an answer that has ended');
  assert(await page.isVisible('#send') && !(await page.isVisible('#stop')));

  step('texts stay texts');
  assert.deepEqual(stopped.questions, [EVIL]);
  assert.deepEqual(await titles(page), [EVIL]);
  const run = await call('POST', `/v1/sessions/${id}/runs`, { message: 'By hand.' });
  const tool = { name: EVIL, tool_call_id: 't', preview: EVIL, args: { a: EVIL } };
  const payloads = { token: { text: EVIL }, reasoning: { text: EVIL }, tool };
  const events = Object.entries(payloads).map(([event, payload]) => JSON.stringify({ event, payload }));
  const append = (lines) => call('POST', `/v1/sessions/${id}/runs/${run.run_id}/events`, lines.join('\n'));
  await append(events);
  await waitForWords(page, 'alert(2)');
  await append(['{"event":"done"}']);
  await waitForTheEnd(page);
  assert((await look(page)).texts.includes(EVIL));
  assert.equal(await page.locator('img, iframe, body script, #transcript script').count(), 0);

  step('the list is live');
  await call('POST', '/v1/sessions', { session_id: 'other', title: 'Somewhere else' });
  await until('it is listed', async () => (await titles(page))[0] === 'Somewhere else');
  for (let nth = 0; nth < 60; nth += 1) await call('POST', '/v1/sessions', { title: `Number ${nth}` });
  await page.reload();
  await until('a page is listed', async () => (await titles(page)).length === 50);
  await page.click('#more');
  await until('all are listed', async () => (await titles(page)).length === 62);
  await page.fill('#search', 'SOMEwhere');
  await until('one is found', async () => (await titles(page)).length === 1);
  await call('DELETE', '/v1/sessions/other');
  await until('it is gone', async () => (await titles(page)).length === 0);

  step('at the width of a phone');
  await page.setViewportSize({ width: 360, height: 640 });
  assert.equal(await page.evaluate(() => document.documentElement.scrollWidth), 360);
  await keepPicture(page, 'phone-session');
  await page.click('#back');
  await page.waitForSelector('#search', { state: 'visible' });
  assert(!(await page.isVisible('#message')));
  await keepPicture(page, 'phone-list');
  assertQuiet(complaints);
  await browser.close();
});
