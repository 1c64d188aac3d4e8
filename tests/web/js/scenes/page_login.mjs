// A server that wants a token: what the page says of a wrong one, the login over a crash and its end in the middle of
// typing, a token that may only read, and the way out.

import assert from 'node:assert/strict';
import {
  createSession, enterToken, keepPicture, look, openPage, say, waitForMarkers, waitForStatus, waitForText, waitForWords,
} from '../browser.mjs';
import { call, play, savedAnswer, server, step } from '../harness.mjs';

const [token, reading] = process.argv.slice(2);
const OTHER = 'another-token-of-the-test';

play(async () => {
  const { browser, page, complaints } = await openPage();
  await page.waitForSelector('#token-dialog[open]');
  assert.match(await page.textContent('#token-reason'), /wants a token/);
  assert.equal(await page.textContent('#status'), '', 'a server that wants a token does answer');
  await enterToken(page, 'wrong');
  await waitForText(page, '#token-error', 'not one of the server');
  await keepPicture(page, 'wrong-token');
  const often = { error: { code: 'too_many_logins', message: 'too many wrong logins: try again in a second' } };
  await page.route('**/login', (route) => route.fulfill({ status: 429, json: often }), { times: 1 });
  await enterToken(page, token);
  await waitForText(page, '#token-error', 'too many wrong logins');
  await enterToken(page, token);
  await page.waitForSelector('#token-dialog', { state: 'hidden' });
  assert.equal(await page.textContent('#status'), '');
  const kept = () => page.evaluate(() => document.cookie + JSON.stringify([{ ...sessionStorage }, { ...localStorage }]));
  assert(!(await kept()).includes(token), 'no script sees the token or the cookie');

  step('logged in');
  const id = await createSession(page, 'Private');
  await say(page, 'Tell me everything.');
  await waitForWords(page, 'Kill this program');
  const before = await look(page);
  await server.kill();
  await waitForStatus(page, 'does not answer');
  await server.start();
  step('started again');
  await waitForMarkers(page, 1);
  const after = await look(page);
  const session = await call('GET', `/v1/sessions/${id}`, undefined, { authorization: `Bearer ${token}` });
  assert.deepEqual(after.texts, savedAnswer(session, session.messages[0]._run_id).texts);
  assert(after.texts.join(' ').startsWith(before.texts.join(' ').slice(0, 40)));
  await page.reload();
  await waitForMarkers(page, 1);

  step('the token is taken away');
  await page.fill('#message', 'What I typed.');
  await server.setTokens(OTHER, `${reading} read-only`);
  await page.waitForSelector('#token-dialog[open]');
  assert.match(await page.textContent('#token-reason'), /no longer valid/);
  assert.equal(await page.inputValue('#message'), 'What I typed.');
  await keepPicture(page, 'token-taken-away');

  step('a token that may only read');
  await enterToken(page, reading);
  await waitForStatus(page, '^$');
  await page.click('#send');
  await waitForStatus(page, 'only read');
  assert(await page.isDisabled('#send') && await page.isDisabled('#create'));
  assert.equal(await page.inputValue('#message'), 'What I typed.');
  assert.deepEqual(await page.textContent('#heading'), 'Private');
  await keepPicture(page, 'read-only');

  step('out');
  await page.click('#logout');
  await page.waitForSelector('#token-dialog[open]');
  assert.match(await page.textContent('#token-reason'), /wants a token/);
  assert.equal(await kept(), JSON.stringify([{}, {}]));
  await enterToken(page, OTHER);
  await page.waitForSelector(`#sessions a[href="#${id}"]`);
  await page.click(`#sessions a[href="#${id}"]`);
  await say(page, 'And now?');
  await waitForWords(page, 'Good question');
  assert.deepEqual(complaints.filter((text) => !/status of (401|403|429)/.test(text)), []);
  await browser.close();
});
