// The page: the list of sessions, one session, and the answer that is being given in it. What it shows of a session is
// what the server saved; below it stands the answer that is live, made of the run's events, until the saved one takes
// its place. Texts of others reach the page as text nodes only.

const ROWS_OF_A_PAGE = 100;
const RETRY_MS = 2000;
const RUN_EVENTS = ['attempt', 'token', 'reasoning', 'interim_assistant', 'tool', 'tool_complete'];
const UNREACHABLE = 'The server does not answer. Everything that it said is kept; trying again.';

const $ = (id) => document.getElementById(id);

/** An element with attributes and children; a child that is a string becomes text, whatever it says. */
function make(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  element.append(...children);
  return element;
}

function tell(text) {
  if ($('status').textContent !== text) $('status').textContent = text;
}

const tellOf = (error) => tell(error.message);

/** Lets one call of a task work at a time; all who call meanwhile have it done once more. */
function oneAtATime(task) {
  let last = Promise.resolve();
  let next = null;
  const work = () => { next = null; return task(); };
  return () => (next ??= last = last.then(work).catch(tellOf));
}

// The server.

const token = () => sessionStorage.getItem('token');
const authorization = () => (token() ? { authorization: `Bearer ${token()}` } : {});
let asking = null;

/** Asks for a token, once for all who need one, unless there is a newer one than was tried. */
function askForToken(tried) {
  if (tried !== token()) return Promise.resolve();
  asking ??= new Promise((resolve) => {
    $('token-form').onsubmit = (event) => {
      event.preventDefault();
      sessionStorage.setItem('token', $('token').value.trim());
      $('token').value = '';
      $('token-dialog').close();
      asking = null;
      resolve();
    };
    $('token-dialog').oncancel = (event) => event.preventDefault();
    $('token-dialog').showModal();
  });
  return asking;
}

async function call(method, path, body) {
  const tried = token();
  const headers = { ...authorization(), ...(body ? { 'content-type': 'application/json' } : {}) };
  const asked = fetch(path, { method, headers, body: body && JSON.stringify(body) });
  const response = await asked.catch(() => { throw new Error(UNREACHABLE); });
  if (response.status === 401) return askForToken(tried).then(() => call(method, path, body));
  const answer = await response.json().catch(() => { throw new Error(UNREACHABLE); });
  if (!response.ok) throw Object.assign(new Error(answer.error.message), { status: response.status });
  return answer;
}

/** An EventSource that brings a token, which the browser's own cannot. It closes when it is cut. */
class TokenSource extends EventTarget {
  readyState = EventSource.CONNECTING;
  #aborter = new AbortController();

  constructor(url) {
    super();
    this.#read(url).catch(() => {}).then(() => {
      if (this.readyState === EventSource.CLOSED) return;
      this.readyState = EventSource.CLOSED;
      this.dispatchEvent(new Event('error'));
    });
  }

  close() {
    this.readyState = EventSource.CLOSED;
    this.#aborter.abort();
  }

  async #read(url) {
    const headers = { accept: 'text/event-stream', ...authorization() };
    const response = await fetch(url, { headers, signal: this.#aborter.signal });
    if (!response.ok) return;
    this.readyState = EventSource.OPEN;
    this.dispatchEvent(new Event('open'));
    const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
    let text = '';
    for (let piece = await reader.read(); !piece.done; piece = await reader.read()) {
      const frames = (text + piece.value).split('\n\n');
      text = frames.pop();
      frames.forEach((frame) => this.#take(frame));
    }
  }

  #take(frame) {
    const lines = frame.split('\n').map((line) => line.match(/^(\w+): ?(.*)$/)).filter(Boolean);
    const last = (name) => lines.findLast((line) => line[1] === name)?.[2];
    const data = lines.filter((line) => line[1] === 'data').map((line) => line[2]).join('\n');
    this.lastEventId = last('id') ?? this.lastEventId ?? '';
    if (data) this.dispatchEvent(new MessageEvent(last('event') ?? 'message', { data, lastEventId: this.lastEventId }));
  }
}

const followings = new Set();

