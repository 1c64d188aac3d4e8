// kill -9 in the middle of an answer, and somebody else reads it before the chat asks again.

import { answerOf, version } from '../chat.mjs';
import { assertWhole, killedAt } from '../crash.mjs';
import { base, play, sessionOf, step } from '../harness.mjs';

const stream = (path) => fetch(base + path, { headers: { accept: 'text/event-stream' } });

/** Who may come first. */
const FIRST = {
  'somebody who reads the session': (chat) => sessionOf(chat.id),
  'somebody who follows the run': async (chat) => {
    await (await stream(`/v1/sessions/${chat.id}/runs/${answerOf(chat).id}/events`)).text();
  },
  'another chat': async (chat) => {
    await (await stream(`/api/chat/${chat.id}/stream`)).text();
  },
};

play(async () => {
  for (const [nth, who] of Object.keys(FIRST).entries()) {
    step(who);
    const { chat, seen } = await killedAt('the answer', `late-${version}-${nth}`);
    await FIRST[who](chat);
    await chat.resumeStream();
    await assertWhole(chat, seen);
  }
});
