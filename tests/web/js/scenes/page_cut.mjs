// The page loses its connection in the middle of an answer, which goes on: it comes back, and shows every word once.

import assert from 'node:assert/strict';
import {
  createSession, enterToken, look, openPage, timesShown, waitForPastStatus, waitForStatus, waitForTheEnd, waitForWords,
  watchStatus, watchWords,
} from '../browser.mjs';
import { newCable } from '../cable.mjs';
import { newProducer, play, step } from '../harness.mjs';

const token = process.argv[2];
const headers = token ? { authorization: `Bearer ${token}` } : {};

play(async () => {
  const cable = await newCable();
  const { browser, page, complaints } = await openPage(cable.server);
  if (token) await enterToken(page, token);
  const producer = await newProducer(await createSession(page, 'A cut'), 'Where to?', headers);
  await producer.say('To the sea');
  await waitForWords(page, 'To the sea');
  await watchWords(page, 'To the sea');
  await watchStatus(page);
  cable.cut();
  await waitForPastStatus(page, 'Connecting again');
  step('cut');
  await producer.say(', where it is');
  await waitForWords(page, ', where it is');
  await waitForStatus(page, '^$');
  await producer.say(' warm.');
  await waitForWords(page, 'To the sea, where it is warm.');
  await producer.end();
  await waitForTheEnd(page);
  const { texts, questions, markers } = await look(page);
  assert.deepEqual([questions, texts, markers], [['Where to?'], ['To the sea, where it is warm.'], []]);
  assert.deepEqual(await timesShown(page), [1, 1], 'nothing was gone for a moment, and nothing shown twice');
  assert.deepEqual(complaints.filter((text) => !text.includes('status of 401')), []);
  await browser.close();
});
