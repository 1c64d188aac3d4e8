// The page: one session, and the answer that is being given in it. What it shows of a session is what the server saved;
// below it stands the answer that is live, made of the run's events, until the saved one takes its place.

import { chosenRunner, draftOf, dropDraft, keepDraft, loadRunners, runFor } from './compose.js';
import { $, announce, make, notify, oncePerFrame, setText } from './dom.js';
import { followList, markCurrent, oneAtATime } from './list.js';
import { logOut, showLogout } from './login.js';
import { call } from './server.js';
import { Following } from './stream.js';
import { Answer, Rows, showRow } from './transcript.js';

const ROWS_OF_A_PAGE = 100;
/** The most rows that the server gives at a time. */
const ROWS_MAX = 10_000;
/** How long events are taken in before the page is painted again. */
const FRAME_MS = 12;
/** How near to the end of the transcript a reader is taken to be at the end. */
const END_PIXELS = 80;

const rows = new Rows();
const pathOf = (id) => `v1/sessions/${encodeURIComponent(id)}`;
const fresh = () => ({
  session: null, shown: '', live: null, saved: new Set(), limit: ROWS_OF_A_PAGE, following: null, heard: [],
});
const view = { id: undefined, ...fresh() };

// Opening a session.

/** Shows the session that the address names. */
function goTo(id) {
  if (id === view.id) return;
  view.following?.leave();
  Object.assign(view, { id, ...fresh() });
  notify('session');
  notify('action');
  announce('');
  document.body.classList.toggle('in-session', Boolean(id));
  $('session').hidden = !id;
  $('nothing').hidden = Boolean(id);
  rows.clear();
  setText($('heading'), '');
  $('message').value = id ? draftOf(id) : '';
  showLive();
  markCurrent(id);
  document.title = 'Lastword';
  if (!id) return;
  // Whatever ends before the stream is open is saved by then, and whatever ends later is heard.
  const on = { opened: loadSession, heard: hear, refused };
  view.following = new Following(`${pathOf(id)}/events`, 'now', on);
}

function refused(error) {
  if (error.status === 404) leaveMissing(view.id);
  else notify('session', `The session cannot be followed: ${error.message}`);
}

/** Goes back to the list from a session that is not there. */
function leaveMissing(id) {
  if (id !== view.id) return;
  history.replaceState(null, '', location.pathname + location.search);
  goTo(null);
  notify('session', `There is no session ${id}: it was deleted, or the address is wrong. Choose another one.`);
}

const loadSession = oneAtATime(async () => {
  const { id, limit } = view;
  if (!id) return;
  try {
    const { answer, revision } = await call('GET', `${pathOf(id)}?limit=${limit}`);
    if (id === view.id) showSession(answer, `${revision} ${limit}`);
  } catch (error) {
    if (error.status === 404) leaveMissing(id);
    else if (error.status && id === view.id) notify('session', `The session could not be read: ${error.message}`);
  }
});

function showSession(session, revision) {
  notify('session');
  const active = session.active_stream_id;
  view.session = session;
  view.saved = new Set(session.messages.map((row) => row._run_id ?? row._recovered_stream_id));
  view.saved.delete(active);
  if (view.saved.has(view.live?.run)) endLive(session);
  if (active && !view.live) view.live = new Answer(active, session.pending_started_at);
  const title = session.title || session.session_id;
  setText($('heading'), title);
  document.title = `${title} – Lastword`;
  $('earlier').hidden = session.page.rows_from === 0 || view.limit >= ROWS_MAX;
  keepingTheEndInSight(() => {
    if (view.shown !== revision) rows.show(session);
    showLive();
  });
  view.shown = revision;
}

function endLive(session) {
  const isOfRun = (row) => (row._run_id ?? row._recovered_stream_id) === view.live.run;
  announce(session.messages.findLast(isOfRun)?._error ? 'The answer ended early' : 'The answer is complete');
  view.live = null;
}

// The answer that is live.

/** Takes note of an event. It is shown with the others of this frame. */
function hear(name, text) {
  view.heard.push([name, text]);
  showHeard();
}

const showHeard = oncePerFrame(() => {
  const { heard } = view;
  const end = performance.now() + FRAME_MS;
  keepingTheEndInSight(() => {
    let count = 0;
    while (count < heard.length && performance.now() < end) take(...heard[count++]);
    heard.splice(0, count);
    view.live?.flush();
    showState();
  });
  if (view.heard.length > 0) showHeard();
});

function take(name, text) {
  const { run_id: run, state, payload, created_at: at } = JSON.parse(text);
  if (name === 'end' && state === 'deleted') return leaveMissing(view.id);
  if (name === 'snapshot') view.live = null;
  if (name === 'end' || name === 'snapshot') return loadSession();
  if (view.saved.has(run)) return;
  if (view.live?.run !== run) {
    view.live = new Answer(run);
    loadSession();
  }
  view.live.hear(name, payload ?? {}, at);
}

