// The transport has the types of both versions of `ai`.

import { play, step } from '../harness.mjs';
import { checkTypes } from '../transport.mjs';

play(async () => {
  for (const version of ['6', '7']) {
    step(`ai ${version}`);
    await checkTypes(version);
  }
});