/** Follows a stream until it is left, through restarts of the server: each event once, in order. */
class Following {
  #lastId = null;

  constructor(path, begin, names, on) {
    Object.assign(this, { path, begin, names, on });
    followings.add(this);
    this.open();
  }

  open() {
    this.pause();
    const after = this.#lastId || this.begin;
    const url = after ? `${this.path}?after=${encodeURIComponent(after)}` : this.path;
    const source = token() ? new TokenSource(url) : new EventSource(url);
    source.addEventListener('open', () => { tell(''); this.on.opened(); });
    source.addEventListener('error', (event) => this.#lost(source, event));
    for (const name of this.names) {
      source.addEventListener(name, (event) => {
        this.#lastId = event.lastEventId;
        this.on.heard(name, JSON.parse(event.data));
      });
    }
    this.source = source;
  }

  /** The browser comes again by itself, unless it was refused. */
  #lost(source, event) {
    if ('data' in event) return; // not a lost connection but an event of this name
    tell(UNREACHABLE);
    if (source.readyState !== EventSource.CLOSED) return;
    this.timer = setTimeout(async () => {
      await this.on.refused();
      if (followings.has(this) && !document.hidden) this.open();
    }, RETRY_MS);
  }

  pause() {
    clearTimeout(this.timer);
    this.source?.close();
  }

  leave() {
    followings.delete(this);
    this.pause();
  }
}

// A browser gives a site few connections: pages that nobody looks at leave theirs to others.
document.addEventListener('visibilitychange', () => {
  followings.forEach((following) => (document.hidden ? following.pause() : following.open()));
});

// The list.

const list = { sessions: new Map(), next: null };

async function loadPage(cursor) {
  const query = new URLSearchParams({ limit: 50, archived: false, q: $('search').value, ...(cursor && { cursor }) });
  const page = await call('GET', `/v1/sessions?${query}`);
  if (!cursor) list.sessions.clear();
  page.sessions.forEach((session) => list.sessions.set(session.session_id, session));
  list.next = page.next_cursor;
  showList();
}

const loadList = oneAtATime(() => loadPage(null));

function hearOfList(name, session) {
  if (name === 'snapshot') return loadList();
  const isShown = name === 'changed' && !session.archived;
  const isFound = (session.title ?? '').toLowerCase().includes($('search').value.toLowerCase());
  if (isShown && isFound) list.sessions.set(session.session_id, session);
  else list.sessions.delete(session.session_id);
  showList();
  if (session.session_id === view.id) loadSession();
}

function showList() {
  const newestFirst = [...list.sessions.values()].sort((a, b) => (b.updated_at ?? 0) - (a.updated_at ?? 0));
  $('sessions').replaceChildren(...newestFirst.map((session) => make('li', {}, linkTo(session))));
  $('more').hidden = !list.next;
}

/** States of a session that the list shows instead of its number of messages. */
const STATES = new Set(['answering', 'interrupted']);

function linkTo(session) {
  const rows = session.message_count === 1 ? '1 message' : `${session.message_count ?? 0} messages`;
  const state = session.error?.message ?? (STATES.has(session.state) ? session.state : rows);
  const isCurrent = session.session_id === view.id ? { 'aria-current': 'page' } : {};
  const title = session.title || session.session_id;
  return make('a', { href: `#${session.session_id}`, ...isCurrent }, title, make('small', {}, state));
}

// Rows.

const WHO = { user: 'You', assistant: 'Answer' };
const words = (text) => make('div', { class: 'words' }, text);
const thought = (text) => make('details', {}, make('summary', {}, 'Thoughts'), words(text));

/** The text of a row, in whatever form it was saved. */
function textOf(content) {
  if (typeof content === 'string') return content;
  if (Array.isArray(content)) return content.map((part) => part?.text ?? textOf(part)).join('\n');
  return content == null ? '' : JSON.stringify(content);
}

function toolCard({ name, preview, snippet, args, done, is_error }) {
  const state = !done ? 'at work' : is_error ? 'failed' : 'done';
  const asked = args && Object.keys(args).length ? JSON.stringify(args, null, 2) : '';
  const told = [asked, preview, snippet === preview ? '' : snippet].filter(Boolean).map((part) => textOf(part));
  const summary = make('summary', {}, `${name || 'tool'}: ${state}`);
  return make('details', { class: `tool ${state}` }, summary, words(told.join('\n')));
}

