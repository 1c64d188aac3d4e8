// What a person is about to send: drafts, which stay with their session, and the runner that is to answer.

import { $, browser, later, make, notify, setText, tab } from './dom.js';
import { call } from './server.js';

/** Drafts that survive a reload of the tab, and characters of the longest that does. */
const DRAFTS_MAX = 30;
const DRAFT_CHARS_MAX = 100_000;
const DRAFT = 'draft ';

/** A draft as it was stored. What another program put there is none. */
function draftIn(json) {
  try {
    const { text, sent, run, at } = JSON.parse(json);
    return { text: String(text ?? ''), sent, run, at: Number(at) || 0 };
  } catch {
    return { text: '', at: 0 };
  }
}

const drafts = new Map();
for (const key of tab.keys().filter((name) => name.startsWith(DRAFT))) {
  drafts.set(key.slice(DRAFT.length), draftIn(tab.get(key)));
}

/** What was typed in a session and not sent. */
export const draftOf = (session) => drafts.get(session)?.text ?? '';

export function keepDraft(session, text) {
  if (!text) return dropDraft(session);
  store(session, { ...drafts.get(session), text, at: Date.now() });
}

/** Notes that a message was sent. What was typed since stays, and is another message. */
export function draftWasSent(session, message) {
  const text = draftOf(session);
  if (text && text !== message) store(session, { text, at: Date.now() });
  else dropDraft(session);
}

function dropDraft(session) {
  drafts.delete(session);
  tab.remove(DRAFT + session);
}

function store(session, draft) {
  drafts.set(session, draft);
  const oldestFirst = [...drafts].sort(([, a], [, b]) => a.at - b.at);
  oldestFirst.slice(0, -DRAFTS_MAX).forEach(([other]) => dropDraft(other));
  if (draft.text.length <= DRAFT_CHARS_MAX) tab.set(DRAFT + session, JSON.stringify(draft));
  else tab.remove(DRAFT + session);
}

const freshId = () => crypto.getRandomValues(new Uint32Array(4)).reduce((id, n) => id + n.toString(36), 'web');

/** The run that is to answer a message. The same for the same message until it was sent, so that it can be sent again. */
export function runFor(session, message) {
  const draft = drafts.get(session);
  if (draft?.run && draft.sent === message) return draft.run;
  const run = freshId();
  store(session, { text: message, at: Date.now(), ...draft, sent: message, run });
  return run;
}

// The runner.

const RUNNER = 'runner';
const NONE = 'No runner is configured, so that the server cannot answer. Its administrator adds one: see docs/runs.md.';

/** Fills the list of runners. The last one that was chosen stays chosen if it is still there. */
export async function loadRunners() {
  try {
    const { answer } = await call('GET', 'v1/runners');
    showRunners(answer.runners);
  } catch (error) {
    notify('list', error.status ? `The runners could not be listed: ${error.message}` : '');
    if (error.status === 0) loadRunnersLater();
  }
}

const loadRunnersLater = later(loadRunners);

function showRunners(runners) {
  const usual = runners.find((runner) => runner.default)?.name;
  const last = runners.find((runner) => runner.name === browser.get(RUNNER))?.name;
  const options = runners.map(({ name }) => make('option', { value: name }, name === usual ? `${name} (default)` : name));
  $('runner').replaceChildren(...options);
  $('runner').value = last ?? usual ?? runners[0]?.name ?? '';
  $('runner').hidden = $('runner-label').hidden = runners.length < 2;
  $('send').disabled = runners.length === 0;
  setText($('only-runner'), runners.length === 0 ? NONE : runners.length === 1 ? `Answered by ${runners[0].name}` : '');
}

export const chosenRunner = () => $('runner').value || 'default';

$('runner').addEventListener('change', () => browser.set(RUNNER, $('runner').value));
