// What goes wrong, told apart: sessions that are not there, a server that ends, a full disk, a proxy's error. And drafts,
// which stay with their session.

import assert from 'node:assert/strict';
import {
  createSession, keepPicture, look, openPage, say, waitForStatus, waitForTheEnd, waitForWords,
} from '../browser.mjs';
import { call, play, server, step } from '../harness.mjs';

const open = (page, id) => page.evaluate((id) => { location.hash = id; }, id);

const typed = (page) => page.inputValue('#message');

/** Waits until a session is shown. */
const waitForHeading = (page, title) => page.waitForFunction(
  (title) => document.querySelector('#heading').textContent === title, title);

/** Has the next POST of a path answered with an error that a test cannot cause. */
async function failOnce(page, path, status, body) {
  await page.route(path, (route) => {
    if (route.request().method() !== 'POST') return route.fallback();
    return route.fulfill({ status, body, headers: { 'content-type': body.startsWith('{') ? 'application/json' : 'text/html' } });
  }, { times: 1 });
}

play(async () => {
  const { browser, page, complaints } = await openPage();

  step('a session that is not there');
  for (const id of ['nowhere', 'no%20id', '%zz']) {
    await open(page, id);
    await waitForStatus(page, 'There is no session');
    assert.equal(await page.evaluate(() => location.hash), '');
    assert(await page.isVisible('#nothing'));
  }
  await keepPicture(page, 'unknown-session');
  const size = page.viewportSize();
  await page.setViewportSize({ width: 360, height: 640 });
  const { y, height } = await page.locator('#status').boundingBox();
  assert(y >= 0 && y + height < 640, 'it is seen on a phone, too');
  await keepPicture(page, 'phone-unknown');
  await page.setViewportSize(size);
  const first = await createSession(page, 'First');
  await waitForStatus(page, '^$');

  step('drafts');
  await page.fill('#message', 'Of the first.');
  const second = await createSession(page, 'Second');
  assert.equal(await typed(page), '');
  await page.fill('#message', 'Of the second.');
  await open(page, first);
  await waitForHeading(page, 'First');
  assert.equal(await typed(page), 'Of the first.');
  await page.reload();
  await waitForHeading(page, 'First');
  assert.equal(await typed(page), 'Of the first.');
  await page.click('#send');
  await page.waitForFunction(() => document.querySelector('#message').value === '');
  await open(page, second);
  await waitForHeading(page, 'Second');
  assert.equal(await typed(page), 'Of the second.');
  await open(page, first);
  await waitForHeading(page, 'First');
  assert.equal(await typed(page), '');
  await waitForTheEnd(page);
  await page.reload();
  await waitForHeading(page, 'First');
  assert.equal(await typed(page), '', 'what was sent is no draft');

  step('a full disk, and a proxy');
  await page.fill('#message', 'Again.');
  const full = { error: { code: 'no_space', message: "the server's disk is full: nothing was lost, try again when there is room" } };
  await failOnce(page, '**/runs', 507, JSON.stringify(full));
  await page.click('#send');
  await waitForStatus(page, 'not sent: the server\'s disk is full');
  assert.equal(await typed(page), 'Again.');
  await failOnce(page, '**/runs', 502, '<h1>Bad gateway</h1>');
  await page.click('#send');
  await waitForStatus(page, 'not sent: .*status 502');
  await page.click('#send');
  await waitForWords(page, 'Good question');
  await waitForStatus(page, '^$');
  assert.equal((await look(page)).questions.filter((text) => text === 'Again.').length, 1);
  await waitForTheEnd(page);

  step('deleted while it is open');
  await open(page, second);
  await waitForHeading(page, 'Second');
  await call('DELETE', `/v1/sessions/${second}`);
  await waitForStatus(page, `There is no session ${second}`);
  assert(await page.isVisible('#nothing'));

  step('a server that ends');
  await call('POST', '/v1/sessions', { session_id: 'busy' });
  await call('POST', '/v1/sessions/busy/runs', { message: 'Take your time.', runner: 'slow' });
  await open(page, first);
  await waitForHeading(page, 'First');
  await server.drain();
  await say(page, 'Once more.');
  await waitForStatus(page, 'not sent: the server is shutting down');
  await server.kill();
  await waitForStatus(page, 'does not answer');
  await server.start();
  await waitForStatus(page, '^$');
  assert.equal(await typed(page), 'Once more.');
  const expected = /status of (400|404|502|503|507)/;
  assert.deepEqual(complaints.filter((text) => !expected.test(text)), []);
  await browser.close();
});
