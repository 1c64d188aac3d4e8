// Requests that hang, are refused late, or whose answer is lost: each belongs to its session, and no word is lost.

import assert from 'node:assert/strict';
import { enterToken, openPage, waitForStatus, waitForTheEnd, waitForText, waitForWords } from '../browser.mjs';
import { call, newProducer, play, step, until } from '../harness.mjs';

const typed = (page) => page.inputValue('#message');

async function open(page, id, title) {
  await page.evaluate((id) => { location.hash = id; }, id);
  await page.waitForFunction((title) => document.querySelector('#heading').textContent === title, title);
}

/** Holds the next request of a path back until it is released with what is to become of it. */
async function hold(page, path, method) {
  let release;
  const released = new Promise((resolve) => { release = resolve; });
  let isHeld = false;
  await page.route(path, async (route) => {
    if (isHeld || route.request().method() !== method) return route.fallback();
    isHeld = true;
    const act = await released;
    return act(route).catch(() => {});
  });
  const held = () => until('a request is held', () => isHeld);
  return { held, release };
}

const refuse = (status, code, message) => (route) => route.fulfill({ status, json: { error: { code, message } } });
const runsOf = async (id) => (await call('GET', `/v1/sessions/${id}/runs`)).runs;

play(async () => {
  const { browser, page, complaints } = await openPage();
  const [a, b] = ['a', 'b'];
  for (const id of [a, b]) await call('POST', '/v1/sessions', { session_id: id, title: id.toUpperCase() });

  step('a message that is refused after its session was left');
  await open(page, a, 'A');
  const refused = await hold(page, `**/${a}/runs`, 'POST');
  await page.fill('#message', 'For A.');
  await page.click('#send');
  await refused.held();
  await waitForText(page, '#send', 'Sending');
  await open(page, b, 'B');
  assert.equal(await page.textContent('#send'), 'Send');
  await page.fill('#message', 'For B.');
  refused.release(refuse(404, 'not_found', 'there is no such session'));
  await waitForStatus(page, 'not sent.*another session, where your words are kept');
  assert.equal(await page.evaluate(() => location.hash.slice(1)), b);
  assert.equal(await typed(page), 'For B.');
  await page.click('#send');
  await waitForWords(page, 'Good question');
  await waitForStatus(page, '^$');
  await waitForTheEnd(page);
  await open(page, a, 'A');
  assert.equal(await typed(page), 'For A.', 'its words are kept');

  step('a message that is typed while another one is on its way is another one');
  const slow = await hold(page, `**/${a}/runs`, 'POST');
  await page.fill('#message', 'yes');
  await page.click('#send');
  await slow.held();
  await page.fill('#message', 'hmm');
  slow.release((route) => route.continue());
  await waitForWords(page, 'Good question');
  assert.equal(await typed(page), 'hmm');
  await waitForTheEnd(page);
  await page.fill('#message', 'yes');
  await page.click('#send');
  await until('both were sent', async () => (await runsOf(a)).length === 2);
  await waitForTheEnd(page);

  step('a message whose answer is lost has arrived');
  await page.route(`**/${a}/runs`, async (route) => {
    if (route.request().method() !== 'POST') return route.fallback();
    await route.fetch();
    return route.abort('connectionreset');
  }, { times: 1 });
  await page.fill('#message', 'Once.');
  await page.click('#send');
  await page.waitForFunction(() => document.querySelector('#message').value === '');
  assert.equal((await runsOf(a)).length, 3);
  await waitForTheEnd(page);

  step('a message that is lost after its session was left');
  const lost = await hold(page, `**/${a}/runs`, 'POST');
  await page.fill('#message', 'Lost.');
  await page.click('#send');
  await lost.held();
  await open(page, b, 'B');
  await page.route(`**/${a}/runs/*`, (route) => route.abort('connectionreset'), { times: 1 });
  lost.release((route) => route.abort('connectionreset'));
  await waitForStatus(page, 'not sent.*another session, where your words are kept');
  await open(page, a, 'A');
  assert.equal(await typed(page), 'Lost.');
  await page.fill('#message', '');

  step('a request that hangs once is sent again');
  const other = await browser.newPage();
  await other.clock.install();
  const [list, runners, session] = [
    await hold(other, '**/v1/sessions?*', 'GET'), await hold(other, '**/v1/runners', 'GET'), await hold(other, `**/v1/sessions/${b}?*`, 'GET'),
  ];
  await other.goto(`${page.url().split('#')[0]}#${b}`);
  for (const request of [list, runners, session]) await request.held();
  await other.clock.fastForward(61_000);
  await other.clock.runFor(5000);
  await until('all is loaded', async () => (await other.textContent('#heading')) === 'B'
    && (await other.locator('#sessions a').count()) === 2 && (await other.locator('#runner option').count()) > 0);
  await waitForStatus(other, '^$');
  await other.close();

  step('a session that hangs does not keep another one from being shown');
  const stuck = await hold(page, `**/v1/sessions/${b}?limit=*`, 'GET');
  await page.evaluate((id) => { location.hash = id; }, b);
  await stuck.held();
  assert.equal(await page.textContent('#heading'), 'Loading…');
  await open(page, a, 'A');
  stuck.release((route) => route.continue());
  await page.unrouteAll();

  step('a stop that is refused is none');
  const answer = await newProducer(a, 'Go on for ever.');
  await answer.append(['tool', { name: 'ls', tool_call_id: '1' }]);
  await waitForText(page, '.progress', 'ls at work');
  await page.route('**/stop', refuse(507, 'no_space', 'the disk is full'), { times: 1 });
  await page.click('#stop');
  await waitForStatus(page, 'not stopped: the disk is full');
  await waitForText(page, '.progress', 'ls at work');
  await page.click('#stop');
  await waitForTheEnd(page);
  await waitForStatus(page, '^$');

  step('the dialog of the login stays');
  await page.route('**/v1/runners', refuse(401, 'unauthorized', 'a token is needed'), { times: 1 });
  await page.reload();
  await page.waitForSelector('#token-dialog[open]');
  for (let nth = 0; nth < 3; nth += 1) await page.keyboard.press('Escape');
  await enterToken(page, 'anything');
  await page.waitForSelector('#token-dialog', { state: 'hidden' });
  const expected = /status of (401|404|507)|ERR_CONNECTION_RESET/;
  assert.deepEqual(complaints.filter((text) => !expected.test(text)), []);
  await browser.close();
});
