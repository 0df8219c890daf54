// The chat page and the widget in a browser (Chromium), against the real server with the project `courier`.
// The arguments are the binary `segue`, the folder `tests/projects/courier` and the folder node_modules. `CHROMIUM` names the browser if it
// is not in one of the usual places. Prints a line for each test; the exit status is 1 if one fails.
import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { cpSync, existsSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { createServer } from 'node:http';
import { createRequire } from 'node:module';
import { tmpdir } from 'node:os';
import { delimiter, dirname, join, resolve } from 'node:path';
import { createInterface } from 'node:readline';

const [binary, project, nodeModules] = process.argv.slice(2).map((path) => resolve(path));
const modules = createRequire(join(nodeModules, 'package.json'));
const { chromium } = modules('playwright-core');
const AXE = readFileSync(modules.resolve('axe-core/axe.min.js'), 'utf8');
const BROWSERS = [process.env.CHROMIUM, '/usr/bin/chromium', '/usr/bin/chromium-browser', '/usr/bin/google-chrome'];
const BROWSER_FLAGS = ['--no-sandbox', '--disable-gpu', '--disable-quic', '--no-first-run', '--disable-background-networking',
  '--disable-component-update', '--disable-sync'];
// The longest wait for a condition.
const TIMEOUT = 30_000;

// The reply of the agent, long and slow enough to be interrupted. The filler is the text that comes with its tool call.
const FILLER = 'One moment, I look into the timetable.';
const REPLY = `The depot has ports. ${'A boat goes to each of them in the morning and in the evening. '.repeat(10)}That is **all**.`;
const SHOWN = REPLY.replaceAll('**', '');
const QUESTION = 'What does the depot have?';

// ---- The server ----

const folder = mkdtempSync(join(tmpdir(), 'segue-page-'));
let server;

// Copies the project, slows its agent down and lists one origin.
function prepare(origin) {
  cpSync(project, join(folder, 'project'), { recursive: true });
  const script = join(folder, 'project/script.yml');
  const text = readFileSync(script, 'utf8');
  const old = '    say: The depot has ports.\n';
  assert.ok(text.includes(old), 'the script of the project has changed');
  writeFileSync(script, text.replace(old, `    say: '${REPLY}'\n    pace: { first: 100ms, every: 60ms, piece: word }\n`));
  writeFileSync(join(folder, 'project/credentials.yml'), `rest:\n  allowed_origins: ["${origin}"]\n`);
}

// Starts `segue run`; port 0 takes a free one. The agent's tools come from `segue demo`, so the binary must be in the search path.
async function start(port) {
  const store = `sqlite:${join(folder, 'conversations.db')}`;
  const env = { ...process.env, PATH: dirname(binary) + delimiter + process.env.PATH };
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
  return { child, url, port: new URL(url).port };
}

// Ends the server as a crash would.
async function kill() {
  if (server.child.exitCode !== null || server.child.signalCode !== null) return;
  server.child.kill('SIGKILL');
  await once(server.child, 'exit');
}

// ---- Another web page with the widget ----

async function foreignPage() {
  const page = createServer((request, response) => {
    response.setHeader('content-type', 'text/html');
    response.end(`<!doctype html><html lang="en"><title>Shop</title><link rel="icon" href="data:,">
      <style>* { font: 30px cursive !important; color: red !important; display: block !important }</style>
      <body><main><h1>Shop</h1></main><script src="${server.url}/chat/widget.js" data-title="Help" async></script></body></html>`);
  });
  page.listen(0, '127.0.0.1');
  await once(page, 'listening');
  return { url: `http://127.0.0.1:${page.address().port}`, close: () => page.close() };
}

// ---- The browser ----

let browser;

// A new browser profile with the page open. `problems` are errors of its console; `hosts` are the hosts of its requests.
async function visit(url = server.url) {
  const context = await browser.newContext({ viewport: { width: 900, height: 700 } });
  context.setDefaultTimeout(TIMEOUT);
  const visitor = { context, problems: [], hosts: new Set() };
  context.on('request', (request) => { if (!request.url().startsWith('data:')) visitor.hosts.add(new URL(request.url()).origin); });
  context.on('console', (message) => { if (message.type() === 'error') visitor.problems.push(message.text()); });
  context.on('weberror', (error) => visitor.problems.push(String(error.error())));
  visitor.page = await open(visitor, url);
  return visitor;
}

async function open(visitor, url = server.url) {
  const page = await visitor.context.newPage();
  await page.goto(url);
  return page;
}

async function say(page, text) {
  await page.locator('textarea').fill(text);
  await page.locator('textarea').press('Enter');
}

// The texts of the conversation, as they are shown: `[role, text]`.
function shown(page) {
  return page.evaluate(() => {
    const items = [...document.querySelector('segue-chat').shadowRoot.querySelectorAll('.items .item')];
    const role = (item) => ['user', 'filler', 'note', 'reply'].find((name) => item.classList.contains(name));
    const text = (item) => item.querySelector('.said')?.textContent ?? item.querySelector('.bubble').textContent;
    return items.map((item) => [role(item), text(item)]);
  });
}

// Waits until the conversation is exactly this.
async function untilShown(page, expected) {
  const deadline = Date.now() + TIMEOUT;
  let last;
  do {
    last = await shown(page);
    if (JSON.stringify(last) === JSON.stringify(expected)) return;
    await page.evaluate(() => new Promise(requestAnimationFrame));
  } while (Date.now() < deadline);
  assert.deepEqual(last, expected);
}

// Waits until a part of the reply is shown, and not yet all of it.
async function untilPartial(page) {
  await page.waitForFunction((whole) => {
    const bubbles = [...document.querySelector('segue-chat').shadowRoot.querySelectorAll('.reply:not(.filler, .typing) .bubble')];
    const text = bubbles.at(-1)?.textContent.trim() ?? '';
    return text.length > 30 && text.length < whole.length - 200 && whole.startsWith(text);
  }, SHOWN, { polling: 'raf', timeout: TIMEOUT });
}

const untilIdle = (page) => page.locator('.action:not(.stop)').waitFor();

// Fails if axe-core finds a violation.
async function checkAccessibility(page) {
  const violations = await page.evaluate(async (source) => {
    if (!window.axe) (0, eval)(source);
    const { violations: found } = await window.axe.run(document, { resultTypes: ['violations'] });
    return found.map(({ id, nodes }) => `${id}: ${nodes.map((node) => node.target.join(' ')).join(', ')}`);
  }, AXE);
  assert.deepEqual(violations, []);
}

const CONVERSATION = [['user', QUESTION], ['filler', FILLER], ['reply', SHOWN]];

// ---- The tests ----

const tests = {
  async 'a reply is streamed after a filler'() {
    const { context, page, problems, hosts } = await visit();
    await page.locator('.empty').waitFor();
    await page.getByText('Automated assistant').waitFor();
    await checkAccessibility(page);
    await say(page, QUESTION);
    await page.locator('.filler').waitFor();
    await untilPartial(page);
    await checkAccessibility(page);
    await untilShown(page, CONVERSATION);
    await untilIdle(page);
    await checkAccessibility(page);
    assert.deepEqual(problems, []);
    assert.deepEqual([...hosts], [server.url]);
    await context.close();
  },

  async 'a pressed button shows its title and is marked, also after a reload'() {
    const { context, page, problems } = await visit();
    await say(page, 'Please send a parcel');
    await page.getByRole('button', { name: 'Express' }).click();
    for (const isReloaded of [false, true]) {
      if (isReloaded) await page.reload();
      await page.locator('.choices .chosen', { hasText: 'Express' }).waitFor();
      await untilIdle(page);
      const said = (await shown(page)).filter(([role]) => role === 'user').map(([, text]) => text);
      assert.deepEqual(said, ['Please send a parcel', 'Express']);
      assert.equal(await page.locator('.choices button:enabled').count(), 0);
      await checkAccessibility(page);
    }
    assert.deepEqual(problems, []);
    await context.close();
  },

  async 'two tabs show the same conversation'() {
    const visitor = await visit();
    const other = await open(visitor);
    await other.locator('.empty').waitFor();
    await say(visitor.page, QUESTION);
    await untilPartial(other);
    await untilShown(visitor.page, CONVERSATION);
    await untilShown(other, CONVERSATION);
    assert.deepEqual(visitor.problems, []);
    await visitor.context.close();
  },

  async 'a reload in the middle of a reply loses nothing'() {
    const { context, page, problems } = await visit();
    await say(page, QUESTION);
    await untilPartial(page);
    await page.reload();
    await untilShown(page, CONVERSATION);
    await untilIdle(page);
    assert.deepEqual(await shown(page), CONVERSATION);
    assert.deepEqual(problems, []);
    await context.close();
  },

  async 'a crash of the server in the middle of a reply loses nothing'() {
    const visitor = await visit();
    const { context, page } = visitor;
    const other = await open(visitor);
    await other.locator('.empty').waitFor();
    await say(page, QUESTION);
    await untilPartial(page);
    await kill();
    await page.getByText('Reconnecting…').waitFor();
    await checkAccessibility(page);
    server = await start(server.port);
    for (const tab of [page, other]) {
      await untilShown(tab, CONVERSATION);
      await untilIdle(tab);
      await tab.getByText('Reconnecting…').waitFor({ state: 'hidden' });
      assert.deepEqual(await shown(tab), CONVERSATION);
    }
    await context.close();
  },

  async 'a message that is written while the server is down is sent later'() {
    const { context, page } = await visit();
    await page.locator('.empty').waitFor();
    await kill();
    await page.getByText('Reconnecting…').waitFor();
    await say(page, QUESTION);
    await page.getByText('Not sent yet').waitFor();
    server = await start(server.port);
    await untilShown(page, CONVERSATION);
    await context.close();
  },

  async 'Escape stops a reply'() {
    const { context, page, problems } = await visit();
    await say(page, QUESTION);
    await untilPartial(page);
    await page.keyboard.press('Escape');
    await page.locator('.state', { hasText: 'Stopped' }).waitFor();
    await untilIdle(page);
    const [, text] = (await shown(page)).at(-1);
    assert.ok(text.length < SHOWN.length && SHOWN.startsWith(text.trim()), text);
    await checkAccessibility(page);
    assert.deepEqual(problems, []);
    await context.close();
  },

  async 'the widget chats on a listed page'() {
    const { context, page, problems } = await visit(listed.url);
    await page.locator('segue-launcher .launch').click();
    await page.locator('.empty').waitFor();
    await page.keyboard.type(QUESTION);
    await page.keyboard.press('Enter');
    await page.locator('.filler').waitFor();
    await page.locator('.reply:not(.filler)', { hasText: 'That is all.' }).waitFor();
    await untilIdle(page);
    const font = await page.locator('.filler .bubble').evaluate((node) => getComputedStyle(node).fontFamily);
    assert.ok(!font.includes('cursive'), 'the styles of the page do not reach the chat');
    await page.keyboard.press('Escape');
    await page.locator('segue-launcher .panel').waitFor({ state: 'hidden' });
    assert.deepEqual(problems, []);
    await context.close();
  },

  async 'the widget does not appear on a page that is not listed'() {
    const { context, page } = await visit('about:blank');
    const warning = page.waitForEvent('console', { predicate: (message) => message.text().includes('allowed_origins') });
    await page.goto(unlisted.url);
    await warning;
    assert.equal(await page.locator('segue-launcher').count(), 0);
    await context.close();
  },
};

// ---- Run ----

let listed;
let unlisted;
let failures = 0;
try {
  // The pages refer to the server when they are requested, so they can start before it.
  listed = await foreignPage();
  unlisted = await foreignPage();
  prepare(listed.url);
  server = await start(0);
  browser = await chromium.launch({ executablePath: BROWSERS.find((path) => path && existsSync(path)), args: BROWSER_FLAGS });
  for (const [name, test] of Object.entries(tests)) {
    try {
      await test();
      console.log(`ok: ${name}`);
    } catch (error) {
      failures += 1;
      console.log(`FAILED: ${name}\n${error.stack}`);
    }
  }
} finally {
  await browser?.close();
  listed?.close();
  unlisted?.close();
  if (server) await kill();
  rmSync(folder, { recursive: true, force: true });
}
console.log(failures === 0 ? 'all tests pass' : `${failures} tests fail`);
process.exitCode = failures === 0 ? 0 : 1;
