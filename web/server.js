// The server: calls, and whether it answers.

import { notify } from './dom.js';
import { askForToken, forbidChanges, loginCount, noteSuccess } from './login.js';

const UNREACHABLE = 'The server does not answer. What it sent is kept; trying again.';
const RECONNECTING = 'The connection was lost. Connecting again…';

/** A request that failed. `status` is 0 if the server was not reached. */
export class ServerError extends Error {
  constructor(message, status, code) {
    super(message);
    Object.assign(this, { status, code });
  }
}

// What is known of the connection.

let isReachable = true;
const cut = new Set();

function showConnection() {
  notify('connection', !isReachable ? UNREACHABLE : cut.size > 0 ? RECONNECTING : '');
}

/** Notes that a stream was cut, or that it no longer matters. */
export function noteCut(stream, is) {
  if (is) cut.add(stream);
  else cut.delete(stream);
  showConnection();
}

export function noteReachable(is) {
  isReachable = is;
  showConnection();
}

/** The server's clock is ahead by so many seconds. */
let aheadSeconds = 0;
export const serverNow = () => Date.now() / 1000 + aheadSeconds;

function noteClock(response) {
  const time = Date.parse(response.headers.get('date') ?? '');
  if (time) aheadSeconds = (time - Date.now()) / 1000;
}

// Calls.

const unreachable = () => {
  noteReachable(false);
  return new ServerError(UNREACHABLE, 0, 'unreachable');
};

/** Does something that takes a signal, and aborts it if it takes longer than this. */
async function within(limitMs, signal, work) {
  const limit = new AbortController();
  const timer = limitMs && setTimeout(() => limit.abort(new DOMException('it took too long', 'TimeoutError')), limitMs);
  const signals = [signal, limit.signal].filter(Boolean);
  return work(AbortSignal.any(signals)).finally(() => clearTimeout(timer));
}

const failed = (cause) => { throw cause.name === 'AbortError' ? cause : unreachable(); };

/** Sends a request, and again after a login if it needs one. Gives a response that is good; with a limit, one that has begun in
 * this time. */
export async function send(path, options, limitMs) {
  const logins = loginCount();
  const fetched = (signal) => fetch(path, { ...options, signal });
  const response = await within(limitMs, options.signal, fetched).catch(failed);
  noteReachable(true);
  noteClock(response);
  if (response.status === 401) return askForToken(logins).then(() => send(path, options, limitMs));
  noteSuccess();
  if (response.ok) return response;
  const error = await refusal(response);
  if (error.status === 403 && options.method !== 'GET') forbidChanges(error.message);
  throw error;
}

async function refusal(response) {
  const answer = await response.json().catch(() => null);
  const { message = `the server, or a proxy before it, answered with status ${response.status}`, code } = answer?.error ?? {};
  return new ServerError(message, response.status, code);
}

/** How long an answer may take to begin, and to arrive: then the server, or a proxy before it, is taken to hang. */
const BEGIN_MS_MAX = 60_000;
const WHOLE_MS_MAX = 600_000;

/** Calls the server. Gives its answer, and the revision of what it is about. An aborted call fails with an `AbortError`. */
export function call(method, path, body, signal, beginMs = BEGIN_MS_MAX) {
  const headers = body ? { 'content-type': 'application/json' } : {};
  const options = { method, headers, body: body && JSON.stringify(body) };
  return within(WHOLE_MS_MAX, signal, (limit) => answered(path, { ...options, signal: limit }, beginMs));
}

async function answered(path, options, beginMs) {
  const response = await send(path, options, beginMs);
  const answer = await response.json().catch(failed);
  return { answer, revision: response.headers.get('etag') };
}
