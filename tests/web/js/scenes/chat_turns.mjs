// Five turns with tools and pictures, reloaded in the middle and at the end, edited, answered anew, stopped, failed and
// killed. The history is what the chat shows, and the endpoint receives what happened.

import assert from 'node:assert/strict';
import { answerOf, textShown, version } from '../chat.mjs';
import { openEndpoint } from '../endpoint.mjs';
import { base, call, play, server, step, until } from '../harness.mjs';
import { assertSameMessages } from '../same.mjs';
import { loadTransport } from '../transport.mjs';

const { Chat } = await import(`ai-sdk-react-${version}`);
const { LastwordChatTransport } = await loadTransport();

const PIXEL = 'data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==';
const PICTURE = { type: 'file', mediaType: 'image/png', filename: 'pixel.png', url: PIXEL };
const id = `turns-${version}`;

function newChat(messages = []) {
  const transport = new LastwordChatTransport({ api: base });
  const errors = [];
  const chat = new Chat({ id, transport, messages, onError: (error) => errors.push(error.message) });
  return Object.assign(chat, { transport, errors });
}

/** A page that was loaded anew. */
async function reloaded(chat) {
  const messages = await chat.transport.loadMessages(id);
  const loaded = newChat(messages);
  return loaded;
}

async function assertReloads(chat) {
  assert.deepEqual([chat.status, chat.errors], ['ready', []]);
  await assertSameMessages(chat.messages, await chat.transport.loadMessages(id));
}

const ask = (chat, text, runner, files = []) => chat.sendMessage({ text, files }, { body: { runner } });

const USER = (text) => ({ role: 'user', content: text });
const SEEN = (text) => ({ role: 'user', content: [{ type: 'text', text }, { type: 'image_url', image_url: { url: PIXEL } }] });
const SAID = (text) => ({ role: 'assistant', content: text });

/** What the agent with the tools did, as a model is told. */
const USED = (called) => {
  const look = '{"where":"sea","deep":{"n":[1,2.50,"x"]},"e":5,"f":6}';
  const results = ['{"waves":[1,null],"text":"two\\nlines"}', 'waves drawn', 'no ink'];
  const named = [['look', look], ['draw', '{"what":"waves"}'], ['draw', '{"what":"wind"}']];
  const calls = named.map(([name, text], nth) => ({ id: called[nth].id, type: 'function', function: { name, arguments: text } }));
  return [
    { role: 'assistant', content: 'I look and draw.', tool_calls: calls },
    ...results.map((content, nth) => ({ role: 'tool', tool_call_id: called[nth].id, content })),
    SAID('The sea is calm.'),
  ];
};

/** The endpoint received these messages, byte for byte but for the ids of calls, which are unique. */
function assertReceived(endpoint, expected) {
  const { messages } = JSON.parse(endpoint.requests.at(-1));
  const calls = messages.flatMap((message) => message.tool_calls ?? []);
  assert.equal(new Set(calls.map((call) => call.id)).size, calls.length, 'ids of calls are unique');
  const turn = (nth) => calls.slice(3 * nth, 3 * nth + 3);
  assert.equal(JSON.stringify(messages, null, 1), JSON.stringify(expected(turn), null, 1));
}

async function fiveTurns(endpoint) {
  const chat = newChat();
  await ask(chat, 'Look at this.', 'tools', [PICTURE]);
  await assertReloads(chat);
  const answer = answerOf(chat);
  const tools = answer.parts.filter((part) => part.type === 'dynamic-tool');
  assert.deepEqual(tools.map((part) => [part.toolName, part.state]), [['look', 'output-available'], ['draw', 'output-available'], ['draw', 'output-error']]);
  assert.deepEqual(tools[0].output, { waves: [1, null], text: 'two\nlines' });
  assert.deepEqual([tools[1].output, tools[2].errorText], ['waves drawn', 'no ink']);
  assert.deepEqual([answer.metadata.mood, answer.metadata.lastword.model], [{ calm: true }, 'tools-1']);

  endpoint.next = 'Two.';
  await ask(chat, 'two?', 'model');
  assertReceived(endpoint, (turn) => [SEEN('Look at this.'), ...USED(turn(0)), USER('two?')]);
  await assertReloads(chat);
  await ask(chat, 'three?', 'tools');
  endpoint.next = 'Four.';
  await ask(chat, 'four?', 'model', [PICTURE]);
  const before = (turn) => [SEEN('Look at this.'), ...USED(turn(0)), USER('two?'), SAID('Two.'), USER('three?'), ...USED(turn(1))];
  assertReceived(endpoint, (turn) => [...before(turn), SEEN('four?')]);
  await assertReloads(chat);

  step('reloaded in the middle');
  endpoint.next = 'long';
  const sent = ask(chat, 'five?', 'model');
  await until('it answers', () => textShown(chat).includes('word5'));
  const second = await reloaded(chat);
  assert.equal(second.messages.at(-1).role, 'user');
  const resumed = second.resumeStream();
  await until('both show it', () => textShown(second).includes('word9') && textShown(chat).includes('word9'));
  await second.stop();
  await Promise.all([sent, resumed]);
  await until('it is saved', async () => (await call('GET', `/v1/sessions/${id}`)).active_stream_id === null);
  assertReceived(endpoint, (turn) => [...before(turn), SEEN('four?'), SAID('Four.'), USER('five?')]);
  return before;
}

