// The transcript: rows as they were saved, and the answer that is live. Texts of others become text nodes, never markup.

import { $, listOf, make, numberOf, textOf } from './dom.js';
import { serverNow } from './server.js';

const WHO = new Map([['user', 'You'], ['assistant', 'Answer']]);

/** Characters after which a block of a long text ends with its line: what is appended then is laid out without it. */
const BLOCK_CHARS = 2000;

/** A text that grows. It is made of blocks, so that a long one costs no more to append to than a short one. */
class Words {
  element = make('div', { class: 'words' });
  #block = null;
  /** Characters of the present block. */
  #length = 0;

  constructor(text = '') {
    this.append(text);
  }

  append(text) {
    for (let rest = text; rest;) {
      const end = rest.indexOf('\n', Math.max(0, BLOCK_CHARS - this.#length)) + 1 || rest.length;
      this.#add(rest.slice(0, end));
      if (this.#length >= BLOCK_CHARS && rest[end - 1] === '\n') this.#leaveBlock();
      rest = rest.slice(end);
    }
  }

  #leaveBlock() {
    this.#block = null;
    this.#length = 0;
  }

  #add(text) {
    if (!this.#block) {
      this.#block = document.createTextNode('');
      this.element.append(make('div', {}, this.#block));
    }
    this.#block.appendData(text);
    this.#length += text.length;
  }
}

const words = (text) => new Words(text).element;
const thought = (inner) => make('details', { class: 'thought' }, make('summary', {}, 'Thoughts'), inner);

/** The arguments of a call: an object on several lines, anything else as it is. */
function argumentsOf(args) {
  if (args === null || typeof args !== 'object') return textOf(args);
  return Object.keys(args).length ? JSON.stringify(args, null, 2) : '';
}

/** A tool call. `open` says what one without a result is: at work, or left over by an answer that has ended. */
function toolCard({ name, preview, snippet, args, done, _answered, is_error }, open) {
  const state = !(_answered ?? done) ? open : is_error ? 'failed' : 'done';
  const told = [argumentsOf(args), preview, snippet === preview ? '' : snippet].filter(Boolean).map(textOf);
  const summary = make('summary', {}, `${textOf(name) || 'tool'}: ${state}`);
  return make('details', { class: `tool ${state}` }, summary, words(told.join('\n')));
}

/** When a row was said. Another program may have put anything there. */
function timeOf(seconds) {
  const date = new Date(Number(seconds) * 1000);
  return seconds && !Number.isNaN(date.getTime()) ? `, ${date.toLocaleString()}` : '';
}

export function showRow(row, cards) {
  const kind = row._error ? (row.type === 'interrupted' ? 'Interrupted' : 'Failed') : WHO.get(row.role) ?? textOf(row.role);
  const look = row._error ? 'marker' : row.role === 'user' ? 'user' : 'other';
  const article = make('article', { class: look }, make('header', {}, `${kind}${timeOf(row.timestamp)}`));
  if (row.reasoning) article.append(thought(words(textOf(row.reasoning))));
  const text = textOf(row.content);
  if (text) article.append(words(text));
  if (Array.isArray(row.attachments) && row.attachments.length) article.append(make('small', {}, `${row.attachments.length} attached`));
  article.append(...cards.map((card) => toolCard(card, 'not finished')));
  return article;
}

/** The saved rows. Those that did not change stay as they are, opened and selected. */
export class Rows {
  #element = $('rows');
  #shown = new Map();

  clear() {
    this.#shown.clear();
    this.#element.replaceChildren();
  }

  show(session) {
    const { rows_from: from } = session.page;
    const cards = Map.groupBy(listOf(session.tool_calls), (card) => card?.assistant_msg_idx);
    const before = this.#shown;
    this.#shown = new Map();
    let next = this.#element.firstElementChild;
    listOf(session.messages).forEach((row, nth) => {
      const at = from + nth;
      const shown = this.#entry(before.get(at), row, cards.get(at) ?? []);
      this.#shown.set(at, shown);
      if (shown.element === next) next = next.nextElementSibling;
      else this.#element.insertBefore(shown.element, next);
    });
    while (next) {
      const gone = next;
      next = next.nextElementSibling;
      gone.remove();
    }
  }

  /** A row that cannot be shown costs no other. */
  #entry(known, row, cards) {
    try {
      const text = JSON.stringify([row, cards]);
      return known?.text === text ? known : { text, element: showRow(row, cards) };
    } catch (error) {
      console.info('a message cannot be shown', error);
      return { element: make('article', { class: 'marker' }, 'This message cannot be shown. The session has it as it was written.') };
    }
  }
}

/** Seconds without a word after which an answer that goes on says so. */
const SILENCE_SECONDS = 4;

/** The answer that is live, made of its run's events. `flush` shows what was heard since the last time. */
export class Answer {
  element = make('article', { class: 'other' }, make('header', {}, 'Answer'));
  #part = null;
  #unseen = '';
  /** Calls that wait for their results, in order, and every id that a call had. */
  #waiting = [];
  #ids = new Set();
  #of = 0;
  #isStopping = false;
  /** What it is doing: a word, since when, and for what is told of it. */
  #phase = { kind: 'waiting', since: serverNow() };

  constructor(run, beganAt) {
    this.run = run;
    if (beganAt) this.#phase.since = beganAt;
  }

  hear(name, payload, createdAt) {
    const at = numberOf(createdAt, serverNow());
    if (name === 'token') this.#say('text', payload.text, at);
    if (name === 'reasoning') this.#say('thought', payload.text || payload.reasoning || payload.thinking, at);
    if (name === 'interim_assistant') this.#paragraph(payload, at);
    if (name === 'tool' || name === 'tool_complete') this.#tool(payload, name === 'tool_complete', at);
    if (name === 'attempt') this.#attempt(payload, at);
    if (name === 'attempt_end') this.#attemptEnd(payload, at);
  }

  /** Whether a stop was sent and not refused. */
  setStopping(is) {
    this.#isStopping = is;
  }

  /** Appends what was heard to the part that is being written. */
  flush() {
    if (this.#unseen) this.#part.words.append(this.#unseen);
    this.#unseen = '';
  }

  #leavePart() {
    this.flush();
    this.#part = null;
  }

  #say(kind, text, at) {
    if (!text) return;
    if (this.#part?.kind !== kind) {
      this.#leavePart();
      this.#part = { kind, words: new Words() };
      this.element.append(kind === 'text' ? this.#part.words.element : thought(this.#part.words.element));
    }
    this.#unseen += textOf(text);
    const isSame = kind === 'thought' && this.#phase.kind === 'thinking';
    if (!isSame) this.#phase = { kind: kind === 'text' ? 'answering' : 'thinking', since: at };
  }

  #paragraph({ text, already_streamed }, at) {
    this.#leavePart();
    if (!already_streamed) this.#say('text', text, at);
    this.#leavePart();
  }

  #tool(payload, done, at) {
    this.#leavePart();
    const id = payload.tool_call_id || payload.tool_id || payload.tid || payload.id || null;
    if (done) this.#answer(id, payload);
    else this.#begin(id, payload);
    this.#phase = { kind: this.#waiting.length ? 'tool' : 'answering', since: at };
  }

