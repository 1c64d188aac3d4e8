// The document: its elements, what the status line says, and what this browser remembers.

export const $ = (id) => document.getElementById(id);

/** An element with attributes and children; a child that is a string becomes text, whatever it contains. */
export function make(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  element.append(...children);
  return element;
}

export function setText(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

/** A value of another program as text, in whatever form it came. */
export function textOf(value) {
  if (value == null) return '';
  if (typeof value !== 'object') return String(value);
  if (Array.isArray(value)) return value.map((part) => (typeof part?.text === 'string' ? part.text : asJson(part))).join('\n');
  return asJson(value);
}

export const listOf = (value) => (Array.isArray(value) ? value : []);
export const numberOf = (value, otherwise) => (typeof value === 'number' ? value : otherwise);

function asJson(value) {
  if (typeof value === 'string') return value;
  try {
    return JSON.stringify(value) ?? '';
  } catch {
    return '(too deep to be shown)';
  }
}

/** What a notice can be about. The status line shows one notice of each kind. */
const KINDS = ['access', 'connection', 'list', 'session', 'action'];
const notices = new Map();

/** Shows a notice, in the place of the one of its kind. Without a text there is none of that kind any more. */
export function notify(kind, text = '') {
  if ((notices.get(kind) ?? '') === text) return;
  notices.set(kind, text);
  const shown = KINDS.map((name) => notices.get(name)).filter(Boolean);
  $('status').replaceChildren(...shown.map((notice) => make('span', {}, notice)));
}

/** Says something to those who listen to the page. */
export const announce = (text) => setText($('announcement'), text);

/** How long after a load that did not reach the server it is tried again. */
const AGAIN_MS = 2000;

/** Has a load done once more in a while, however often that is requested. */
export function later(load) {
  let timer = 0;
  return () => {
    clearTimeout(timer);
    timer = setTimeout(load, AGAIN_MS);
  };
}

/** How long a page that paints no frames waits for one, and the longest rest after a task. */
const FRAME_MS_MAX = 250;

/** Does some work in the next frame, or soon if no frame is painted. */
function inNextFrame(work) {
  const once = () => {
    cancelAnimationFrame(frame);
    clearTimeout(timer);
    work();
  };
  const frame = requestAnimationFrame(once);
  const timer = setTimeout(once, FRAME_MS_MAX);
}

/** Lets a task work once in a frame, however often that is requested. After a long one it rests twice as long as it took. */
export function oncePerFrame(task) {
  let isRequested = false;
  let restedAt = 0;
  const work = () => {
    isRequested = false;
    const start = performance.now();
    task();
    restedAt = start + 3 * (performance.now() - start);
  };
  return () => {
    if (isRequested) return;
    isRequested = true;
    const rest = Math.min(restedAt - performance.now(), FRAME_MS_MAX);
    setTimeout(() => inNextFrame(work), Math.max(0, rest));
  };
}

/** Servers under different paths of one origin share a storage: each has a prefix of its own. */
const PREFIX = `lastword ${new URL('.', location.href).pathname} `;

/** A storage of the browser, which may be full or switched off: what does not fit is not remembered. */
class Memory {
  #storage;

  constructor(name) {
    try {
      this.#storage = window[name];
    } catch {
      this.#storage = null;
    }
  }

  get = (key) => this.#storage?.getItem(PREFIX + key) ?? null;

  set(key, value) {
    try {
      this.#storage?.setItem(PREFIX + key, value);
    } catch {
      this.remove(key);
    }
  }

  remove = (key) => this.#storage?.removeItem(PREFIX + key);

  keys() {
    const all = Object.keys(this.#storage ?? {});
    return all.filter((key) => key.startsWith(PREFIX)).map((key) => key.slice(PREFIX.length));
  }

  clear() {
    this.keys().forEach(this.remove);
  }
}

/** For this tab, also after a reload. */
export const tab = new Memory('sessionStorage');
/** For all tabs, until it is removed. */
export const browser = new Memory('localStorage');
