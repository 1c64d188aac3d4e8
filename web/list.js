// The list of sessions: loaded by page, kept up to date by the stream of the list, searched by title.

import { $, later, make, notify, oncePerFrame, textOf } from './dom.js';
import { call } from './server.js';
import { Following } from './stream.js';

/** States of a session that the list shows instead of its number of messages. */
const STATES = new Set(['answering', 'interrupted']);

const list = { sessions: new Map(), next: null, current: null };

/** Lets one call of a task work at a time; all calls meanwhile have it done once more. */
export function oneAtATime(task) {
  let last = Promise.resolve();
  let next = null;
  const work = () => { next = null; return task(); };
  return () => (next ??= last = last.then(work));
}

async function loadPage(cursor) {
  const query = new URLSearchParams({ limit: 50, archived: false, q: $('search').value, ...(cursor && { cursor }) });
  try {
    const { answer: page } = await call('GET', `v1/sessions?${query}`);
    if (!cursor) list.sessions.clear();
    page.sessions.forEach((session) => list.sessions.set(session.session_id, session));
    list.next = page.next_cursor;
    notify('list');
  } catch (error) {
    notify('list', error.status ? `The sessions could not be listed: ${error.message}` : '');
    if (error.status === 0) loadLater();
  }
  show();
}

const load = oneAtATime(() => loadPage(null));
const loadLater = later(load);

function hear(name, session) {
  if (name === 'snapshot') return load();
  const isShown = name === 'changed' && !session.archived;
  const isFound = textOf(session.title).toLowerCase().includes($('search').value.toLowerCase());
  if (isShown && isFound) list.sessions.set(session.session_id, session);
  else list.sessions.delete(session.session_id);
  show();
}

const show = oncePerFrame(() => {
  const focused = document.activeElement?.closest?.('#sessions a')?.getAttribute('href');
  const newestFirst = [...list.sessions.values()].sort((a, b) => (b.updated_at ?? 0) - (a.updated_at ?? 0));
  $('sessions').replaceChildren(...newestFirst.map((session) => make('li', {}, linkTo(session))));
  if (focused) $('sessions').querySelector(`[href="${CSS.escape(focused)}"]`)?.focus({ preventScroll: true });
  $('more').hidden = !list.next;
});

function linkTo(session) {
  const rows = session.message_count === 1 ? '1 message' : `${session.message_count ?? 0} messages`;
  const state = session.error?.message ?? (STATES.has(session.state) ? session.state : rows);
  const isCurrent = session.session_id === list.current ? { 'aria-current': 'page' } : {};
  const title = make('span', { class: 'title' }, textOf(session.title) || session.session_id);
  return make('a', { href: `#${session.session_id}`, ...isCurrent }, title, make('small', {}, state));
}

/** Marks the session that is open. */
export function markCurrent(id) {
  list.current = id;
  show();
}

/** Shows the list and keeps it up to date. `on` is called when the stream opens, and with every change. */
export function followList(on) {
  $('more').addEventListener('click', () => loadPage(list.next));
  $('search').addEventListener('input', load);
  const heard = (name, text) => {
    const session = JSON.parse(text);
    hear(name, session);
    on.heard(name, session);
  };
  const refused = (error) => notify('list', `The list cannot be followed: ${error.message}`);
  new Following('v1/events', '', { opened: on.opened, heard, refused });
}