function showRow(row, cards) {
  const kind = row._error ? (row.type === 'interrupted' ? 'Interrupted' : 'Failed') : WHO[row.role] ?? row.role;
  const when = row.timestamp ? `, ${new Date(row.timestamp * 1000).toLocaleString()}` : '';
  const look = row._error ? 'marker' : row.role === 'user' ? 'user' : 'other';
  const article = make('article', { class: look }, make('header', {}, `${kind}${when}`));
  if (row.reasoning) article.append(thought(textOf(row.reasoning)));
  const text = textOf(row.content);
  if (text) article.append(words(text));
  if (row.attachments?.length) article.append(make('small', {}, `${row.attachments.length} attached`));
  article.append(...cards.map(toolCard));
  return article;
}

/** The answer that is live, made of its run's events as they come. */
class Answer {
  element = make('article', { class: 'other' }, make('header', {}, 'Answer'));
  #part = null;
  #tools = new Map();

  constructor(run) {
    this.run = run;
  }

  hear(name, payload) {
    if (name === 'token') this.#say('text', payload.text);
    if (name === 'reasoning') this.#say('thought', payload.text || payload.reasoning || payload.thinking);
    if (name === 'interim_assistant') this.#paragraph(payload);
    if (name === 'tool' || name === 'tool_complete') this.#tool(payload, name === 'tool_complete');
    if (name === 'attempt' && payload.attempt > 1) this.element.append(make('small', {}, `attempt ${payload.attempt}`));
  }

  #say(kind, text) {
    if (!text) return;
    if (this.#part?.kind !== kind) {
      const element = kind === 'text' ? words('') : thought('');
      this.#part = { kind, text: kind === 'text' ? element : element.lastChild };
      this.element.append(element);
    }
    this.#part.text.append(textOf(text));
  }

  #paragraph({ text, already_streamed }) {
    this.#part = null;
    if (!already_streamed) this.#say('text', text);
    this.#part = null;
  }

  #tool(payload, done) {
    this.#part = null;
    const id = payload.tool_call_id ?? payload.tid ?? payload.id ?? payload.name;
    const before = this.#tools.get(id);
    if (done && !before) return;
    const told = { ...before?.told, ...payload, done };
    const element = toolCard(told);
    this.#tools.set(id, { told, element });
    if (done) before.element.replaceWith(element);
    else this.element.append(element);
  }
}

// One session.

const pathOf = (id) => `/v1/sessions/${encodeURIComponent(id)}`;
const fresh = () => ({ id: null, session: null, live: null, saved: new Set(), rows: ROWS_OF_A_PAGE, following: null });
const view = { ...fresh(), draft: null };

/** Shows the session that the address names. */
function goTo(id) {
  view.following?.leave();
  Object.assign(view, fresh(), { id });
  document.body.classList.toggle('in-session', Boolean(id));
  $('session').hidden = !id;
  $('nothing').hidden = Boolean(id);
  $('rows').replaceChildren();
  showLive();
  showList();
  if (!id) return;
  const names = [...RUN_EVENTS, 'end', 'snapshot'];
  // Whatever ends before the stream is open is saved by then, and whatever ends later is heard of.
  const on = { opened: loadSession, heard: hearOfSession, refused: loadSession };
  view.following = new Following(`${pathOf(id)}/events`, 'now', names, on);
}

const loadSession = oneAtATime(async () => {
  const { id, rows } = view;
  if (!id) return;
  try {
    const session = await call('GET', `${pathOf(id)}?limit=${rows}`);
    if (id === view.id) showSession(session);
  } catch (error) {
    if (error.status === 404 && id === view.id) location.hash = '';
    throw error;
  }
});

