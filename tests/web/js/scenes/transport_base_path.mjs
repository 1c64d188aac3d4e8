// The transport of a server that a proxy offers at a base path: every request and every file goes through the prefix.

import assert from 'node:assert/strict';
import { play, step } from '../harness.mjs';
import { loadTransport } from '../transport.mjs';

const { LastwordChatTransport } = await loadTransport();

const FILE = '/v1/sessions/s/attachments/sha256-00';

/** What a chat at this address requests, and where its files are then. */
async function use(api, base) {
  const requests = [];
  const urls = [`${base}${FILE}`, 'https://example.com/sea.png', 'data:,', '/elsewhere/sea.png'];
  const parts = urls.map((url) => ({ type: 'file', mediaType: 'image/png', url }));
  const fetch = async (url, init) => {
    requests.push(`${init?.method ?? 'GET'} ${url}`);
    const body = init?.method === 'POST' ? { run_id: 'r', stopped: true } : [{ id: 'r', role: 'assistant', parts }];
    return Response.json(body);
  };
  const transport = new LastwordChatTransport({ api, fetch });
  const [message] = await transport.loadMessages('s');
  await transport.stop('s', 'r');
  return { requests, files: message.parts.map((part) => part.url) };
}

play(async () => {
  const others = ['https://example.com/sea.png', 'data:,', '/elsewhere/sea.png'];
  for (const [server, base] of [
    ['https://example.org', ''],
    ['https://example.org/chat', '/chat'],
    ['https://example.org/tools/chat', '/tools/chat'],
    // A proxy may take off a prefix that the server was not told of.
    ['https://example.org/chat', ''],
    ['/chat', '/chat'],
    ['', ''],
  ]) {
    for (const api of [`${server}/api/chat`, `${server}/api/chat/`, ...(server === '' ? [] : [server, `${server}/`])]) {
      step(`${api} of a server at ${base || '/'}`);
      const { requests, files } = await use(api, base);
      assert.deepEqual(requests, [`GET ${server}/api/chat/s/messages`, `POST ${server}/v1/sessions/s/runs/r/stop`]);
      assert.deepEqual(files, [`${server}${FILE}`, ...others]);
    }
  }
});
