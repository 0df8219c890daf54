// Foreign clients of the channels `socketio`, `websocket` and `callback`, against the real server with the project `courier`.
// The arguments are the binary `segue`, the folder `tests/projects/courier`, the folder node_modules and the Python interpreter with
// `python-socketio`. Prints a line for each test; the exit status is 1 if one fails.
import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { createHmac } from 'node:crypto';
import { once } from 'node:events';
import { appendFileSync, cpSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { createServer } from 'node:http';
import { createRequire } from 'node:module';
import { tmpdir } from 'node:os';
import { delimiter, dirname, join, resolve } from 'node:path';
import { createInterface } from 'node:readline';

const [binary, project, nodeModules, python] = process.argv.slice(2).map((path) => resolve(path));
const modules = createRequire(join(nodeModules, 'package.json'));
const { io } = modules('socket.io-client');
const { WebSocket } = modules('ws');
const TIMEOUT = 30_000;
const SECRET = 'a shared secret of more than thirty-two bytes';

const FILLER = 'One moment, I look into the timetable.';
const REPLY = 'The depot has ports.';
const QUESTION = 'What does the depot have?';
const ELSE = 'Is there anything else I can help you with?';
const REMINDER = 'Your parcel waits.';

// ---- The server, and what it calls ----

// Answers the custom action with a reminder that is due at once, and takes the replies of the callback channel.
async function services() {
  const replies = [];
  const server = createServer((request, response) => {
    let body = '';
    request.on('data', (part) => { body += part; });
    request.on('end', () => {
      if (request.url === '/replies') replies.push({ headers: request.headers, body });
      const event = { event: 'reminder', name: 'parcel', intent: 'parcel_waits', entities: [],
        date_time: new Date(Date.now() + 500).toISOString(), kill_on_user_msg: false };
      response.setHeader('content-type', 'application/json');
      response.end(JSON.stringify({ events: [event], responses: [] }));
    });
  });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  return { url: `http://127.0.0.1:${server.address().port}`, replies, close: () => server.close() };
}

const folder = mkdtempSync(join(tmpdir(), 'segue-sockets-'));
const outside = await services();

function prepare() {
  const copy = join(folder, 'project');
  cpSync(project, copy, { recursive: true });
  const script = readFileSync(join(copy, 'script.yml'), 'utf8');
  const slow = `    say: ${REPLY}\n`;
  assert.ok(script.includes(slow), 'the script of the project has changed');
  writeFileSync(join(copy, 'script.yml'), script
    .replace('rules:\n', "rules:\n  - when: { purpose: commands, user: 'remind' }\n    say: start flow remind_me\n")
    .replace(slow, `${slow}    pace: { first: 100ms, every: 50ms, piece: word }\n`));
  writeFileSync(join(copy, 'flows/remind.yml'), `flows:
  remind_me:
    description: Reminds of a parcel.
    run_pattern_completed: false
    steps: [{ action: action_remind }]
  parcel_waits:
    description: Says that a parcel waits.
    run_pattern_completed: false
    nlu_trigger: [{ intent: parcel_waits }]
    steps: [{ action: utter_waits }]
`);
  appendFileSync(join(copy, 'domain.yml'), `  utter_waits: [{ text: ${REMINDER} }]\nactions: [action_remind]\nintents: [parcel_waits]\n`);
  appendFileSync(join(copy, 'endpoints.yml'), `\naction_endpoint: { url: "${outside.url}/webhook" }\n`);
  const jwt = 'jwt: { issuer: "https://shop", audience: assistant, secret: "${SECRET}" }';
  writeFileSync(join(copy, 'credentials.yml'), `
socketio: { session_persistence: true, jwt_key: "\${SECRET}", stream: true }
websocket: { ${jwt} }
callback: { url: "${outside.url}/replies", signing_secret: "\${SECRET}", ${jwt} }
rest: { ${jwt} }
`);
}

let server;

async function start(port) {
  const env = { ...process.env, SECRET, PATH: dirname(binary) + delimiter + process.env.PATH };
  const store = `sqlite:${join(folder, 'conversations.db')}`;
  const child = spawn(binary, ['run', '--port', String(port), '--store', store, join(folder, 'project')],
    { env, stdio: ['ignore', 'ignore', 'pipe'] });
  const lines = createInterface({ input: child.stderr });
  const log = [];
  const url = await new Promise((found, failed) => {
    lines.on('line', (line) => {
      log.push(line);
      const address = /listening on (http:\/\/[^\s"]+)/.exec(line)?.[1];
      if (address) found(address);
    });
    child.on('exit', () => failed(new Error(`the server ended:\n${log.join('\n')}`)));
  });
  server = { child, url, port: new URL(url).port, log };
}

async function end(signal) {
  server.child.kill(signal);
  await once(server.child, 'exit');
}

function token(subject) {
  const part = (json) => Buffer.from(JSON.stringify(json)).toString('base64url');
  const claims = { iss: 'https://shop', aud: 'assistant', sub: subject, exp: Math.floor(Date.now() / 1000) + 600 };
  const head = `${part({ alg: 'HS256', typ: 'JWT' })}.${part(claims)}`;
  return `${head}.${createHmac('sha256', SECRET).update(head).digest('base64url')}`;
}

// Waits until `find` returns something.
async function until(find, what) {
  const deadline = Date.now() + TIMEOUT;
  for (;;) {
    const found = find();
    if (found) return found;
    assert.ok(Date.now() < deadline, what instanceof Function ? what() : what);
    await new Promise((done) => setTimeout(done, 10));
  }
}

// ---- Clients: each says texts and has the texts that it got, in `texts`, and the buttons of the last one ----

async function socketIo(subject, session, options = {}) {
  const client = { texts: [], events: [], buttons: [] };
  const socket = io(server.url, { auth: { token: token(subject) }, reconnectionDelay: 50, reconnectionDelayMax: 50, forceNew: true, ...options });
  socket.on('connect', () => socket.emit('session_request', { session_id: session }));
  socket.on('bot_uttered', (message) => {
    client.texts.push(message.text);
    client.buttons = message.quick_replies ?? [];
  });
  for (const name of ['bot_message_start', 'bot_message_delta', 'bot_message_end']) {
    socket.on(name, () => client.events.push(name));
  }
  socket.on('error', (error) => client.texts.push(`error: ${JSON.stringify(error)}`));
  await new Promise((done) => socket.once('session_confirm', (id) => { assert.equal(id, session); done(); }));
  client.say = (message) => socket.emit('user_uttered', { message, session_id: session });
  client.close = () => socket.close();
  client.break = () => socket.io.engine.close();
  client.socket = socket;
  return client;
}

// `Own` is the class of the sockets: that of `ws`, or that of Node and of browsers.
async function webSocket(subject, sender, Own = WebSocket) {
  const client = { texts: [], buttons: [], position: undefined, events: [] };
  client.connect = async () => {
    const after = client.position ? `&after=${client.position}` : '';
    const url = `${server.url.replace('http', 'ws')}/webhooks/websocket/connect?sender=${sender}${after}`;
    client.socket = new Own(url, ['segue', `bearer.${token(subject)}`]);
    await new Promise((done, failed) => {
      client.socket.onerror = (error) => failed(error.error ?? error);
      client.socket.onmessage = ({ data }) => {
        const event = JSON.parse(data);
        client.events.push(event.type);
        client.position = event.position ?? client.position;
        if (event.type === 'connected') done();
        if (event.type === 'rejected') client.texts.push(`rejected: ${data}`);
        if (event.type !== 'message' && event.type !== 'message_end') return;
        client.texts.push(event.message.text);
        client.buttons = event.message.buttons ?? [];
      };
    });
  };
  client.say = (message) => client.socket.send(JSON.stringify({ message }));
  client.close = () => client.socket.close();
  await client.connect();
  return client;
}

async function untilTexts(client, expected) {
  await until(() => client.texts.length >= expected.length, () => `got ${JSON.stringify(client.texts)}`);
  assert.deepEqual(client.texts, expected);
}

// Says a text and waits for these replies.
async function talk(client, text, ...expected) {
  client.texts.length = 0;
  client.say(text);
  await untilTexts(client, expected);
}

const tests = {
  async 'socket.io-client: a conversation, buttons, deltas'() {
    for (const transports of [['polling', 'websocket'], ['websocket'], ['polling']]) {
      const client = await socketIo('ada', `talk-${transports}`, { transports });
      await talk(client, QUESTION, FILLER, REPLY);
      assert.ok(client.events.includes('bot_message_delta') && client.events.at(-1) === 'bot_message_end', `${client.events}`);
      client.close();
      const other = await socketIo('ada', `buttons-${transports}`, { transports });
      const buttons = [];
      other.socket.on('bot_uttered', ({ quick_replies }) => buttons.push(...quick_replies ?? []));
      await talk(other, 'Please send a parcel', 'How fast?', ELSE);
      assert.deepEqual(buttons[0], { content_type: 'text', title: 'Express', payload: '/SetSlots(parcel=EX1)' });
      await talk(other, 'track', 'Which parcel?', 'The number stands on your receipt.');
      await talk(other, buttons[0].payload, 'Parcel EX1 is under way.', ELSE);
      other.close();
    }
  },

  async 'socket.io-client: a client that comes back gets what it has missed, once'() {
    const client = await socketIo('ada', 'missed');
    await new Promise((done) => client.socket.emit('user_uttered', { message: 'remind me', session_id: 'missed' }, done));
    client.close();
    // The reminder is due while nobody is there.
    await new Promise((done) => setTimeout(done, 1500));
    const again = await socketIo('ada', 'missed');
    await untilTexts(again, [REMINDER]);
    again.close();
    const third = await socketIo('ada', 'missed');
    // The transport breaks; the library connects again, and a reminder reaches it.
    const confirmed = new Promise((done) => third.socket.once('session_confirm', done));
    third.break();
    await confirmed;
    await talk(third, 'remind me', REMINDER);
    third.close();
  },

  async 'socket.io-client: a reminder reaches a client that has no request open, and only its own'() {
    const [ada, bob] = [await socketIo('ada', 'one'), await socketIo('bob', 'one')];
    await talk(ada, 'remind me', REMINDER);
    assert.deepEqual(bob.texts, []);
    ada.close();
    bob.close();
  },

  async 'socket.io-client: no token, no connection'() {
    const socket = io(server.url, { forceNew: true, reconnection: false, auth: { token: 'wrong' } });
    const error = await new Promise((done) => { socket.on('connect_error', done); socket.on('connect', () => done(null)); });
    assert.match(error.message, /malformed|token/);
    socket.close();
  },

  async 'ws: a conversation, a break, a reminder'() {
    const client = await webSocket('ada', 'talk');
    await talk(client, QUESTION, FILLER, REPLY);
    assert.ok(client.events.includes('message_delta'));
    await talk(client, 'Please send a parcel', 'How fast?', 'Shall we go on with ask clerk?');
    assert.equal(client.buttons[0].title, 'Yes');
    client.close();
  },

  async 'ws: what is missed in a break comes once, and a reminder reaches an idle client'() {
    const client = await webSocket('ada', 'break');
    client.say(QUESTION);
    await until(() => client.texts.length, 'no filler');
    client.socket.terminate();
    // What was missed while it was away, once, in order, from its position.
    const had = [...client.texts];
    await new Promise((done) => setTimeout(done, 500));
    client.texts.length = 0;
    await client.connect();
    await untilTexts(client, [FILLER, REPLY].slice(had.length));
    client.close();
    const reminded = await webSocket('ada', 'reminded');
    await talk(reminded, 'remind me', REMINDER);
    reminded.close();
  },

  async 'ws: the same sender of another caller is another conversation'() {
    const [ada, bob] = [await webSocket('ada', 'own'), await webSocket('bob', 'own')];
    for (const client of [ada, bob]) await talk(client, 'track', 'Which parcel?\n\nThe number stands on your receipt.');
    await talk(ada, 'number 7', 'Parcel 7 is under way.', ELSE);
    assert.equal(bob.texts.length, 1);
    const stranger = new WebSocket(`${server.url.replace('http', 'ws')}/webhooks/websocket/connect?sender=own`);
    const [, response] = await once(stranger, 'unexpected-response');
    assert.equal(response.statusCode, 401);
    const page = new WebSocket(`${server.url.replace('http', 'ws')}/webhooks/websocket/connect?sender=own`,
      ['segue', `bearer.${token('ada')}`], { origin: 'https://evil.example' });
    const [, forbidden] = await once(page, 'unexpected-response');
    assert.equal(forbidden.statusCode, 403);
    ada.close();
    bob.close();
  },

  async 'the callback channel posts signed replies, also those of a reminder'() {
    const say = (sender, message) => fetch(`${server.url}/webhooks/callback/webhook`, { method: 'POST',
      headers: { authorization: `Bearer ${token('ada')}` }, body: JSON.stringify({ sender, message }) });
    for (const [sender, message, expected] of [['one', QUESTION, [FILLER, REPLY]], ['two', 'remind me', [REMINDER]]]) {
      outside.replies.length = 0;
      const response = await say(sender, message);
      assert.equal(await response.text(), 'success');
      await until(() => outside.replies.length >= expected.length, () => JSON.stringify(outside.replies));
      assert.deepEqual(outside.replies.map(({ body }) => JSON.parse(body).text), expected);
      for (const { headers, body } of outside.replies) {
        assert.equal(headers['x-signature'], `sha256=${createHmac('sha256', SECRET).update(body).digest('hex')}`);
        assert.equal(JSON.parse(body).recipient_id, sender);
      }
    }
  },

  async 'python-socketio: a conversation, a reminder, a reconnection'() {
    const child = spawn(python, [join(dirname(new URL(import.meta.url).pathname), 'socketio_client.py'), server.url, token('python')],
      { stdio: ['ignore', 'inherit', 'inherit'] });
    const [code] = await once(child, 'exit');
    assert.equal(code, 0);
  },

  async 'a reply is there once after the server is killed in the middle of it'() {
    const client = await socketIo('ada', 'killed', { transports: ['websocket'] });
    client.say(QUESTION);
    await until(() => client.texts.length, 'no filler');
    await end('SIGKILL');
    await start(server.port);
    await until(() => client.texts.includes(REPLY), () => JSON.stringify(client.texts));
    // Nothing comes after it.
    await talk(client, 'track', 'Which parcel?', 'The number stands on your receipt.');
    client.close();
  },

  async 'sockets are closed when the server stops, and the server ends'() {
    const [client, other] = [await webSocket('ada', 'stopped'), await socketIo('ada', 'stopped', { reconnection: false })];
    const closed = once(client.socket, 'close');
    const disconnected = new Promise((done) => other.socket.once('disconnect', done));
    const stopped = Date.now();
    await end('SIGTERM');
    const [code] = await closed;
    assert.equal(code, 1001);
    await disconnected;
    assert.ok(Date.now() - stopped < 5_000, `${Date.now() - stopped} ms`);
  },
};

let failed = 0;
try {
  prepare();
  await start(0);
  const only = process.env.ONLY;
  for (const [name, test] of Object.entries(tests).filter(([name]) => !only || name.includes(only))) {
    try {
      await test();
      console.log(`ok      ${name}`);
    } catch (error) {
      failed += 1;
      console.log(`failed  ${name}\n${error.stack}\n${server.log.slice(-8).join('\n')}`);
      if (server.child.exitCode !== null || server.child.signalCode !== null) await start(server.port);
    }
  }
} finally {
  server?.child.kill('SIGKILL');
  outside.close();
  rmSync(folder, { recursive: true, force: true });
}
process.exit(failed ? 1 : 0);
