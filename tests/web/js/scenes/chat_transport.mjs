// The transport: what it sends, and that stop() stops the run, whenever it comes.

import assert from 'node:assert/strict';
import { newCable } from '../cable.mjs';
import { answerOf, textShown, version } from '../chat.mjs';
import { openEndpoint } from '../endpoint.mjs';
import { base, call, play, sleep, step, until } from '../harness.mjs';
import { assertSameMessages } from '../same.mjs';
import { loadTransport } from '../transport.mjs';

const { Chat } = await import(`ai-sdk-react-${version}`);
const { LastwordChatTransport } = await loadTransport();

/** A chat that notes its requests and its errors. */
function newChat(id, { server = base, runner = 'model', fetch = globalThis.fetch, messages = [], ...options } = {}) {
  const [requests, errors, ends] = [[], [], []];
  const noting = (url, init) => {
    requests.push([init?.method ?? 'GET', String(url).replace(server, ''), init?.body && JSON.parse(init.body)]);
    return fetch(url, init);
  };
  const transport = new LastwordChatTransport({ api: `${server}/api/chat`, body: () => ({ runner }), fetch: noting, ...options });
  const onFinish = ({ isAbort, isDisconnect, isError }) => ends.push({ isAbort, isDisconnect, isError });
  const chat = new Chat({ id, transport, messages, onFinish, onError: (error) => errors.push(error) });
  return Object.assign(chat, { requests, errors, ends, transport });
}

const stateOf = async (id) => (await call('GET', `/v1/sessions/${id}`)).active_stream_id;
const isStopped = (endpoint, cut) => until('the run is stopped', () => endpoint.cut === cut);

async function sendsTheLastMessage(endpoint) {
  const chat = newChat(`sends-${version}`);
  await chat.sendMessage({ text: 'one' });
  endpoint.next = 'Two.';
  await chat.sendMessage({ text: 'two', metadata: { k: 1 } });
  assert.equal(chat.status, 'ready');
  const [first, second] = chat.messages.filter((message) => message.role === 'user');
  const sent = { runner: 'model', id: chat.id, trigger: 'submit-message' };
  assert.deepEqual(chat.requests, [
    ['POST', '/api/chat', { ...sent, messages: [JSON.parse(JSON.stringify(first))] }],
    ['POST', '/api/chat', { ...sent, messages: [JSON.parse(JSON.stringify(second))] }],
  ]);
  const loaded = await chat.transport.loadMessages(chat.id);
  await assertSameMessages(chat.messages, loaded);
  assert.deepEqual((await chat.transport.loadMessages(chat.id, { before: loaded[3].id, limit: 2 })).map((message) => message.id), [loaded[1].id, loaded[2].id]);
  assert.deepEqual(await chat.transport.loadMessages(`nobody-${version}`), []);
  assert.equal(await chat.transport.reconnectToStream({ chatId: chat.id }), null);
}

async function stopsInTheMiddle(endpoint) {
  const chat = newChat(`stops-${version}`);
  endpoint.next = 'long';
  const cut = endpoint.cut + 1;
  const sent = chat.sendMessage({ text: 'Go on for ever.' });
  await until('it answers', () => textShown(chat).includes('word3'));
  await chat.stop();
  await sent;
  assert.equal(chat.status, 'ready');
  assert.deepEqual(chat.ends, [{ isAbort: true, isDisconnect: false, isError: false }]);
  await isStopped(endpoint, cut);
  await until('the answer is saved', async () => (await stateOf(chat.id)) === null);
  const [, answer] = await chat.transport.loadMessages(chat.id);
  assert.equal(answer.id, answerOf(chat).id);
  assert.equal(answer.metadata.lastword.state, 'interrupted-by-user');
  assert(answer.parts[0].text.startsWith(textShown(chat).trim()), 'what was shown is kept');
  assert.equal(await chat.transport.reconnectToStream({ chatId: chat.id }), null);
}

async function stopsBeforeTheAnswerBegins(endpoint) {
  endpoint.next = 'long';
  const cut = endpoint.cut + 1;
  let isAnswered = false;
  const slow = async (url, init) => {
    const response = await fetch(url, init);
    if (init?.body) {
      await sleep(300);
      isAnswered = true;
    }
    return response;
  };
  const chat = newChat(`early-${version}`, { fetch: slow });
  const sent = chat.sendMessage({ text: 'Never mind.' });
  await until('the request is on its way', () => chat.requests.length === 1);
  await chat.stop();
  await sent;
  assert.equal(isAnswered, false, 'stop() does not wait for the answer');
  assert.deepEqual([chat.status, chat.errors], ['ready', []]);
  await isStopped(endpoint, cut);
  await until('the session is idle', async () => (await stateOf(chat.id)) === null);
}