function showLive() {
  const { live, session } = view;
  const pending = live && session?.pending_user_message;
  const question = pending ? [showRow({ role: 'user', content: pending }, [])] : [];
  $('live').replaceChildren(...question, ...(live ? [live.element, progress] : []));
  $('send').hidden = Boolean(live);
  $('stop').hidden = !live;
  showState();
}

const progress = make('p', { class: 'progress' });

function showState() {
  setText(progress, view.live?.state() ?? '');
  if (view.live) announce(view.live.stateInWords());
}

setInterval(() => { if (view.live) keepingTheEndInSight(showState); }, 1000);

/** Changes the transcript, and stays at its end if that is where the reader was. */
function keepingTheEndInSight(change) {
  const box = $('transcript');
  const isAtEnd = box.scrollHeight - box.scrollTop - box.clientHeight < END_PIXELS;
  change();
  if (isAtEnd) box.scrollTop = box.scrollHeight;
}

/** Shows more rows before those that are shown, which stay where they are. */
async function showEarlier() {
  const box = $('transcript');
  view.limit = Math.min(view.limit + ROWS_OF_A_PAGE, ROWS_MAX);
  const fromEnd = box.scrollHeight - box.scrollTop;
  await loadSession();
  box.scrollTop = box.scrollHeight - fromEnd;
}

// What people do.

/** Sends the message. Its run has an id of ours: when it is unknown whether it arrived, it can be sent again. */
async function send() {
  const { id } = view;
  const message = $('message').value;
  if (!id || !message.trim() || view.live || $('send').disabled) return;
  const run = runFor(id, message);
  try {
    await call('POST', `${pathOf(id)}/runs`, { message, run_id: run, runner: chosenRunner() });
  } catch (error) {
    await loadSession();
    const hasArrived = error.status === 409 && (view.saved.has(run) || view.session?.active_stream_id === run);
    if (!hasArrived) return refuse(`The message was not sent: ${error.message}`, error);
  }
  if (draftOf(id) === message) dropDraft(id);
  if (id !== view.id) return;
  if ($('message').value === message) $('message').value = '';
  await loadSession();
}

/** Whether the last refusal was that of a server that ends. */
let wasDraining = false;

/** Says why something was not done. That the server is not reached, and that one may only read, is said anyway. */
function refuse(text, error) {
  notify('action', [0, 403].includes(error.status) ? '' : text);
  wasDraining = error.status === 503;
  if (error.status === 404) leaveMissing(view.id);
  if (error.code === 'unknown_runner') loadRunners();
}

/** Opens a session without messages: the present one if nothing was said or typed in it. */
async function create() {
  const isEmpty = view.session?.page.rows_total === 0 && !view.live && !$('message').value;
  if (!isEmpty) {
    location.hash = (await call('POST', 'v1/sessions', {})).answer.session_id;
    goToAddress();
  }
  $('message').focus();
}

async function stop() {
  if (!view.live) return;
  view.live.stopping();
  showState();
  await call('POST', `${pathOf(view.id)}/runs/${encodeURIComponent(view.live.run)}/stop`);
}

/** Lets a button or a form act once at a time, and says why it could not. */
function onEvent(id, name, button, what, act) {
  $(id).addEventListener(name, async (event) => {
    event.preventDefault();
    if ($(button).ariaBusy === 'true') return;
    $(button).ariaBusy = 'true';
    notify('action');
    await act().catch((error) => refuse(`${what}: ${error.message}`, error));
    $(button).ariaBusy = 'false';
  });
}
onEvent('say', 'submit', 'send', 'The message was not sent', send);
onEvent('create', 'click', 'create', 'No session was created', create);
onEvent('stop', 'click', 'stop', 'The answer was not stopped', stop);
onEvent('logout', 'click', 'logout', 'You are still logged in', logOut);
onEvent('earlier', 'click', 'earlier', 'Earlier messages were not loaded', showEarlier);
$('message').addEventListener('input', () => {
  notify('action');
  if (view.id) keepDraft(view.id, $('message').value);
});
$('message').addEventListener('keydown', (event) => {
  if (event.key !== 'Enter' || event.shiftKey || event.isComposing) return;
  event.preventDefault();
  $('say').requestSubmit();
});

function sessionOfAddress() {
  try {
    return decodeURIComponent(location.hash.slice(1)) || null;
  } catch {
    return location.hash.slice(1);
  }
}
const goToAddress = () => goTo(sessionOfAddress());
window.addEventListener('hashchange', goToAddress);

function hearOfList(name, session) {
  if (session.session_id !== view.id) return;
  if (name === 'deleted') leaveMissing(view.id);
  else loadSession();
}

function listOpened() {
  if (wasDraining) notify('action');
  wasDraining = false;
  loadRunners();
}
followList({ opened: listOpened, heard: hearOfList });
showLogout();
goToAddress();
