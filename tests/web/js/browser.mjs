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

export async function createSession(page, title) {
  await page.fill('#title', title);
  await page.click('#create button');
  await page.waitForFunction((title) => document.querySelector('#heading').textContent === title, title);
  return page.evaluate(() => location.hash.slice(1));
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
  await page.click('#token-form button');
}

export const assertQuiet = (complaints) => assert.deepEqual(complaints, []);
