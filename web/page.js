// The page: one session, and the answer that is being given in it. What it shows of a session is what the server saved;
// below it stands the answer that is live, made of the run's events, until the saved one takes its place.

import { chosenRunner, draftOf, draftWasSent, keepDraft, loadRunners, runFor } from './compose.js';
import { $, announce, later, listOf, make, notify, oncePerFrame, setText, textOf } from './dom.js';
import { followList, markCurrent, oneAtATime } from './list.js';
import { logOut, showLogout } from './login.js';
import { call, ServerError } from './server.js';
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
  aborter: new AbortController(), load: async () => {},
});
const view = { id: undefined, ...fresh() };

// Opening a session.

/** Shows the session that the address names. */
function goTo(id) {
  if (id === view.id) return;
  view.following?.leave();
  view.aborter.abort();
  Object.assign(view, { id, ...fresh() });
  notify('session');
  notify('action');
  announce('');
  document.body.classList.toggle('in-session', Boolean(id));
  $('session').hidden = !id;
  $('nothing').hidden = Boolean(id);
  rows.clear();
  setText($('heading'), id ? 'Loading…' : '');
  $('message').value = id ? draftOf(id) : '';
  showLive();
  showSending();
  markCurrent(id);
  document.title = 'Lastword';
  if (!id) return;
  const { signal } = view.aborter;
  view.load = oneAtATime(() => loadInto(id, signal));
  // What ends before the stream is open is saved by then, and what ends later is heard.
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

const loadSession = () => view.load();

/** Loads a session, unless the reader leaves it meanwhile. */
async function loadInto(id, signal) {
  if (signal.aborted) return;
  const { limit } = view;
  try {
    const { answer, revision } = await call('GET', `${pathOf(id)}?limit=${limit}`, undefined, signal);
    if (!signal.aborted) showSession(answer, `${revision} ${limit}`);
  } catch (error) {
    if (!signal.aborted) notLoaded(id, error);
  }
}

function notLoaded(id, error) {
  if (error.status === 404) return leaveMissing(id);
  if (!view.session) setText($('heading'), id);
  if (!(error instanceof ServerError)) {
    console.error(error);
    notify('session', `The session cannot be shown (${error.message}). Nothing of it is lost: try another browser, or lastword show.`);
  } else if (error.status) {
    notify('session', `The session could not be read: ${error.message}`);
  } else {
    loadLater();
  }
}

const loadLater = later(() => loadSession());

const runOf = (row) => row?._run_id ?? row?._recovered_stream_id;

function showSession(session, revision) {
  notify('session');
  const active = session.active_stream_id;
  view.session = session;
  view.saved = new Set(listOf(session.messages).map(runOf).filter(Boolean));
  view.saved.delete(active);
  if (view.live && view.saved.has(view.live.run)) endLive(session);
  if (active && !view.live) view.live = new Answer(active, session.pending_started_at);
  const title = textOf(session.title) || view.id;
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
  const isOfRun = (row) => runOf(row) === view.live.run;
  announce(session.messages.findLast(isOfRun)?._error ? 'The answer ended early' : 'The answer is complete');
  view.live = null;
  if (wasBusy) notify('action');
  wasBusy = false;
}

// The answer that is live.

/** Takes note of an event. It is shown with the others of this frame. */
function hear(...event) {
  view.heard.push(event);
  showHeard();
}

const showHeard = oncePerFrame(() => {
  const { heard } = view;
  const end = performance.now() + FRAME_MS;
  keepingTheEndInSight(() => {
    let count = 0;
    while (count < heard.length && performance.now() < end) takeSafely(heard[count++]);
    heard.splice(0, count);
    view.live?.flush();
    showState();
  });
  if (view.heard.length > 0) showHeard();
});

/** An event that cannot be shown costs no other. */
function takeSafely(event) {
  try {
    take(...event);
  } catch (error) {
    console.info('an event cannot be shown', error);
  }
}

/** What the server says of the stream has no id; an event of a producer may have the same name. */
const NOTICES = ['end', 'snapshot', 'gap'];

function take(name, text, eventId) {
  const { run_id: run, state, payload, created_at: at } = JSON.parse(text);
  if (eventId === undefined && NOTICES.includes(name)) return takeNotice(name, state);
  if (view.saved.has(run)) return;
  if (view.live?.run !== run) {
    view.live = new Answer(run);
    loadSession();
  }
  view.live.hear(name, payload ?? {}, at);
}

function takeNotice(name, state) {
  if (name === 'end' && state === 'deleted') return leaveMissing(view.id);
  if (name === 'snapshot') view.live = null;
  if (name !== 'gap') loadSession();
}

function showLive() {
  const { live, session } = view;
  const pending = live && session?.pending_user_message;
  const question = pending ? [showRow({ role: 'user', content: pending }, [])] : [];
  $('live').replaceChildren(...question, ...(live ? [live.element, progress] : []));
  const hasFocus = document.activeElement?.matches('#send:focus-visible, #stop:focus-visible');
  $('send').hidden = Boolean(live);
  $('stop').hidden = !live;
  if (hasFocus && document.activeElement.hidden) $('message').focus();
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
  const { id } = view;
  await loadSession();
  if (id === view.id) box.scrollTop = box.scrollHeight - fromEnd;
}

// What people do.

/** Sessions to which a message is on its way. */
const sending = new Set();

function showSending() {
  $('send').ariaBusy = String(sending.has(view.id));
  setText($('send'), sending.has(view.id) ? 'Sending…' : 'Send');
}

async function send() {
  const { id } = view;
  const message = $('message').value;
  if (!id || !message.trim() || view.live || $('send').disabled || sending.has(id)) return;
  sending.add(id);
  showSending();
  await begin(id, message).finally(() => sending.delete(id));
  showSending();
}

/** Begins a turn. Its run has an id of ours: when it is unknown whether the message arrived, it can be sent again. */
async function begin(id, message) {
  const run = runFor(id, message);
  try {
    await call('POST', `${pathOf(id)}/runs`, { message, run_id: run, runner: chosenRunner() });
  } catch (error) {
    if (!mayHaveArrived(error) || !(await isThere(id, run))) {
      refuse(`The message was not sent: ${error.message}`, error, id, KEPT);
      loadSession();
      return;
    }
  }
  draftWasSent(id, message);
  if (id !== view.id) return;
  await loadSession();
  if (id === view.id && $('message').value === message) $('message').value = '';
}

/** Whether a message may have arrived although it was refused: its answer was lost, or it was sent again. */
const mayHaveArrived = ({ status }) => status === 0 || status === 409 || status >= 500;
const isThere = (id, run) =>
  call('GET', `${pathOf(id)}/runs/${run}`, undefined, undefined, CHECK_MS_MAX).then(() => true, () => false);
const CHECK_MS_MAX = 10_000;
const KEPT = ' That was in another session, where your words are kept.';

/** Whether the last refusal was that of a server that ends, or of a session that is busy. */
let wasDraining = false;
let wasBusy = false;

/** Says why something was not done in a session, and if that is no longer shown, what is to be known of it. That the server is not
 * reached, and that one may only read, is said anyway. */
function refuse(text, error, id, elsewhere = '') {
  const isHere = id === view.id;
  if (!isHere) notify('action', text + elsewhere);
  else notify('action', [0, 403].includes(error.status) ? '' : text);
  wasDraining = error.status === 503;
  wasBusy = error.code === 'run_in_progress';
  if (error.status === 404 && isHere) leaveMissing(id);
  if (error.code === 'unknown_runner') loadRunners();
}

/** Opens a session without messages: the present one if nothing was said or typed in it. */
async function create() {
  const { id } = view;
  const isEmpty = view.session?.page.rows_total === 0 && !view.live && !$('message').value;
  if (!isEmpty) {
    const { answer } = await call('POST', 'v1/sessions', {});
    // A reader who has gone elsewhere meanwhile stays there; the list has the new session.
    if (id !== view.id) return;
    location.hash = answer.session_id;
    goToAddress();
  }
  $('message').focus();
}

async function stop() {
  const { id, live } = view;
  if (!live) return;
  live.setStopping(true);
  showState();
  try {
    await call('POST', `${pathOf(id)}/runs/${encodeURIComponent(live.run)}/stop`);
  } catch (error) {
    live.setStopping(false);
    showState();
    throw error;
  }
}

/** Lets a button or a form act once at a time, and says why it could not. */
function onEvent(id, name, button, what, act) {
  $(id).addEventListener(name, async (event) => {
    event.preventDefault();
    if ($(button).ariaBusy === 'true') return;
    $(button).ariaBusy = 'true';
    notify('action');
    const { id: session } = view;
    await act().catch((error) => refuse(`${what}: ${error.message}`, error, session));
    $(button).ariaBusy = 'false';
  });
}
$('say').addEventListener('submit', (event) => {
  event.preventDefault();
  notify('action');
  send();
});
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
