// An endpoint that speaks OpenAI's chat completions, for the runner `model`. It notes what it receives, and answers as the
// scene wants.

import { once } from 'node:events';
import { createServer } from 'node:http';
import { sleep } from './harness.mjs';

/** The words of an answer that goes on until it is stopped. */
const LONG = Array.from({ length: 400 }, (_, nth) => `word${nth} `);

const chunk = (delta, finish_reason = null) =>
  `data: ${JSON.stringify({ model: 'm-1', choices: [{ index: 0, delta, finish_reason }] })}\n\n`;

/** `requests` are the bodies that came, as texts. `next` says how the next one is answered: a text, 'long', 'fail' or
 * 'busy'. */
export async function openEndpoint() {
  const endpoint = { requests: [], next: 'An answer.', cut: 0 };
  const server = createServer(async (request, response) => {
    let body = '';
    for await (const piece of request) body += piece;
    endpoint.requests.push(body);
    response.on('close', () => { if (!response.writableEnded) endpoint.cut += 1; });
    await answer(response, endpoint.next);
  });
  const [host, port] = process.env.LASTWORD_ENDPOINT.split(':');
  server.listen(Number(port), host);
  await once(server, 'listening');
  return endpoint;
}

async function answer(response, how) {
  if (how === 'fail') {
    response.writeHead(400, { 'content-type': 'application/json' });
    response.end(JSON.stringify({ error: { message: 'the model is on strike' } }));
    return;
  }
  if (how === 'busy') {
    response.writeHead(503, { 'content-type': 'application/json', 'retry-after': '3' });
    response.end(JSON.stringify({ error: { message: 'the model is busy' } }));
    return;
  }
  response.writeHead(200, { 'content-type': 'text/event-stream' });
  for (const word of how === 'long' ? LONG : [how]) {
    if (response.destroyed) return;
    response.write(chunk({ content: word }));
    if (how === 'long') await sleep(20);
  }
  response.write(chunk({}, 'stop'));
  const usage = { prompt_tokens: 3, completion_tokens: 4, total_tokens: 7 };
  response.write(`data: ${JSON.stringify({ choices: [], usage })}\n\n`);
  response.end('data: [DONE]\n\n');
}
