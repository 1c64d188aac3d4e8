// A server that wants a token: the page asks for it, and streams with it, across a crash too.

import assert from 'node:assert/strict';
import {
  createSession, enterToken, look, openPage, say, waitForMarkers, waitForStatus, waitForWords,
} from '../browser.mjs';
import { call, play, savedAnswer, server, step } from '../harness.mjs';

const token = process.argv[2];

play(async () => {
  const { browser, page, complaints } = await openPage();
  await enterToken(page, 'wrong');
  await enterToken(page, token);
  step('it is let in');
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
  const run = session.messages[0]._run_id;
  assert.deepEqual(after.texts, savedAnswer(session, run).texts);
  assert(after.texts.join(' ').startsWith(before.texts.join(' ').slice(0, 40)));
  assert.equal(await page.evaluate(() => sessionStorage.getItem('token')), token);
  assert.deepEqual(complaints.filter((text) => !text.includes('status of 401')), []);
  await browser.close();
});
