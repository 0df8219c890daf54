// Messages on their way to the server. They are sent one after the other, so that they arrive in order. Each is repeated with the same id
// until the server has answered; the id makes sure that nothing runs twice. They are stored, so that a reload loses none.
import { ownTab } from './storage.js';
import { Pause, asked, growing } from './pause.js';

// How long a request may outlast its turn.
const GRACE = 3000;

export class Outbox {
  #entries = [];
  #key;
  #send;
  #on;
  #pause = new Pause();
  #wake = () => { if (!document.hidden) this.#pause.end(); };
  #isRunning = false;
  #isHeld = false;
  #isClosed = false;
  // `send(entry, signal)` sends the request. The callbacks: `state(entry)` when `entry.state` changes; `denied()` for status 401.
  constructor(key, send, callbacks) {
    this.#key = key;
    this.#send = send;
    this.#on = callbacks;
    this.#restore();
    addEventListener('online', this.#wake);
    document.addEventListener('visibilitychange', this.#wake);
  }
  get entries() {
    return [...this.#entries];
  }
  add(entry) {
    this.#entries.push(entry);
    this.#set(entry, 'queued');
    this.run();
  }
  retry(entry) {
    if (!this.#entries.includes(entry)) this.#entries.push(entry);
    this.#set(entry, 'queued');
    this.run();
  }
  // The turn of a message is finished: nothing is left to send.
  finished(id) {
    const entry = this.#entries.find((one) => one.id === id);
    if (!entry || entry.state === 'failed') return;
    this.#remove(entry);
    this.#pause.end();
    setTimeout(() => entry.controller?.abort(), GRACE);
  }
  drop(entry) {
    this.#remove(entry);
    this.#set(entry, 'sent');
  }
  close() {
    this.#isClosed = true;
    this.#pause.end();
    removeEventListener('online', this.#wake);
    document.removeEventListener('visibilitychange', this.#wake);
  }
  clear() {
    this.close();
    this.#entries = [];
    ownTab.remove(this.#key);
  }
  // Sends what waits. Called again after a new token.
  async run() {
    this.#isHeld = false;
    if (this.#isRunning) return;
    this.#isRunning = true;
    for (let entry = this.#next(); entry; entry = this.#next()) await this.#deliver(entry);
    this.#isRunning = false;
  }
  #next() {
    if (this.#isHeld || this.#isClosed) return null;
    return this.#entries.find((entry) => entry.state !== 'failed');
  }
  async #deliver(entry) {
    for (let count = 0; !this.#isHeld && !this.#isClosed && this.#entries.includes(entry); count += 1) {
      this.#set(entry, 'sending');
      const pause = await this.#attempt(entry);
      if (pause === null || !this.#entries.includes(entry)) return;
      this.#set(entry, 'waiting');
      await this.#pause.wait(pause === 0 ? growing(count) : pause);
    }
  }
  // Returns the pause before the next attempt; 0: a growing one; `null`: no more attempts.
  async #attempt(entry) {
    entry.controller = new AbortController();
    try {
      const response = await this.#send(entry, entry.controller.signal);
      if (response.status === 429 || response.status === 503) return asked(response) ?? 0;
      if (response.status === 401) return this.#hold(entry);
      // The body is read to its end, so that the connection can be used again.
      await response.arrayBuffer();
      if (response.ok) this.drop(entry);
      else this.#fail(entry, response);
      return null;
    } catch {
      return 0;
    }
  }
  #hold(entry) {
    this.#isHeld = true;
    this.#set(entry, 'queued');
    this.#on.denied();
    return null;
  }
  #fail(entry, response) {
    entry.status = response.status;
    entry.code = response.headers.get('x-turn-error');
    this.#set(entry, 'failed');
  }
  #set(entry, state) {
    entry.state = state;
    this.#store();
    this.#on.state(entry);
  }
  #remove(entry) {
    this.#entries = this.#entries.filter((one) => one !== entry);
    this.#store();
  }
  #store() {
    if (this.#isClosed) return;
    const stored = this.#entries.map(({ id, text, title, state, status, code }) => ({ id, text, title, state, status, code }));
    if (stored.length > 0) ownTab.set(this.#key, JSON.stringify(stored));
    else ownTab.remove(this.#key);
  }
  #restore() {
    try { this.#entries = JSON.parse(ownTab.get(this.#key)) ?? []; } catch { /* not a list: nothing is restored */ }
  }
}