async function answeredAnew(endpoint, before) {
  step('the last one');
  const chat = await reloaded(newChat());
  assert.equal(chat.messages.length, 10);
  endpoint.next = 'Five again.';
  await chat.regenerate({ body: { runner: 'model' } });
  assertReceived(endpoint, (turn) => [...before(turn), SEEN('four?'), SAID('Four.'), USER('five?')]);
  await assertReloads(chat);
  assert.equal(textShown(chat), 'Five again.');

  step('an edit');
  const four = chat.messages.filter((message) => message.role === 'user')[3];
  endpoint.next = 'Edited.';
  await chat.sendMessage({ text: 'four, please?', messageId: four.id }, { body: { runner: 'model' } });
  assertReceived(endpoint, (turn) => [...before(turn), USER('four, please?')]);
  await assertReloads(chat);
  assert.equal(chat.messages.length, 8);

  step('one in the middle');
  const two = chat.messages[3];
  endpoint.next = 'Two again.';
  await chat.regenerate({ messageId: two.id, body: { runner: 'model' } });
  assertReceived(endpoint, (turn) => [SEEN('Look at this.'), ...USED(turn(0)), USER('two?')]);
  await assertReloads(chat);
  assert.equal(chat.messages.length, 4);

  step('one that fails leaves the old answer');
  endpoint.next = 'fail';
  const kept = structuredClone(chat.messages);
  await chat.regenerate({ body: { runner: 'model' } });
  assert.equal(chat.status, 'error');
  const after = await reloaded(chat);
  await assertSameMessages(kept.slice(0, 4), after.messages);

  step('the first one');
  endpoint.next = 'One again.';
  await after.regenerate({ messageId: after.messages[1].id, body: { runner: 'model' } });
  assertReceived(endpoint, () => [SEEN('Look at this.')]);
  await assertReloads(after);
  assert.equal(after.messages.length, 2);
  const { branches } = await call('GET', `/v1/sessions/${id}/branches`);
  assert.deepEqual(branches.map((branch) => branch.reason), ['regenerate', 'edit', 'regenerate', 'failed', 'regenerate']);
  return after;
}

async function failedAndKilled(endpoint, chat) {
  endpoint.next = 'fail';
  await ask(chat, 'Will you?', 'model');
  assert.match(chat.errors.at(-1), /on strike/);
  chat.clearError();

  step('killed');
  endpoint.next = 'long';
  const sent = ask(chat, 'Once more?', 'model');
  await until('it answers', () => textShown(chat).includes('word5'));
  const seen = textShown(chat).trim();
  await server.kill();
  await sent;
  assert.equal(chat.status, 'error');
  await server.start();
  const loaded = await reloaded(chat);
  await loaded.resumeStream();
  assert(textShown(loaded).startsWith(seen), 'whatever was shown is there');
  loaded.clearError();
  endpoint.next = 'Back again.';
  await ask(loaded, 'Are you back?', 'model');
  assert.equal(textShown(loaded), 'Back again.');
  const { messages } = JSON.parse(endpoint.requests.at(-1));
  assert.deepEqual(messages[0], SEEN('Look at this.'));
  assert.deepEqual(messages[1], SAID('One again.'));
  assert.deepEqual(messages.at(-1), USER('Are you back?'));
  assert(messages.at(-2).content.startsWith(seen));
}

play(async () => {
  const endpoint = await openEndpoint();
  const before = await fiveTurns(endpoint);
  const chat = await answeredAnew(endpoint, before);
  step('failed');
  await failedAndKilled(endpoint, chat);
});
