// Whole answers: of the demo and of a command, one after the other, asked anew; and nothing to resume behind them.

import assert from 'node:assert/strict';
import { answerOf, assertSame, newChat, version } from '../chat.mjs';
import { play, savedAnswer, sessionOf, step } from '../harness.mjs';

async function assertSaved(chat, rowsOfUser) {
  assert.equal(chat.status, 'ready');
  assert.deepEqual(chat.errors, []);
  const session = await sessionOf(chat.id);
  const saved = savedAnswer(session, answerOf(chat).id);
  assertSame(answerOf(chat), saved);
  assert.deepEqual(saved.markers, []);
  assert.deepEqual(session.messages.filter((row) => row.role === 'user').map((row) => row.content), rowsOfUser);
  return saved;
}

play(async () => {
  const chat = newChat(`answers-${version}`);
  await chat.sendMessage({ text: 'How are you?' });
  const saved = await assertSaved(chat, ['How are you?']);
  assert.match(saved.texts.at(-1), /The last word is yours\.$/);
  assert.deepEqual([saved.texts.length, saved.thoughts.length, saved.tools], [2, 1, [['count_words', true]]]);
  const parts = answerOf(chat).parts.map((part) => part.type);
  assert.deepEqual(parts, ['step-start', 'reasoning', 'text', 'dynamic-tool', 'text']);

  step('a second turn');
  await chat.sendMessage({ text: 'And now?' });
  assert.equal(chat.messages.length, 4);
  await assertSaved(chat, ['How are you?', 'And now?']);

  step('the same anew');
  const before = answerOf(chat).id;
  await chat.regenerate();
  assert.equal(chat.messages.length, 4);
  assert.notEqual(answerOf(chat).id, before);
  await assertSaved(chat, ['How are you?', 'And now?']);

  step('nothing to resume');
  const messages = structuredClone(chat.messages);
  await chat.resumeStream();
  assert.equal(chat.status, 'ready');
  assert.deepEqual(chat.messages, messages);

  step('a command');
  const command = newChat(`command-${version}`, { runner: 'agent' });
  await command.sendMessage({ text: 'How is the weather?' });
  const answer = await assertSaved(command, ['How is the weather?']);
  assert.deepEqual(answer.texts, [
    'One two three four five six seven eight nine ten',
    'It rains on every one of the hills today – fin.',
  ]);
  const tool = answerOf(command).parts.find((part) => part.type === 'dynamic-tool');
  assert.deepEqual([tool.input, tool.output], [{ where: 'out of the window' }, 'rain']);

  step('a runner that is not there');
  const nobody = newChat(`nobody-${version}`, { runner: 'nobody' });
  await nobody.sendMessage({ text: 'Hello?' });
  assert.equal(nobody.status, 'error');
  assert.match(nobody.errors[0], /there is no runner/);
});
