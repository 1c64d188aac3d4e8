// The page under a path of a proxy, whose network cuts streams into odd pieces: every address that it uses is relative,
// and no word gets lost between two pieces. And the page where no frames are painted.

import assert from 'node:assert/strict';
import { once } from 'node:events';
import { createServer, request } from 'node:http';
import { assertQuiet, createSession, look, openPage, say, waitForTheEnd, waitForWords } from '../browser.mjs';
import { base, newProducer, play, sleep, step, until } from '../harness.mjs';

const PATH = '/chat';

/** Pieces of a stream are of so many bytes, over and over again. */
const PIECE_BYTES = [1, 2, 3, 50, 7, 1000, 1];
const PAUSE_MS = 10;

/** Hands on a stream in odd pieces. Between the last two line feeds of a frame it waits. */
async function inPieces(stream, answer) {
  let nth = 0;
  for await (const chunk of stream) {
    for (let at = 0; at < chunk.length - 1;) {
      const end = Math.min(at + PIECE_BYTES[nth++ % PIECE_BYTES.length], chunk.length - 1);
      answer.write(chunk.subarray(at, end));
      at = end;
    }
    await sleep(PAUSE_MS);
    answer.write(chunk.subarray(-1));
  }
  answer.end();
}

/** A proxy that serves the server under a path, and nothing else. The server may have the same path. */
async function openProxy() {
  const strays = [];
  const proxy = createServer((near, answer) => {
    if (!near.url.startsWith(`${PATH}/`)) {
      strays.push(near.url);
      answer.writeHead(404).end();
      return;
    }
    const { method, headers } = near;
    const far = request(base + near.url.slice(PATH.length), { method, headers }, (response) => {
      answer.writeHead(response.statusCode, response.headers);
      const isStream = response.headers['content-type']?.startsWith('text/event-stream');
      if (isStream) inPieces(response, answer).catch(() => answer.destroy());
      else response.pipe(answer);
    });
    answer.on('close', () => far.destroy());
    far.on('error', () => answer.destroy());
    near.pipe(far);
  });
  proxy.listen(0, '127.0.0.1');
  await once(proxy, 'listening');
  return { server: `http://127.0.0.1:${proxy.address().port}${PATH}/`, strays };
}

play(async () => {
  const { server, strays } = await openProxy();
  const { browser, page, complaints } = await openPage(server);
  const id = await createSession(page, 'Under a path');
  await say(page, 'Tell me everything.');
  await waitForWords(page, 'Good question');
  step('it answers');
  await page.reload();
  await waitForWords(page, 'Good question');
  await page.click('#stop');
  await waitForTheEnd(page);
  assert.deepEqual((await look(page)).questions, ['Tell me everything.']);
  assert.deepEqual(strays, []);

  step('odd pieces');
  const producer = await newProducer(id, 'In pieces.');
  const words = Array.from({ length: 60 }, (_, nth) => (nth % 7 === 0 ? `ünï${nth}\n\n` : `word${nth} 😀 `));
  await producer.append(...words.map((text) => ['token', { text }]));
  await waitForWords(page, 'word59');
  assert.equal(await page.textContent('#live .other .words'), words.join(''));

  step('without frames');
  const still = await browser.newPage();
  await still.addInitScript(() => { window.requestAnimationFrame = () => 0; });
  await still.goto(`${base}/#${id}`);
  const live = () => still.evaluate(() => document.querySelector('#live .other .words')?.textContent);
  await until('the words are there', async () => await live() === words.join(''));
  assertQuiet(complaints);
  await browser.close();
});
