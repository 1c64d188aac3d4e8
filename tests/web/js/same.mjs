// Messages as they are compared: what a chat shows beside what the history has.

import assert from 'node:assert/strict';
import { base } from './harness.mjs';

const withoutUndefined = (value) => JSON.parse(JSON.stringify(value));

/** A part without what only a stream has: the marks of steps, and the ids of thoughts. */
function plainPart({ id, ...part }) {
  return part.type.startsWith('data-') && id !== undefined ? { id, ...part } : part;
}

export function plain(message) {
  const parts = message.parts.filter((part) => part.type !== 'step-start').map(plainPart);
  return withoutUndefined({ id: message.id, role: message.role, parts, metadata: message.metadata });
}

/** Files that the user sent have an address of the server's after a reload. They must have the same bytes there. */
async function assertSameFile(shown, loaded) {
  assert.match(loaded.url, /\/v1\/sessions\/[^/]+\/attachments\/sha256-[0-9a-f]{64}$/);
  const [stored, sent] = await Promise.all([new URL(loaded.url, base).href, shown.url].map(async (url) => {
    const response = await fetch(url);
    assert.equal(response.status, 200, url);
    return { type: response.headers.get('content-type'), bytes: Buffer.from(await response.arrayBuffer()).toString('hex') };
  }));
  assert.deepEqual(stored, sent);
  assert.deepEqual({ ...loaded, url: '' }, { ...shown, url: '' });
}

/** Every message, every part, in the same order. */
export async function assertSameMessages(shown, loaded) {
  assert.deepEqual(loaded.map((message) => message.id), shown.map((message) => message.id));
  for (const [nth, message] of shown.map(plain).entries()) {
    const other = plain(loaded[nth]);
    const isSent = (part) => message.role === 'user' && part.type === 'file' && part.url.startsWith('data:');
    for (const [at, part] of message.parts.entries()) {
      if (isSent(part)) {
        await assertSameFile(part, other.parts[at]);
        other.parts[at] = part;
      }
    }
    assert.deepEqual(other, message);
  }
}
