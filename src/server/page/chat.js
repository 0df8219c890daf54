// The custom element `<segue-chat>`: one chat with an assistant.
//
// Attributes: `server` (the address of the server; by default the one that this module comes from), `data-title`, `data-sender` (the id of
// the conversation), `data-token`, `data-window` (the element fills the window). Events: `segue-title` (detail: the title of the
// assistant), `segue-message` (a new reply), `segue-close` (the person wants to close the chat; only with `data-closable`).
import { Api } from './api.js';
import { Composer } from './composer.js';
import { el, icon } from './dom.js';
import { Log } from './log.js';
import { ask, tokenForm } from './panels.js';
import { growing } from './pause.js';
import { Session } from './session.js';
import { sheet } from './sheet.js';
import { newId, ownTab, shared } from './storage.js';
import { TEXTS } from './texts.js';

const SHEET = 'chat.css';
const PLUS = 'M10 4.5v11M4.5 10h11';
const CROSS = 'M5.5 5.5l9 9M14.5 5.5l-9 9';

class SegueChat extends HTMLElement {
  #root;
  #parts;
  #api;
  #session = null;
  #sender = null;
  #abort = null;
  #hasAskedForToken = false;

  connectedCallback() {
    this.#abort = new AbortController();
    this.#root ??= this.attachShadow({ mode: 'open' });
    this.#build();
    const { signal } = this.#abort;
    addEventListener('storage', (event) => this.#otherTab(event), { signal });
    if (this.hasAttribute('data-window')) followViewport(this, signal);
    this.#start(signal);
  }
  disconnectedCallback() {
    this.#abort.abort();
    this.#session?.close();
    this.#session = null;
    this.#root.replaceChildren();
  }
  focus() {
    this.#parts?.composer.focus();
  }

  get #server() {
    return new URL(this.getAttribute('server') || '/', import.meta.url).origin;
  }
  #key(name) {
    return `segue:${this.#server}:${name}`;
  }

  #build() {
    const log = new Log({ choose: (choice) => this.#send(choice.payload, choice.title), retry: (entry) => this.#session.retry(entry) });
    const composer = new Composer({ send: (text) => this.#send(text), stop: () => this.#session?.stop() });
    const token = tokenForm((value) => this.#useToken(value));
    const status = el('p', { class: 'status', role: 'status' });
    const main = el('div', { class: 'main' }, ...log.nodes, composer.node);
    const frame = el('div', { class: 'frame', keydown: (event) => this.#keydown(event) }, this.#header(), status, main, token.node);
    this.#parts = { log, composer, token, status, main, frame };
    this.#root.replaceChildren(frame);
  }
  #header() {
    const name = el('h1', {}, this.dataset.title ?? '');
    const tools = el('div', { class: 'tools' });
    if (!this.dataset.sender) tools.append(tool('new', TEXTS.newConversation, PLUS, () => this.#newConversation()));
    if (this.hasAttribute('data-closable')) tools.append(tool('close', TEXTS.close, CROSS, () => this.#close()));
    return el('header', {}, el('div', { class: 'names' }, name, el('p', { class: 'label' }, TEXTS.label)), tools);
  }

  async #start(signal) {
    const styles = this.#untilLoaded(() => sheet(SHEET), signal);
    this.#api = new Api(this.#server);
    const config = this.#untilLoaded(() => this.#api.config(), signal);
    const [loaded, { title, requires_token }] = await Promise.all([styles, config]);
    if (signal.aborted) return;
    this.#root.adoptedStyleSheets = [loaded];
    this.#setTitle(this.dataset.title ?? title ?? TEXTS.title);
    this.#api.token = this.dataset.token ?? ownTab.get(this.#key('token'));
    this.#parts.frame.classList.add('ready');
    this.#open(this.#storedSender(), requires_token);
  }
  // Repeats a request until it succeeds.
  async #untilLoaded(load, signal) {
    for (let count = 0; ; count += 1) {
      try {
        return await load();
      } catch {
        if (signal.aborted) return {};
        if (this.#parts.frame.classList.contains('ready')) this.#connection('broken');
        await new Promise((resolve) => { setTimeout(resolve, growing(count)); });
      }
    }
  }
  #setTitle(title) {
    this.#root.querySelector('h1').textContent = title;
    this.dispatchEvent(new CustomEvent('segue-title', { detail: title }));
  }

  #storedSender() {
    const stored = this.dataset.sender || shared.get(this.#key('conversation')) || newId();
    if (!this.dataset.sender) shared.set(this.#key('conversation'), stored);
    return stored;
  }
  #open(sender, needsToken = false) {
    const { log, composer } = this.#parts;
    this.#sender = sender;
    log.clear();
    composer.useDraft(`${this.#key('draft')}:${sender}`);
    this.#session = new Session(this.#api, sender, {
      item: (item, what) => this.#item(item, what),
      turn: (isRunning, isStreaming) => this.#turn(isRunning, isStreaming),
      connection: (state) => this.#connection(state),
      live: () => this.#live(),
      denied: () => this.#askForToken(),
    });
    this.#turn(false, false);
    if (needsToken && !this.#api.token) this.#askForToken();
    else this.#session.start();
    if (!needsToken && this.hasAttribute('data-window') && hasPointer()) composer.focus();
  }
  #item(item, what) {
    const { log } = this.#parts;
    log.itemChanged(item, what);
    log.empty.hidden = true;
    if (what === 'complete' && log.isLive) this.dispatchEvent(new CustomEvent('segue-message'));
  }
  #turn(isRunning, isStreaming) {
    const { composer, log } = this.#parts;
    log.afterRendering(() => {
      composer.setRunning(isRunning);
      log.typing.hidden = !isRunning || isStreaming;
    });
  }
  #live() {
    const { log } = this.#parts;
    log.isLive = true;
    log.empty.hidden = !this.#session.isEmpty;
  }
  #connection(state) {
    const { status } = this.#parts;
    const text = { broken: TEXTS.reconnecting, forbidden: TEXTS.forbidden }[state] ?? '';
    if (status.textContent !== text) status.replaceChildren(...(text ? [el('span', {}, text)] : []));
    status.classList.toggle('shown', text !== '');
    if (state === 'open') this.#hasAskedForToken = false;
  }

  #send(text, title) {
    if (!this.#session) return;
    this.#session.send(text, title);
    this.#parts.log.toEnd();
    // The pressed button is disabled now. On a phone, the focus would open the keyboard.
    if (title !== undefined && hasPointer()) this.#parts.composer.focus();
  }
  async #newConversation() {
    if (!this.#session) return;
    const question = { title: TEXTS.newQuestion, text: TEXTS.newExplanation, agree: TEXTS.startNew };
    if (!this.#session.isEmpty && !await ask(this.#root, this.#parts.frame, question)) return;
    const sender = newId();
    shared.set(this.#key('conversation'), sender);
    this.#session.discard();
    this.#open(sender);
    this.#parts.composer.focus();
  }
  // Another tab has begun a new conversation.
  #otherTab({ key, newValue }) {
    if (key !== this.#key('conversation') || !newValue || newValue === this.#sender || this.dataset.sender || !this.#session) return;
    this.#session.discard();
    this.#open(newValue);
  }

  #askForToken() {
    const { token, main } = this.#parts;
    main.hidden = true;
    token.show(this.#hasAskedForToken || Boolean(this.#api.token));
    this.#hasAskedForToken = true;
  }
  #useToken(value) {
    const { token, main, composer } = this.#parts;
    this.#api.token = value;
    ownTab.set(this.#key('token'), value);
    token.node.hidden = true;
    main.hidden = false;
    composer.focus();
    this.#session.start();
  }

  #keydown(event) {
    if (event.key !== 'Escape' || event.isComposing) return;
    event.preventDefault();
    event.stopPropagation();
    if (this.#session?.isRunning) this.#session.stop();
    else this.#close();
  }
  #close() {
    if (this.hasAttribute('data-closable')) this.dispatchEvent(new CustomEvent('segue-close'));
  }
}

// Whether the device has a mouse or the like.
function hasPointer() {
  return matchMedia('(hover: hover)').matches;
}

function tool(name, text, path, click) {
  return el('button', { type: 'button', class: name, 'aria-label': text, title: text, click }, icon(path), el('span', { 'aria-hidden': 'true' }, text));
}

// The height of the visible part of the window, without the keyboard of a phone.
function followViewport(host, signal) {
  const viewport = window.visualViewport;
  if (!viewport) return;
  const follow = () => {
    const isZoomed = viewport.scale > 1.01;
    host.style.setProperty('--visible-height', isZoomed ? '100dvh' : `${viewport.height}px`);
    host.style.setProperty('--visible-top', isZoomed ? '0px' : `${viewport.offsetTop}px`);
  };
  viewport.addEventListener('resize', follow, { signal });
  viewport.addEventListener('scroll', follow, { signal });
  follow();
}

if (!customElements.get('segue-chat')) customElements.define('segue-chat', SegueChat);
