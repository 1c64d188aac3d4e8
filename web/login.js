// The login: a dialog that asks for a token and exchanges it for a cookie, and the way out.

import { $, browser, notify, setText, tab } from './dom.js';

/** Remembers that this browser has logged in. The cookie itself cannot be read. */
const MARK = 'login';
const NEEDED = 'This server wants a token. Its administrator gives you one.';
const ENDED = 'Your token is no longer valid, or the login has expired. Enter a token; what you typed is kept.';
const NO_COOKIE = 'The token was right, but this browser did not keep the login: allow cookies for this site.';
const UNREACHABLE = 'The server does not answer. Try again in a moment.';

let logins = 0;
let asking = null;
/** Whether a request was answered since the last login. */
let hasWorked = true;

/** How many logins succeeded on this page: tells a request that was refused before a login from one after it. */
export const loginCount = () => logins;

export const noteSuccess = () => { hasWorked = true; };

/** Asks for a token, once for all requests that were refused, unless there was a login since the request was sent. */
export function askForToken(loginsBefore) {
  if (loginsBefore !== logins) return Promise.resolve();
  asking ??= showDialog().then(() => {
    asking = null;
    logins += 1;
    hasWorked = false;
    browser.set(MARK, 'yes');
    showLogout();
    allowChanges();
  });
  return asking;
}

function showDialog() {
  const dialog = $('token-dialog');
  setText($('token-reason'), reason());
  setText($('token-error'), '');
  if (!dialog.open) dialog.showModal();
  $('token').focus();
  return new Promise((resolve) => {
    // A browser closes it all the same when Escape is pressed twice: nothing works without the login.
    dialog.oncancel = (event) => event.preventDefault();
    dialog.onclose = () => dialog.showModal();
    $('token-form').onsubmit = async (event) => {
      event.preventDefault();
      if (!(await tryToken())) return;
      dialog.onclose = null;
      dialog.close();
      resolve();
    };
  });
}

function reason() {
  if (!hasWorked) return NO_COOKIE;
  return browser.get(MARK) ? ENDED : NEEDED;
}

async function tryToken() {
  $('token-send').disabled = true;
  const refusal = await logIn($('token').value.trim());
  $('token-send').disabled = false;
  setText($('token-error'), refusal);
  if (refusal) $('token').select();
  else $('token').value = '';
  return !refusal;
}

/** Exchanges a token for a cookie. Returns why that failed, or nothing. */
async function logIn(token) {
  const headers = { accept: 'application/json' };
  const response = await fetch('login', { method: 'POST', headers, body: new URLSearchParams({ token }) }).catch(() => null);
  if (!response) return UNREACHABLE;
  if (response.ok) return '';
  const answer = await response.json().catch(() => null);
  const message = answer?.error?.message ?? `the server answered with status ${response.status}`;
  return `The login failed: ${message}`;
}

/** Ends the login, and forgets what this browser remembers of the server. */
export async function logOut() {
  const response = await fetch('logout', { method: 'POST', headers: { accept: 'application/json' } }).catch(() => null);
  if (!response?.ok && response?.status !== 401) {
    const why = response ? `the server answered with status ${response.status}` : 'the server does not answer';
    return notify('action', `You are still logged in: ${why}. Try again.`);
  }
  tab.clear();
  browser.clear();
  location.replace(location.pathname);
}

/** Switches off what a token that may only read cannot do. */
export function forbidChanges(why) {
  notify('access', `You may only read here: ${why}`);
  $('say-fields').disabled = $('create').disabled = true;
}

function allowChanges() {
  notify('access');
  $('say-fields').disabled = $('create').disabled = false;
}

export function showLogout() {
  $('logout').hidden = !browser.get(MARK);
}
