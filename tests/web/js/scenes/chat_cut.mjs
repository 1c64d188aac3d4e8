// The connection is cut in the middle of an answer, which goes on: the chat resumes it from its start and sees its end.

import assert from 'node:assert/strict';
import { answerOf, assertSame, newChat, textShown, version } from '../chat.mjs';
import { newCable } from '../cable.mjs';
import { play, savedAnswer, sessionOf, step, until } from '../harness.mjs';

async function assertWhole(chat, seen) {
  assert.equal(chat.status, 'ready');
  assert.deepEqual(chat.messages.map((message) => message.role), ['user', 'assistant']);
  assert(textShown(chat).startsWith(seen));
  assert.match(textShown(chat), /The last word is yours\.$/);
  assertSame(answerOf(chat), savedAnswer(await sessionOf(chat.id), answerOf(chat).id));
}

async function cutInTheMiddle(id) {
  const cable = await newCable();
  const chat = newChat(id, { server: cable.server });
  const sent = chat.sendMessage({ text: 'Tell me everything.' });
  await until('it answers', () => textShown(chat).includes('Let me'));
  cable.cut();
  await sent;
  assert.equal(chat.status, 'error', 'the chat knows that it was cut');
  assert.notEqual((await sessionOf(id)).active_stream_id, null, 'the answer goes on');
  return chat;
}

play(async () => {
  step('the same chat');
  const chat = await cutInTheMiddle(`cut-${version}`);
  const seen = textShown(chat);
  await chat.resumeStream();
  await assertWhole(chat, seen);

  step('another one, in a page that was loaded anew');
  const first = await cutInTheMiddle(`reload-${version}`);
  const second = newChat(first.id, { messages: first.messages.slice(0, 1) });
  const resumed = second.resumeStream();
  await until('it streams what is live', () => second.status === 'streaming' && textShown(second) !== '');
  await resumed;
  await assertWhole(second, textShown(first));
});
