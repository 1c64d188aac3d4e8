// Events of every kind, in any order: the message that the packages build from the stream is the one that the history has.

import assert from 'node:assert/strict';
import { base, call, play, step } from '../harness.mjs';
import { plain } from '../same.mjs';

const version = process.argv[2];
const { DefaultChatTransport, readUIMessageStream } = await import(`ai-${version}`);

const KINDS = [
  ['token', { text: 'Hello ' }],
  ['token', { text: 'you.\n' }],
  ['reasoning', { text: ' Hm. ' }],
  ['interim_assistant', { text: 'Soon.' }],
  ['tool', { tool_call_id: 'a', name: 'sum', args: { x: [1, 2.5], constructor: 1 } }],
  ['tool', { tool_call_id: 'a', name: 'sum', arguments: '{"x":' }],
  ['tool', { name: 'sum', input: { y: null } }],
  ['tool_delta', { tool_call_id: 'b', name: 'look', arguments_delta: '{"where":"s' }],
  ['tool', { tool_call_id: 'b', name: 'look', args: { where: 'sea' } }],
  ['tool_complete', { tool_call_id: 'a', result: { n: [0, null] }, preview: 'n' }],
  ['tool_complete', { tool_call_id: 'b', error: 'no sea' }],
  ['tool_complete', { name: 'sum', output: '' }],
  ['tool_complete', { name: 'sum', result: 'x'.repeat(70_000) }],
  ['file', { media_type: 'image/png', url: 'https://example.com/a.png' }],
  ['source', { id: 's', url: 'https://example.com', title: 'A' }],
  ['source', { id: 't', media_type: 'text/plain', filename: 't.txt' }],
  ['data', { name: 'plot', id: '1', data: { x: 1 } }],
  ['data', { name: 'plot', id: '1', data: [2] }],
  ['data', { name: 'odd name', data: 1 }],
  ['metadata', { mood: { calm: true }, lastword: 'not yours' }],
  ['metadata', { mood: { wind: 3 } }],
  ['usage', { prompt_tokens: 3, completion_tokens: 4, model: 'm' }],
  ['weather', { rain: true }],
];

const ENDS = [['done', {}], ['cancel', {}], ['apperror', { type: 'refused', message: 'no credit' }]];

/** The same numbers every time. */
function numbers(seed) {
  let state = seed;
  return (below) => {
    state = (Math.imul(state, 1_664_525) + 1_013_904_223) >>> 0;
    return Math.floor((state / 2 ** 32) * below);
  };
}

async function streamed(session, run) {
  const transport = new DefaultChatTransport({ api: `${base}/api/chat`, fetch: (url) => fetch(`${url}?run=${run}`) });
  const stream = await transport.reconnectToStream({ chatId: session });
  let last;
  for await (const message of readUIMessageStream({ stream, onError: () => {} })) last = message;
  return last;
}

/** A row has one thought and one text, and holds its files after its calls. Everything else is in the same order. */
function sorted(message) {
  const parts = (wanted) => message.parts.filter((part) => wanted(part.type));
  const words = (kind) => parts((type) => type === kind).map((part) => part.text).join('').replace(/\s/g, '');
  const calls = parts((type) => type === 'dynamic-tool').filter((part) => part.input !== null).map(({ rawInput, ...part }) => part);
  const byId = (a, b) => a.toolCallId.localeCompare(b.toolCallId);
  return {
    id: message.id,
    metadata: message.metadata,
    words: [words('text'), words('reasoning')],
    calls: calls.sort(byId),
    files: parts((type) => type === 'file'),
    sources: parts((type) => type.startsWith('source-')),
    data: parts((type) => type.startsWith('data-')),
  };
}

async function assertSameOf(session, run, events) {
  await call('POST', `/v1/sessions/${session}/runs`, { message: `Question ${run}`, run_id: run });
  const lines = events.map(([event, payload]) => JSON.stringify({ event, payload })).join('\n');
  await call('POST', `/v1/sessions/${session}/runs/${run}/events`, lines);
  const message = plain(await streamed(session, run));
  const loaded = (await call('GET', `/api/chat/${session}/messages`)).find((message) => message.id === run);
  const hasParts = message.parts.some((part) => part.type !== 'dynamic-tool' || part.input !== null);
  assert.equal(loaded !== undefined, hasParts, JSON.stringify(events));
  if (loaded) assert.deepEqual(sorted(plain(loaded)), sorted(message), JSON.stringify(events));
}

play(async () => {
  const session = `history-${version}`;
  await call('POST', '/v1/sessions', { session_id: session });
  const below = numbers(Number(version));
  for (let nth = 0; nth < 60; nth += 1) {
    const events = Array.from({ length: below(14) }, () => KINDS[below(KINDS.length)]);
    await assertSameOf(session, `r${nth}`, [...events, ENDS[below(ENDS.length)]]);
  }
  step('all kinds in order');
  await assertSameOf(session, 'all', [...KINDS, ['done', {}]]);
  const messages = await call('GET', `/api/chat/${session}/messages`);
  assert.equal(new Set(messages.map((message) => message.id)).size, messages.length);
});
