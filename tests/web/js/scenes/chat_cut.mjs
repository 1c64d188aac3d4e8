// The connection is cut in the middle of an answer, which goes on: the chat resumes it from its start and sees its end.

import assert from 'node:assert/strict';
import { createServer, connect } from 'node:net';
import { once } from 'node:events';
import { answerOf, assertSame, newChat, textShown, version } from '../chat.mjs';
import { base, play, savedAnswer, sessionOf, step, until } from '../harness.mjs';

/** A cable to the server that can be cut. */
async function newCable() {
  const sockets = new Set();
  const cable = createServer((near) => {
    const far = connect(Number(new URL(base).port), '127.0.0.1');
    for (const [socket, other] of [[near, far], [far, near]]) {
      sockets.add(socket);
      socket.pipe(other).on('error', () => {});
      socket.on('error', () => {});
    }
  });
  cable.listen(0, '127.0.0.1');
  await once(cable, 'listening');
  const cut = () => sockets.forEach((socket) => socket.destroy());
  return { server: `http://127.0.0.1:${cable.address().port}`, cut };
}

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
