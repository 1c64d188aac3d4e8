// The page: a message, the answer as it comes, kill -9 in the middle of it. Every word is shown once, and the marker.

import assert from 'node:assert/strict';
import {
  assertQuiet, createSession, keepPicture, look, openPage, say, timesShown, waitForMarkers, waitForStatus, waitForTheEnd,
  waitForWords, watchWords,
} from '../browser.mjs';
import { play, savedAnswer, server, sessionOf, step } from '../harness.mjs';

const wordsOf = (texts) => texts.join(' ').split(/\s+/);

play(async () => {
  const { browser, page, complaints } = await openPage();
  const id = await createSession(page, 'A crash');
  await say(page, 'Tell me everything.');
  await waitForWords(page, 'Kill this program');
  step('it answers');
  const { active_stream_id: run } = await sessionOf(id);
  await watchWords(page, 'Good question!');
  await server.kill();
  await waitForStatus(page, 'does not answer');
  const before = await look(page);
  assert.deepEqual(before.questions, ['Tell me everything.']);
  await server.start();
  step('started again');
  await waitForMarkers(page, 1);
  assert.deepEqual(await timesShown(page), [1, 1], 'nothing was gone for a moment, and nothing shown twice');
  const after = await look(page);
  const saved = savedAnswer(await sessionOf(id), run);
  assert.deepEqual(after.texts, saved.texts);
  assert.deepEqual(after.thoughts, saved.thoughts);
  assert.deepEqual(after.questions, ['Tell me everything.']);
  assert.deepEqual(after.tools, ['count_words: done']);
  assert.match(after.markers[0], /interrupted/);
  const [seen, shown] = [wordsOf(before.texts), wordsOf(after.texts)];
  assert.deepEqual(shown.slice(0, seen.length), seen, 'nothing that was seen is missing');
  await waitForStatus(page, '^$');

  step('the conversation goes on');
  await say(page, 'And then?');
  await page.waitForFunction(() => document.querySelector('#rows').textContent.includes('The last word is yours.'));
  await waitForTheEnd(page);
  const whole = await look(page);
  assert.deepEqual(whole.questions, ['Tell me everything.', 'And then?']);
  assert.equal(whole.markers.length, 1);
  assert.equal(whole.texts.length, saved.texts.length + 2);
  await keepPicture(page, 'interrupted');

  step('a message while nobody listens');
  await server.kill();
  await say(page, 'Again.');
  await waitForStatus(page, 'does not answer');
  assert.equal(await page.inputValue('#message'), 'Again.');
  await server.start();
  await waitForStatus(page, '^$');
  await page.click('#send');

  step('loaded anew in the middle of an answer');
  await waitForWords(page, 'Good question');
  await page.reload();
  await waitForWords(page, 'Good question! Let me have a look.');
  assert.equal((await look(page)).questions.at(-1), 'Again.');
  await waitForTheEnd(page);
  const all = await look(page);
  assert.deepEqual(all.questions, ['Tell me everything.', 'And then?', 'Again.']);
  assert.equal(all.texts.length, saved.texts.length + 4);
  assertQuiet(complaints);
  await browser.close();
});
