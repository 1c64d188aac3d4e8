// The events of a run as somebody saw them, beside what was saved.

import assert from 'node:assert/strict';
import { call, savedAnswer, sessionOf } from './harness.mjs';

export const RUN = 'r1';

/** Begins an answer of the demo in a new session. Gives the path of its events. */
export async function beginRun(session) {
  await call('POST', '/v1/sessions', { session_id: session });
  await call('POST', `/v1/sessions/${session}/runs`, { message: 'Tell me everything.', runner: 'demo', run_id: RUN });
  return `/v1/sessions/${session}/runs/${RUN}/events`;
}

/** Each event once, in order, none missing; then the end; and the words are those of the session. */
export async function assertEveryEventOnce(session, events, end) {
  assert.deepEqual(events.map((event) => event.id), events.map((_, nth) => `${RUN}:${nth + 1}`));
  assert.deepEqual(events.map((event) => `${RUN}:${event.data.seq}`), events.map((event) => event.id));
  assert.deepEqual(end, { run_id: RUN, last_seq: events.length, state: 'interrupted-by-crash' });
  const named = (name) => events.map((event) => event.data).filter((data) => data.event === name);
  const said = (name) => named(name).map((data) => data.payload.text).join('');
  const words = (text) => text.split(/\s+/).filter(Boolean);
  const saved = savedAnswer(await sessionOf(session), RUN);
  assert.deepEqual(words(said('token')), words(saved.texts.join(' ')));
  assert.deepEqual(words(said('reasoning')), words(saved.thoughts.join(' ')));
  assert.deepEqual(saved.markers, ['producer_gone']);
}
