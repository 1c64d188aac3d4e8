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

function noteReachable(is) {
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

/** Sends a request, and again after a login if it needs one. Gives a response that is good. With a limit, all of it has to be
 * there in this time. */
export async function send(path, options, limitMs) {
  const logins = loginCount();
  const signals = [options.signal, limitMs && AbortSignal.timeout(limitMs)].filter(Boolean);
  const response = await fetch(path, { ...options, signal: AbortSignal.any(signals) }).catch((cause) => {
    throw cause.name === 'AbortError' ? cause : unreachable();
  });
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

/** How long an answer is waited for: then the server, or a proxy before it, is taken to hang. */
const ANSWER_MS_MAX = 60_000;

/** Calls the server. Gives its answer, and the revision of what it is about. An aborted call fails with an `AbortError`. */
export async function call(method, path, body, signal) {
  const headers = body ? { 'content-type': 'application/json' } : {};
  const response = await send(path, { method, headers, body: body && JSON.stringify(body), signal }, ANSWER_MS_MAX);
  const answer = await response.json().catch((cause) => {
    throw cause.name === 'AbortError' ? cause : unreachable();
  });
  return { answer, revision: response.headers.get('etag') };
}
