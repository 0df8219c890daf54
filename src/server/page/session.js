// A conversation with the server: joins its state, the event stream and the messages on their way. It knows nothing of the DOM.
import { Conversation } from './conversation.js';
import { EventReader } from './events.js';
import { Outbox } from './outbox.js';
import { newId } from './storage.js';

// The silence after which the events of the past are taken as complete.
const QUIET = 400;

export class Session {
  #api;
  #sender;
  #on;
  #quiet = 0;
  // The callbacks: `item(item, what)`, `turn(isRunning, isStreaming)`, `connection(state)`, `live()`, `denied()`.
  constructor(api, sender, on) {
    this.#api = api;
    this.#sender = sender;
    this.#on = on;
    this.conversation = new Conversation((item, what) => this.#item(item, what), (id) => this.#turn(id));
    this.reader = new EventReader((after, signal) => api.events(sender, after, signal), {
      event: (event) => this.#event(event),
      state: (state) => this.#state(state),
      denied: (status) => this.#denied(status),
    });
    this.outbox = new Outbox(`segue:outbox:${sender}`, (entry, signal) => api.send(sender, entry, signal), {
      state: (entry) => this.conversation.entryChanged(entry),
      denied: () => this.#denied(401),
    });
    this.outbox.entries.forEach((entry) => this.conversation.addPending(entry));
  }
  get isEmpty() {
    return this.conversation.isEmpty;
  }
  get isRunning() {
    return this.conversation.turn !== null;
  }
  start() {
    this.reader.start();
    this.outbox.run();
  }
  close() {
    clearTimeout(this.#quiet);
    this.reader.stop();
    this.outbox.close();
  }
  // Forgets what is on its way.
  discard() {
    this.close();
    this.outbox.clear();
  }
  send(text, title) {
    const entry = { id: newId(), text, title, state: 'queued' };
    this.conversation.addPending(entry);
    this.outbox.add(entry);
  }
  // A message that the server has already shown had a turn: it is a new message then, because an id runs only once.
  retry(entry) {
    if (!this.conversation.isConfirmed(entry.id)) return this.outbox.retry(entry);
    this.outbox.drop(entry);
    return this.send(entry.text, entry.title);
  }
  async stop() {
    const { turn } = this.conversation;
    try {
      const { stopped } = await this.#api.stop(this.#sender);
      if (!stopped && this.conversation.turn === turn) this.conversation.endTurn();
    } catch { /* the person can press the button again */ }
  }
  #item(item, what) {
    this.#on.item(item, what);
    this.#on.turn(this.isRunning, this.conversation.isStreaming);
  }
  #turn(finishedMessage) {
    if (finishedMessage) this.outbox.finished(finishedMessage);
    this.#on.turn(this.isRunning, this.conversation.isStreaming);
  }
  #event(event) {
    this.conversation.apply(event);
    this.#waitForQuiet();
  }
  #state(state) {
    if (state === 'open') this.#waitForQuiet();
    this.#on.connection(state);
  }
  #waitForQuiet() {
    clearTimeout(this.#quiet);
    this.#quiet = setTimeout(() => this.#on.live(), QUIET);
  }
  #denied(status) {
    this.reader.stop();
    if (status === 403) this.#on.connection('forbidden');
    else this.#on.denied();
  }
}
