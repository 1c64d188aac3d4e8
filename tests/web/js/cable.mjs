// A cable to the server that can be cut. Whoever plugs in again gets a new one.

import { once } from 'node:events';
import { connect, createServer } from 'node:net';
import { base } from './harness.mjs';

export async function newCable() {
  const sockets = new Set();
  const cable = createServer((near) => {
    const far = connect(Number(new URL(base).port), '127.0.0.1');
    for (const [socket, other] of [[near, far], [far, near]]) {
      sockets.add(socket);
      socket.on('error', () => other.destroy());
      socket.pipe(other);
    }
  });
  cable.listen(0, '127.0.0.1');
  await once(cable, 'listening');
  const cut = () => sockets.forEach((socket) => socket.destroy());
  return { server: `http://127.0.0.1:${cable.address().port}`, cut };
}
