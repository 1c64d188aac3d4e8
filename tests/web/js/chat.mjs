// A chat as `useChat` makes it, and what it shows.

import assert from 'node:assert/strict';
import { base } from './harness.mjs';

export const version = process.argv[2];
const { DefaultChatTransport } = await import(`ai-${version}`);
const { Chat } = await import(`ai-sdk-react-${version}`);

/** A chat with this id. It notes what goes wrong. */
export function newChat(id, { runner = 'demo', server = base, messages } = {}) {
  const errors = [];
  const transport = new DefaultChatTransport({ api: `${server}/api/chat`, body: { runner } });
  const chat = new Chat({ id, transport, messages, onError: (error) => errors.push(error.message) });
  return Object.assign(chat, { errors });
}

/** Everything that a chat shows of an answer, as one text. */
export const textShown = (chat) => answerOf(chat)?.parts.map((part) => part.text ?? '').join('') ?? '';

/** The answer that a chat shows last. */
export function answerOf(chat) {
  const last = chat.messages.at(-1);
  return last?.role === 'assistant' ? last : undefined;
}

/** The same in the form of what is saved. A part that is still open is a mistake. */
export function shownAnswer(message) {
  const open = message.parts.filter((part) => ['streaming', 'input-streaming', 'input-available'].includes(part.state));
  assert.deepEqual(open, [], 'a part was left open');
  const texts = (type) => message.parts.filter((part) => part.type === type).map((part) => part.text.trim());
  return {
    texts: texts('text').filter(Boolean),
    thoughts: texts('reasoning').filter(Boolean),
    tools: message.parts.filter((part) => part.type === 'dynamic-tool').map((part) => [part.toolName, part.state]),
  };
}

/** Both must be the same answer. */
export function assertSame(message, saved) {
  const shown = shownAnswer(message);
  assert.deepEqual(shown.texts, saved.texts);
  assert.deepEqual(shown.thoughts, saved.thoughts);
  const states = saved.tools.map(([name, done]) => [name, done ? 'output-available' : 'output-error']);
  assert.deepEqual(shown.tools, states);
}