function hearOfSession(name, data) {
  if (name === 'end' || name === 'snapshot') {
    if (name === 'snapshot') view.live = null;
    return loadSession();
  }
  const { run_id: run, payload } = data;
  if (view.saved.has(run)) return;
  if (view.live?.run !== run) {
    view.live = new Answer(run);
    loadSession();
  }
  keepingTheEndInSight(() => view.live.hear(name, payload ?? {}));
}

function showSession(session) {
  view.session = session;
  const active = session.active_stream_id;
  view.saved = new Set(session.messages.map((row) => row._run_id ?? row._recovered_stream_id));
  view.saved.delete(active);
  if (view.saved.has(view.live?.run)) view.live = null;
  if (active && !view.live) view.live = new Answer(active);
  $('heading').textContent = session.title || session.session_id;
  $('earlier').hidden = session.page.rows_from === 0;
  const cardsOf = (at) => session.tool_calls.filter((card) => card.assistant_msg_idx === at + session.page.rows_from);
  keepingTheEndInSight(() => {
    $('rows').replaceChildren(...session.messages.map((row, at) => showRow(row, cardsOf(at))));
    showLive();
  });
}

function showLive() {
  const pending = view.live && view.session?.pending_user_message;
  const question = pending ? [showRow({ role: 'user', content: pending }, [])] : [];
  $('live').replaceChildren(...question, ...(view.live ? [view.live.element] : []));
  $('send').hidden = Boolean(view.live);
  $('stop').hidden = !view.live;
}

/** Changes the transcript, and stays at its end if that is where the reader was. */
function keepingTheEndInSight(change) {
  const box = $('transcript');
  const isAtEnd = box.scrollHeight - box.scrollTop - box.clientHeight < 80;
  change();
  if (isAtEnd) box.scrollTop = box.scrollHeight;
}

const freshId = () => crypto.getRandomValues(new Uint32Array(4)).reduce((id, n) => id + n.toString(36), 'web');

/** Sends the message. Its run has an id of ours: when nobody knows whether it arrived, it can be sent again. */
async function send() {
  const { id } = view;
  const message = $('message').value;
  if (!id || !message.trim() || view.live) return;
  if (view.draft?.id !== id || view.draft.message !== message) view.draft = { id, message, run: freshId() };
  const { run } = view.draft;
  try {
    await call('POST', `${pathOf(id)}/runs`, { message, run_id: run, runner: $('runner').value.trim() || 'default' });
  } catch (error) {
    await loadSession();
    const hasArrived = error.status === 409 && (view.saved.has(run) || view.session?.active_stream_id === run);
    if (!hasArrived) return tell(error.message);
  }
  view.draft = null;
  if (id === view.id) $('message').value = '';
  tell('');
  await loadSession();
}

async function create() {
  const title = $('title').value.trim();
  const session = await call('POST', '/v1/sessions', title ? { title } : {});
  $('title').value = '';
  location.hash = session.session_id;
}

const stop = async () => view.live && call('POST', `${pathOf(view.id)}/runs/${encodeURIComponent(view.live.run)}/stop`);

// What people do.

const onSubmit = (id, act) => $(id).addEventListener('submit', (event) => {
  event.preventDefault();
  act().catch(tellOf);
});
onSubmit('create', create);
onSubmit('say', send);
$('stop').addEventListener('click', () => stop().catch(tellOf));
$('more').addEventListener('click', () => loadPage(list.next).catch(tellOf));
$('earlier').addEventListener('click', () => { view.rows += ROWS_OF_A_PAGE; loadSession(); });
$('search').addEventListener('input', loadList);
$('message').addEventListener('keydown', (event) => {
  if (event.key !== 'Enter' || event.shiftKey || event.isComposing) return;
  event.preventDefault();
  $('say').requestSubmit();
});
$('runner').value = sessionStorage.getItem('runner') || 'default';
$('runner').addEventListener('change', () => sessionStorage.setItem('runner', $('runner').value.trim()));
const goToAddress = () => goTo(decodeURIComponent(location.hash.slice(1)) || null);
window.addEventListener('hashchange', goToAddress);

const onList = { opened: () => {}, heard: hearOfList, refused: loadList };
new Following('/v1/events', null, ['changed', 'deleted', 'snapshot'], onList);
goToAddress();
