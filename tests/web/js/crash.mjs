// A chat whose server is killed at a moment of the answer.

import assert from 'node:assert/strict';
import { answerOf, assertSame, newChat, textShown } from './chat.mjs';
import { savedAnswer, server, sessionOf, until } from './harness.mjs';

const isAtWork = (part) => part.type === 'dynamic-tool' && part.state === 'input-available';

/** Moments of an answer: who gives it, and how to see that it is so far. */
export const MOMENTS = {
  thinking: ['demo', (chat) => textShown(chat).includes('only a demonstration')],
  'the first words': ['demo', (chat) => textShown(chat).includes('Let me')],
  'a tool at work': ['demo', (chat) => answerOf(chat)?.parts.some(isAtWork)],
  'the answer': ['demo', (chat) => textShown(chat).includes('in the middle of a sentence')],
  'a command': ['agent', (chat) => textShown(chat).includes('It rains on')],
};

/** Begins an answer, kills the server at the moment, and starts it again. Gives the chat and the text that it saw. */
export async function killedAt(moment, id) {
  const [runner, isReached] = MOMENTS[moment];
  const chat = newChat(id, { runner });
  const sent = chat.sendMessage({ text: 'Tell me everything.' });
  await until(moment, () => isReached(chat));
  await server.kill();
  await sent;
  assert.equal(chat.status, 'error', 'the chat knows that it was cut');
  const seen = textShown(chat);
  await server.start();
  return { chat, seen };
}

/** Whatever the chat had seen is there once, in order, closed, and as it was saved. */
export async function assertWhole(chat, seen) {
  assert.deepEqual(chat.messages.map((message) => message.role), ['user', 'assistant']);
  assert(textShown(chat).startsWith(seen), `seen:\n${seen}\nshown:\n${textShown(chat)}`);
  const saved = savedAnswer(await sessionOf(chat.id), answerOf(chat).id);
  assertSame(answerOf(chat), saved);
  assert.deepEqual(saved.markers, ['producer_gone']);
  assert.equal(chat.status, 'error');
}
