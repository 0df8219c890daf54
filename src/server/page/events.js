// The event stream of a conversation: server-sent events over fetch, with reconnection.
// EventSource cannot be used: it sends no `Authorization`.
import { Pause, asked, growing } from './pause.js';

// The longest silence of a living connection. The server sends heartbeats more often.
const SILENCE = 60_000;
// A tab that has been hidden for so long disconnects: a browser allows six connections to a server, for all tabs together.
const HIDDEN = 60_000;
// The longest time of a timer.
const FOREVER = 2 ** 31 - 1;

// Splits text into events. A chunk may end anywhere.
export class SseParser {
  #rest = '';
  #event = { data: [] };
  #onEvent;
  constructor(onEvent) {
    this.#onEvent = onEvent;
  }
  push(chunk) {
    const lines = (this.#rest + chunk).split(/\r\n|\n|\r(?!$)/);
    this.#rest = lines.pop();
    lines.forEach((line) => this.#line(line));
  }
  #line(line) {
    if (line === '') return this.#dispatch();
    const colon = line.indexOf(':');
    if (colon === 0) return undefined;
    const field = colon < 0 ? line : line.slice(0, colon);
    const value = colon < 0 ? '' : line.slice(colon + 1).replace(/^ /, '');
    if (field === 'data') this.#event.data.push(value);
    if (field === 'id') this.#event.id = value;
    return undefined;
  }
  #dispatch() {
    const { id, data } = this.#event;
    this.#event = { data: [] };
    if (data.length > 0) this.#onEvent(id, data.join('\n'));
  }
}

// Reads the stream until `stop`. `open(after, signal)` sends the request. The callbacks: `event(object)`; `state('open' | 'broken')`;
// `denied(status)` for 401 and 403, after which `start` must be called again.
export class EventReader {
  #open;
  #on;
  #after = '0';
  #controller = null;
  #pause = new Pause();
  #failures = 0;
  #hiddenTimer = 0;
  // Ends the connection of a hidden tab.
  #sleep = null;
  #isSleeping = false;
  constructor(open, callbacks) {
    this.#open = open;
    this.#on = callbacks;
  }
  start() {
    if (this.#controller) return;
    this.#controller = new AbortController();
    const { signal } = this.#controller;
    addEventListener('online', () => this.#hurry(), { signal });
    document.addEventListener('visibilitychange', () => this.#visibility(), { signal });
    this.#run(signal);
  }
  stop() {
    this.#controller?.abort();
    this.#controller = null;
    clearTimeout(this.#hiddenTimer);
    this.#pause.end();
  }
  #hurry() {
    this.#failures = 0;
    this.#pause.end();
  }
  #visibility() {
    clearTimeout(this.#hiddenTimer);
    if (document.hidden) this.#hiddenTimer = setTimeout(() => this.#sleep?.(), HIDDEN);
    else this.#hurry();
  }
  async #run(signal) {
    while (!signal.aborted) {
      let wanted = null;
      try {
        wanted = await this.#connection(signal);
      } catch { /* the connection broke */ }
      if (signal.aborted) return;
      if (!this.#isSleeping) this.#on.state('broken');
      await this.#pause.wait(this.#isSleeping ? FOREVER : wanted ?? growing(this.#failures++));
      this.#isSleeping = false;
    }
  }
  // One connection. Returns the pause that the server wants, or `null`.
  async #connection(stopped) {
    const own = new AbortController();
    const end = () => own.abort();
    stopped.addEventListener('abort', end, { signal: own.signal });
    this.#sleep = () => { this.#isSleeping = true; end(); };
    try {
      const response = await this.#open(this.#after, own.signal);
      if (response.status === 401 || response.status === 403) {
        this.stop();
        this.#on.denied(response.status);
        return null;
      }
      if (!response.ok || !response.body) return asked(response);
      this.#on.state('open');
      await this.#read(response.body.getReader(), end);
    } finally {
      this.#sleep = null;
      end();
    }
    return null;
  }
  async #read(reader, end) {
    const parser = new SseParser((id, data) => this.#event(id, data));
    const decoder = new TextDecoder();
    for (;;) {
      const watchdog = setTimeout(end, SILENCE);
      const { done, value } = await reader.read().finally(() => clearTimeout(watchdog));
      if (done) return;
      this.#failures = 0;
      parser.push(decoder.decode(value, { stream: true }));
    }
  }
  #event(id, data) {
    let event;
    try { event = JSON.parse(data); } catch { return; }
    if (event && typeof event === 'object') this.#on.event(event);
    if (id) this.#after = id;
  }
}
