// A browser and its complaints. What the page may not do, it complains about.

import assert from 'node:assert/strict';
import { chromium } from 'playwright-core';
import { base } from './harness.mjs';

const FLAGS = [
  '--no-sandbox',
  '--disable-gpu',
  '--disable-background-networking',
  '--disable-component-update',
  '--disable-sync',
  '--no-first-run',
];

/** What a browser says while the server is away. */
const OUTAGE = /^Failed to load resource: net::ERR_/;

/** The page in a fresh browser; `complaints` are what nobody wants to see. */
export async function openPage(server = base) {
  const browser = await chromium.launch({ executablePath: '/usr/bin/chromium', headless: true, args: FLAGS });
  const page = await browser.newPage();
  page.setDefaultTimeout(15_000);
  const complaints = [];
  page.on('console', (message) => {
    if (['error', 'warning'].includes(message.type()) && !OUTAGE.test(message.text())) complaints.push(message.text());
  });
  page.on('pageerror', (error) => complaints.push(error.stack));
  page.on('dialog', (dialog) => { complaints.push(`a dialog: ${dialog.message()}`); dialog.dismiss(); });
  await page.addInitScript(() => {
    const complain = (event) => console.error(`refused: ${event.violatedDirective}`);
    document.addEventListener('securitypolicyviolation', complain);
  });
  await page.goto(server);
  return { browser, page, complaints };
}

/** What the page shows: rows, answer, state. */
export const look = (page) => page.evaluate(() => {
  const found = (path) => [...document.querySelectorAll(`#transcript ${path}`)];
  const all = (path) => found(path).map((element) => element.textContent.trim());
  return {
    texts: all('.other > .words'),
    thoughts: all('.other > details:not(.tool) > .words'),
    questions: all('.user > .words'),
    tools: all('.tool > summary'),
    markers: all('.marker > .words'),
  };
});

/** Begins a session in the page. With a title it is given that one, as a person would give it elsewhere. */
export async function createSession(page, title) {
  const before = await page.evaluate(() => location.hash);
  await page.click('#create');
  await page.waitForFunction((before) => location.hash !== before && location.hash.length > 1, before);
  const id = await page.evaluate(() => location.hash.slice(1));
  if (title) await page.evaluate(rename, [id, title]);
  await page.waitForFunction((title) => document.querySelector('#heading').textContent === title, title ?? 'Untitled');
  return id;
}

async function rename([id, title]) {
  const headers = { 'content-type': 'application/json', 'if-match': '*' };
  await fetch(`v1/sessions/${id}`, { method: 'PATCH', headers, body: JSON.stringify({ title }) });
}

export async function say(page, message) {
  await page.fill('#message', message);
  await page.click('#send');
}

/** Waits until the answer that is live holds these words. */
export const waitForWords = (page, words) => page.waitForFunction(
  (words) => document.querySelector('#live').textContent.includes(words),
  words,
);

/** Waits until nothing is live. */
export const waitForTheEnd = (page) => page.waitForFunction(() => !document.querySelector('#live').hasChildNodes());

/** Waits until the page says this of the server. */
export const waitForStatus = (page, status) => page.waitForFunction(
  (status) => document.querySelector('#status').textContent.match(status),
  status,
);

/** Waits until the rows hold so many markers, and nothing is live. */
export async function waitForMarkers(page, count) {
  await page.waitForFunction((count) => document.querySelectorAll('#rows .marker').length === count, count);
  await waitForTheEnd(page);
}

/** From now on, notes how often the transcript shows these words: the fewest and the most times. */
export const watchWords = (page, words) => page.evaluate((words) => {
  const count = () => document.querySelector('#transcript').textContent.split(words).length - 1;
  window.times = [count(), count()];
  const note = () => { window.times = [Math.min(count(), window.times[0]), Math.max(count(), window.times[1])]; };
  new MutationObserver(note).observe(document.querySelector('#transcript'), { childList: true, subtree: true });
}, words);

export const timesShown = (page) => page.evaluate(() => window.times);

/** Gives the page the token that it asks for. */
export async function enterToken(page, token) {
  await page.waitForSelector('#token-dialog[open]');
  await page.fill('#token', token);
  await page.click('#token-send');
}

/** Waits until an element of the page has a text. */
export const waitForText = (page, selector, text) => page.waitForFunction(
  ([selector, text]) => document.querySelector(selector)?.textContent.match(text),
  [selector, text],
);

/** Waits until the page says what the answer is doing. */
export const waitForState = (page, state) => waitForText(page, '.progress', state);

/** Tells how many seconds the page's main thread has worked since it was last asked: of a processor's time, so that other
 * programs do not count. It cannot have been blocked for longer. */
export async function newStopwatch(page) {
  const session = await page.context().newCDPSession(page);
  await session.send('Performance.enable', { timeDomain: 'threadTicks' });
  let before = 0;
  return async () => {
    const { metrics } = await session.send('Performance.getMetrics');
    const now = metrics.find((metric) => metric.name === 'TaskDuration').value;
    const seconds = now - before;
    before = now;
    return seconds;
  };
}

/** From now on, notes every status that the page shows. */
export const watchStatus = (page) => page.evaluate(() => {
  window.statuses = [];
  const status = document.querySelector('#status');
  new MutationObserver(() => window.statuses.push(status.textContent)).observe(status, { childList: true });
});

/** Waits until the page has shown a status, for however short a time. */
export const waitForPastStatus = (page, text) => page.waitForFunction(
  (text) => window.statuses.some((status) => status.match(text)),
  text,
);

/** Keeps what the page looks like, if that is asked for: `LASTWORD_SCREENSHOTS` names a directory. */
export async function keepPicture(page, name) {
  const directory = process.env.LASTWORD_SCREENSHOTS;
  if (directory) await page.screenshot({ path: `${directory}/${name}.png` });
}

export const assertQuiet = (complaints) => assert.deepEqual(complaints, []);