async function sendsRightAfterAStop(endpoint) {
  for (const wait of [0, 5, 20, 100]) {
    const chat = newChat(`right-after-${wait}-${version}`);
    for (const next of [() => chat.sendMessage({ text: 'And now?' }), () => chat.regenerate()]) {
      endpoint.next = 'long';
      const sent = chat.sendMessage({ text: `Go on ${wait}.` });
      await sleep(wait);
      await chat.stop();
      const following = next();
      await until('it answers', () => chat.errors.length > 0 || textShown(chat).includes('word1'));
      assert.deepEqual(chat.errors, [], `${wait} ms after the message`);
      await chat.stop();
      await Promise.all([sent, following]);
    }
    await until('the session is idle', async () => (await stateOf(chat.id)) === null);
  }
}

async function stopsWithoutTheHeader(endpoint) {
  endpoint.next = 'long';
  const cut = endpoint.cut + 1;
  const bare = async (url, init) => {
    const response = await fetch(url, init);
    const headers = new Headers(response.headers);
    headers.delete('lastword-run');
    return new Response(response.body, { status: response.status, headers });
  };
  const chat = newChat(`bare-${version}`, { fetch: bare });
  const sent = chat.sendMessage({ text: 'Go on.' });
  await until('it answers', () => textShown(chat).includes('word1'));
  await chat.stop();
  await sent;
  await isStopped(endpoint, cut);
}

async function resumesAndStopsWhatItResumed(endpoint) {
  endpoint.next = 'long';
  const cut = endpoint.cut + 1;
  const first = newChat(`resumes-${version}`, { stopOnAbort: false });
  const sent = first.sendMessage({ text: 'Go on.' });
  await until('it answers', () => textShown(first).includes('word2'));
  await first.stop();
  await sent;
  assert.equal(endpoint.cut, cut - 1, 'an abort may also leave the run alone');

  const loader = newChat(first.id);
  const messages = await loader.transport.loadMessages(first.id);
  assert.deepEqual(messages.map((message) => message.role), ['user'], 'the answer is in the stream alone');
  loader.messages = messages;
  // As effects that React runs twice: the second request takes the place of the first one and is no stop.
  const resumed = [loader.resumeStream(), loader.resumeStream()];
  await until('it streams', () => textShown(loader).includes('word9'));
  await sleep(100);
  assert.equal(endpoint.cut, cut - 1, 'a request that was replaced stops nothing');
  await loader.stop();
  await Promise.all(resumed);
  await isStopped(endpoint, cut);
}

async function resumesTheRunThatHasEndedSince(endpoint) {
  endpoint.next = 'long';
  const cable = await newCable();
  const chat = newChat(`ended-${version}`, { server: cable.server });
  const sent = chat.sendMessage({ text: 'Go on.' });
  await until('it answers', () => textShown(chat).includes('word2'));
  cable.cut();
  await sent;
  assert.deepEqual(chat.ends.at(-1), { isAbort: false, isDisconnect: true, isError: true });
  await call('POST', `/v1/sessions/${chat.id}/runs/${answerOf(chat).id}/stop`);
  await until('the session is idle', async () => (await stateOf(chat.id)) === null);
  await chat.resumeStream();
  const loaded = await chat.transport.loadMessages(chat.id);
  assert.equal(textShown(chat), loaded[1].parts[0].text, 'all of it is shown');
}

async function tellsErrorsAsTheyAre(endpoint) {
  const chat = newChat(`errors-${version}`, { runner: 'nobody' });
  await chat.sendMessage({ text: 'Hello?' });
  assert.equal(chat.status, 'error');
  assert.match(chat.errors[0].message, /^there is no runner/);
  assert.deepEqual([chat.errors[0].status, chat.errors[0].code], [400, 'unknown_runner']);
  endpoint.next = 'fail';
  const failing = newChat(`fails-${version}`);
  await failing.sendMessage({ text: 'Hello?' });
  assert.match(failing.errors[0].message, /on strike/);
  await assert.rejects(failing.transport.stop(failing.id, 'no-such-run'), /./);
}

play(async () => {
  const endpoint = await openEndpoint();
  for (const scene of [
    sendsTheLastMessage,
    stopsInTheMiddle,
    stopsBeforeTheAnswerBegins,
    sendsRightAfterAStop,
    stopsWithoutTheHeader,
    resumesAndStopsWhatItResumed,
    resumesTheRunThatHasEndedSince,
    tellsErrorsAsTheyAre,
  ]) {
    step(scene.name);
    await scene(endpoint);
  }
});
