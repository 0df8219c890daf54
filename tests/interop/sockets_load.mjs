// Load on WebSockets and Socket.IO, run by hand: `node tests/interop/sockets_load.mjs memory|stops <segue> tests/projects/courier
// <node_modules> [clients] [seconds or stops]`. The binary should be optimised.
//
// memory: of the clients, half over WebSockets and half over Socket.IO, a tenth never reads. Prints the memory of the server, which must
// stay within a tenth from second 10 to the end. stops: ends the server by SIGTERM again and again while clients send messages; every
// message that was accepted must have its reply in the end, once.
import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { cpSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { tmpdir } from 'node:os';
import { join, resolve } from 'node:path';
import { createInterface } from 'node:readline';

const [mode, ...paths] = process.argv.slice(2);
const [binary, project, nodeModules] = paths.slice(0, 3).map((path) => resolve(path));
const CLIENTS = Number(paths[3] ?? (mode === 'memory' ? 500 : 20));
const ROUNDS = Number(paths[4] ?? (mode === 'memory' ? 60 : 50));
const modules = createRequire(join(nodeModules, 'package.json'));
const { io } = modules('socket.io-client');
const { WebSocket } = modules('ws');

const folder = mkdtempSync(join(tmpdir(), 'segue-load-'));
cpSync(project, join(folder, 'project'), { recursive: true });
writeFileSync(join(folder, 'project/credentials.yml'), 'websocket:\nsocketio: { session_persistence: true }\n');
const pause = (ms) => new Promise((done) => setTimeout(done, ms));
let server;

async function start(port) {
  const store = `sqlite:${join(folder, 'conversations.db')}`;
  const child = spawn(binary, ['run', '--port', String(port), '--store', store, join(folder, 'project')], { stdio: ['ignore', 'ignore', 'pipe'] });
  const lines = createInterface({ input: child.stderr });
  const log = [];
  const url = await new Promise((found, failed) => {
    lines.on('line', (line) => {
      log.push(line);
      if (log.length > 100) log.shift();
      const address = /listening on (http:\/\/[^\s"]+)/.exec(line)?.[1];
      if (address) found(address);
    });
    child.on('exit', () => failed(new Error(`the server ended:\n${log.join('\n')}`)));
  });
  server = { child, url, port: new URL(url).port, log };
}

const address = (query) => `${server.url.replace('http', 'ws')}/webhooks/websocket/connect?${query}`;
const memory = () => Number(/VmRSS:\s+(\d+)/.exec(readFileSync(`/proc/${server.child.pid}/status`, 'utf8'))[1]) / 1024;

async function measureMemory() {
  let replies = 0;
  const timers = [];
  for (let number = 0; number < CLIENTS; number += 1) {
    // A tenth, of both kinds.
    const isDeaf = number % 20 < 2;
    const every = 10_000 + 50 * (number % 100);
    if (number % 2) {
      const socket = io(server.url, { transports: ['websocket'], forceNew: true });
      await once(socket, 'connect');
      socket.emit('session_request', { session_id: `load-${number}` });
      socket.on('bot_uttered', () => { replies += 1; });
      const say = () => socket.emit('user_uttered', { message: 'Please send a parcel' });
      say();
      timers.push(setInterval(say, every));
      if (isDeaf) socket.io.engine.transport.ws._socket.pause();
    } else {
      const socket = new WebSocket(address(`sender=load-${number}`));
      await once(socket, 'open');
      socket.on('message', (data) => { replies += JSON.parse(data).type === 'message' ? 1 : 0; });
      socket.on('error', () => {});
      const say = () => { if (socket.readyState === 1) socket.send(JSON.stringify({ message: 'Please send a parcel' })); };
      say();
      timers.push(setInterval(say, every));
      if (isDeaf) socket._socket.pause();
    }
  }
  const samples = [];
  for (let second = 1; second <= ROUNDS; second += 1) {
    await pause(1_000);
    samples.push(memory());
    if (second % 10 === 0) console.log(`${second} s: ${samples.at(-1).toFixed(1)} MiB, ${replies} messages`);
  }
  timers.forEach(clearInterval);
  const from = samples[Math.min(9, samples.length - 1)];
  const change = (samples.at(-1) - from) / from;
  console.log(`${CLIENTS} clients: ${(100 * change).toFixed(1)} % from second 10 to ${ROUNDS}`);
  assert.ok(replies > CLIENTS && change < 0.1, 'the memory has grown');
}

async function stopAgainAndAgain() {
  // The ids of accepted messages by sender: a new sender for each client and stop, so that all its turns are told in the end.
  const accepted = new Map();
  let sent = 0;
  for (let round = 0; round < ROUNDS; round += 1) {
    const sockets = await Promise.all(Array.from({ length: CLIENTS }, async (_, number) => {
      const [sender, ids] = [`stop-${round}-${number}`, new Set()];
      accepted.set(sender, ids);
      const socket = new WebSocket(address(`sender=${sender}`));
      socket.on('error', () => {});
      socket.on('message', (data) => {
        const event = JSON.parse(data);
        if (event.type === 'user_message') ids.add(event.message_id);
      });
      await once(socket, 'open');
      const timer = setInterval(() => {
        if (socket.readyState === 1) socket.send(JSON.stringify({ message: 'Please send a parcel', message_id: `m${sent += 1}` }));
      }, 20 + number);
      return { socket, timer };
    }));
    await pause(50 + Math.random() * 150);
    server.child.kill('SIGTERM');
    await once(server.child, 'exit');
    sockets.forEach(({ socket, timer }) => { clearInterval(timer); socket.terminate(); });
    await start(server.port);
  }
  let checked = 0;
  await Promise.all([...accepted].map(async ([sender, ids]) => {
    const answers = new Map();
    const socket = new WebSocket(address(`sender=${sender}&after=0`));
    let current;
    socket.on('message', (data) => {
      const event = JSON.parse(data);
      if (event.type === 'user_message') answers.set(current = event.message_id, 0);
      if (event.type === 'message' && event.message.text === 'How fast?') answers.set(current, answers.get(current) + 1);
    });
    await once(socket, 'open');
    const deadline = Date.now() + 30_000;
    while ([...ids].some((id) => !answers.get(id)) && Date.now() < deadline) await pause(100);
    // A second answer would be there by now.
    await pause(1_000);
    socket.close();
    for (const id of ids) {
      assert.equal(answers.get(id), 1, `${sender}: the message ${id}`);
      checked += 1;
    }
  }));
  console.log(`${ROUNDS} stops, ${sent} messages sent, ${checked} accepted ones checked: each was answered once`);
}

try {
  await start(0);
  await (mode === 'memory' ? measureMemory() : stopAgainAndAgain());
} finally {
  server?.child.kill('SIGKILL');
  rmSync(folder, { recursive: true, force: true });
}
process.exit(0);
