// Streams of server-sent events, followed through cuts and restarts. They are read with fetch: an EventSource does not say
// why it was refused, and takes ten times as long for an answer of 20,000 tokens.

import { $ } from './dom.js';
import { noteCut, noteReachable, send } from './server.js';

/** How long to wait before a stream is opened again, unless the server says otherwise, and at the most. */
const RETRY_MS = 2000;
const RETRY_MS_MAX = 10_000;

/** How long a stream may be silent. The server says something every 15 s unless it is told otherwise; if it is, opening the
 * stream again costs little, and loses nothing. */
const SILENCE_MS_MAX = 45_000;

/** Cuts a text that arrives in pieces into frames. Takes each character up a few times, however long a frame is. */
class Frames {
  #pieces = [];

  /** The frames that end in this piece. */
  take(piece) {
    const isEndOfLine = this.#pieces.at(-1)?.endsWith('\n') && piece.startsWith('\n');
    const at = piece.lastIndexOf('\n\n');
    const end = at >= 0 ? at + 2 : isEndOfLine ? 1 : 0;
    if (end === 0) {
      if (piece) this.#pieces.push(piece);
      return [];
    }
    const whole = this.#pieces.join('') + piece.slice(0, end);
    this.#pieces = end < piece.length ? [piece.slice(end)] : [];
    return whole.split('\n\n').filter(Boolean);
  }
}

/** The fields of a frame; several lines of data are one text. */
function fieldsOf(frame) {
  const fields = {};
  for (const line of frame.split('\n')) {
    const colon = line.indexOf(': ');
    if (colon <= 0) continue;
    const [name, value] = [line.slice(0, colon), line.slice(colon + 2)];
    fields[name] = name === 'data' && 'data' in fields ? `${fields.data}\n${value}` : value;
  }
  return fields;
}

const followings = new Set();

/** Follows a stream until it is left: each event once, in order. */
export class Following {
  #lastId = '';
  #retryMs = RETRY_MS;
  #aborter = null;
  #timer = 0;
  #silence = 0;

  /** `on` is called when the stream opens, with every event (name and data), and with the error if it is refused. */
  constructor(path, begin, on) {
    Object.assign(this, { path, begin, on });
    followings.add(this);
    if (!document.hidden) this.open();
  }

  async open() {
    this.pause();
    const aborter = new AbortController();
    this.#aborter = aborter;
    const error = await this.#follow(aborter.signal).catch((cause) => cause);
    if (aborter.signal.aborted) return;
    if (error?.status) this.on.refused(error);
    else noteCut(this, true);
    if (followings.has(this)) this.#timer = setTimeout(() => this.open(), this.#retryMs);
  }

  async #follow(signal) {
    const after = this.#lastId || this.begin;
    const path = after ? `${this.path}?after=${encodeURIComponent(after)}` : this.path;
    this.#expectWords(() => noteCut(this, true));
    const response = await send(path, { method: 'GET', headers: { accept: 'text/event-stream' }, signal });
    if (signal.aborted) return;
    noteCut(this, false);
    this.on.opened();
    const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
    const frames = new Frames();
    this.#expectWords();
    for (let read = await reader.read(); !read.done && !signal.aborted; read = await reader.read()) {
      this.#expectWords();
      noteReachable(true);
      frames.take(read.value).forEach((frame) => this.#hear(fieldsOf(frame)));
    }
  }

  /** Opens the stream again if nothing comes for long: a proxy may hold a connection that leads nowhere. */
  #expectWords(note = () => {}) {
    clearTimeout(this.#silence);
    this.#silence = setTimeout(() => {
      if ($('token-dialog').open) return this.#expectWords(note);
      this.open();
      note();
    }, SILENCE_MS_MAX);
  }

  #hear({ id, event, data, retry }) {
    if (id !== undefined) this.#lastId = id;
    if (retry) this.#retryMs = Math.min(Number(retry) || RETRY_MS, RETRY_MS_MAX);
    if (data !== undefined) this.on.heard(event ?? 'message', data, id);
  }

  pause() {
    clearTimeout(this.#timer);
    clearTimeout(this.#silence);
    this.#aborter?.abort();
    noteCut(this, false);
  }

  leave() {
    followings.delete(this);
    this.pause();
  }
}

const reopen = () => followings.forEach((following) => (document.hidden ? following.pause() : following.open()));

// A browser gives a site few connections: pages that are not visible leave theirs to others.
document.addEventListener('visibilitychange', reopen);
window.addEventListener('online', reopen);
