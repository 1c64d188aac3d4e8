// kill -9 in the middle of an answer, and the chat is the first to ask again.

import assert from 'node:assert/strict';
import { answerOf, newChat, version } from '../chat.mjs';
import { MOMENTS, assertWhole, killedAt } from '../crash.mjs';
import { play, step } from '../harness.mjs';

play(async () => {
  for (const [nth, moment] of Object.keys(MOMENTS).entries()) {
    step(moment);
    const { chat, seen } = await killedAt(moment, `crash-${version}-${nth}`);
    await chat.resumeStream();
    await assertWhole(chat, seen);
    assert.match(chat.errors.at(-1), /went away before it ended/);

    // The conversation goes on.
    chat.clearError();
    await chat.sendMessage({ text: 'And then?' });
    assert.equal(chat.status, 'ready');
    assert.equal(chat.messages.length, 4);
  }

  step('the page was loaded anew');
  const { chat, seen } = await killedAt('the answer', `crash-${version}-new`);
  const loaded = newChat(chat.id, { messages: chat.messages.slice(0, 1) });
  await loaded.resumeStream();
  await assertWhole(loaded, seen);
  assert.equal(answerOf(loaded).id, answerOf(chat).id);
});
