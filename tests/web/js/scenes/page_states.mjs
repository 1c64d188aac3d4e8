// What an answer is doing is visible: it waits, thinks, uses a tool, is tried again, is stopped. Runners are a list, and a
// session is titled after its first message.

import assert from 'node:assert/strict';
import {
  createSession, keepPicture, look, openPage, say, waitForMarkers, waitForState, waitForText, waitForTheEnd, waitForWords,
} from '../browser.mjs';
import { openEndpoint } from '../endpoint.mjs';
import { call, newProducer, play, sessionOf, step, until } from '../harness.mjs';

const LONG = 'A question that is far too long\nfor the title of a session, even with a little patience';
const TITLE = 'A question that is far too long for the title of a session,...';

const announcement = (page) => page.textContent('#announcement');

play(async () => {
  const endpoint = await openEndpoint();
  const { browser, page, complaints } = await openPage();
  await keepPicture(page, 'list-empty');

  step('a producer outside');
  const id = await createSession(page);
  await page.waitForFunction(() => document.activeElement.id === 'message');
  await page.click('#create');
  assert.equal((await call('GET', '/v1/sessions')).sessions.length, 1, 'an empty session is not left for another one');
  const producer = await newProducer(id, LONG);
  await waitForState(page, 'Waiting for the first word… [1-9] s');
  await waitForText(page, '#heading', TITLE);
  assert.equal((await sessionOf(id)).title, TITLE);
  await keepPicture(page, 'waiting');
  await producer.append(['reasoning', { text: 'Let me see.' }]);
  await waitForState(page, 'Thinking… [1-9] s');
  assert.equal(await announcement(page), 'Thinking');
  await keepPicture(page, 'thinking');
  await producer.append(['tool', { tool_call_id: 't', name: 'look', args: { where: 'here' } }]);
  await waitForState(page, 'look at work… [1-9] s');
  await page.reload();
  await waitForState(page, 'look at work… [1-9] s');
  await keepPicture(page, 'tool');
  await producer.append(['tool_complete', { tool_call_id: 't', name: 'look', result: 'nothing' }]);
  await producer.say('I see nothing.');
  await waitForState(page, '^$');
  await page.click('#stop');
  await waitForMarkers(page, 1);
  assert.match((await look(page)).markers[0], /^You stopped this answer/);
  assert.match(await announcement(page), /ended early/);

  step('a backend that is busy');
  const options = await page.$$eval('#runner option', (all) => all.map((option) => [option.value, option.textContent]));
  assert.deepEqual(options.map(([value]) => value), ['agent', 'demo', 'model', 'slow', 'tools']);
  assert.equal(await page.inputValue('#runner'), 'demo');
  assert.equal(options[1][1], 'demo (default)');
  await page.selectOption('#runner', 'model');
  await page.reload();
  await page.waitForSelector('#runner option', { state: 'attached' });
  assert.equal(await page.inputValue('#runner'), 'model', 'the last choice is remembered');
  endpoint.next = 'busy';
  await say(page, 'Are you there?');
  await waitForState(page, /^Attempt 2 of 3: .*the model is busy.*, again in [1-3] s$/);
  await keepPicture(page, 'retrying');
  await page.reload();
  await waitForState(page, /^Attempt 2 of 3: .*the model is busy/);
  endpoint.next = 'Here I am.';
  await page.waitForFunction(() => document.querySelector('#rows').textContent.includes('Here I am.'));
  await waitForTheEnd(page);
  assert.equal(await announcement(page), 'The answer is complete');
  assert.equal((await sessionOf(id)).title, TITLE, 'the first message titles the session, and no other');
  await keepPicture(page, 'session');

  step('the titles that people give stay');
  const named = await createSession(page, 'My own');
  await say(page, 'Hello.');
  await page.waitForFunction(() => document.querySelector('#rows').textContent.includes('Here I am.'));
  assert.equal((await sessionOf(named)).title, 'My own');

  step('other runners');
  await page.route('**/v1/runners', (route) => route.fulfill({ json: { runners: [{ name: 'one', kind: 'demo', default: true }] } }));
  await page.reload();
  await waitForText(page, '#only-runner', '^Answered by one$');
  assert(!(await page.isVisible('#runner')) && await page.isEnabled('#send'));
  await page.route('**/v1/runners', (route) => route.fulfill({ json: { runners: [] } }));
  await page.reload();
  await waitForText(page, '#only-runner', 'No runner is configured.*docs/runs.md');
  assert(await page.isDisabled('#send'));
  await page.unroute('**/v1/runners');

  step('in the dark');
  await page.emulateMedia({ colorScheme: 'dark' });
  await page.reload();
  await until('it is shown', async () => (await look(page)).texts.length > 0);
  await keepPicture(page, 'dark');
  assert.deepEqual(complaints, []);
  await browser.close();
});