  #begin(id, told) {
    const call = { id, told, element: toolCard({ ...told, done: false }, 'at work') };
    this.#ids.add(id);
    this.#waiting.push(call);
    this.element.append(call.element);
  }

  #answer(id, result) {
    const nth = this.#nthOf(id, result.name);
    if (nth < 0) return;
    const [{ told, element }] = this.#waiting.splice(nth, 1);
    element.replaceWith(toolCard({ ...told, ...result, done: true }, 'at work'));
  }

  /** Which call a result belongs to, by the server's rule: that of its id, else the first without an id, else the first of all. */
  #nthOf(id, name) {
    const isNamed = (call) => !name || call.told.name === name;
    const isStray = id === null || !this.#ids.has(id);
    const found = [
      this.#waiting.findIndex((call) => id !== null && call.id === id),
      isStray ? this.#waiting.findIndex((call) => call.id === null && isNamed(call)) : -1,
      id === null ? this.#waiting.findIndex(isNamed) : -1,
    ];
    return found.find((nth) => nth >= 0) ?? -1;
  }

  #attempt({ attempt, of }, at) {
    const { kind, why } = this.#phase;
    this.#leavePart();
    if (kind === 'retrying') this.element.append(make('p', { class: 'attempt' }, `Attempt ${numberOf(attempt, 2) - 1} failed: ${why}.`));
    this.#of = numberOf(of, 0);
    this.#waiting = [];
    this.#phase = { kind: 'waiting', since: at, attempt: numberOf(attempt, 1) };
  }

  /** An attempt failed, and another one follows. */
  #attemptEnd({ attempt, message, close_reason, retry_in_seconds }, at) {
    const why = textOf(message || close_reason || 'it failed').replace(/[.\s]+$/, '');
    this.#phase = { kind: 'retrying', since: at, attempt: numberOf(attempt, 1) + 1, why, until: at + numberOf(retry_in_seconds, 0) };
  }

  /** What it is doing, for people who look. */
  state() {
    const { kind, since, attempt, why, until } = this.#phase;
    const seconds = Math.max(0, Math.floor(serverNow() - since));
    const count = attempt > 1 || kind === 'retrying' ? `Attempt ${attempt}${this.#of ? ` of ${this.#of}` : ''}: ` : '';
    if (this.#isStopping) return 'Stopping…';
    if (kind === 'waiting') return `${count}waiting for the first word… ${seconds} s`.replace(/^w/, 'W');
    if (kind === 'thinking') return `Thinking… ${seconds} s`;
    if (kind === 'tool') return `${[...new Set(this.#waiting.map((call) => textOf(call.told.name) || 'tool'))].join(', ')} at work… ${seconds} s`;
    if (kind === 'retrying') return `${count}${why}, again in ${Math.max(0, Math.ceil(until - serverNow()))} s`;
    return seconds < SILENCE_SECONDS ? '' : `Waiting for more… ${seconds} s`;
  }

  /** The same in a few words without seconds, for people who listen. */
  stateInWords() {
    const { kind, attempt } = this.#phase;
    if (this.#isStopping) return 'Stopping';
    if (kind === 'retrying') return `An attempt failed. Attempt ${attempt} follows`;
    return { waiting: 'Waiting for the answer', thinking: 'Thinking', tool: 'A tool is at work' }[kind] ?? 'Answering';
  }
}
