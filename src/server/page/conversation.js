// The state of a conversation, made from the events of the server and the messages that are on their way. It knows nothing of the DOM.
//
// An item is a message of the person (`kind: 'user'`), a reply or a note. `onChange(item, what)` reports: 'placed' (new, or moved to the
// end of the confirmed items), 'changed', 'complete' (a reply has its final text) and 'removed'; `onTurn(id)` that a turn starts
// or ends, with the id of the message whose turn has ended.

export class Conversation {
  #items = new Map();
  // Replies that are not complete.
  #streaming = new Set();
  // Replies with choices that can be pressed.
  #open = new Set();
  // The id of the person's message of each turn.
  #userMessages = new Map();
  #onChange;
  #onTurn;
  // The id of the running turn, or `null`.
  turn = null;
  constructor(onChange, onTurn) {
    this.#onChange = onChange;
    this.#onTurn = onTurn;
  }
  get isEmpty() {
    return this.#items.size === 0;
  }
  get isStreaming() {
    return [...this.#streaming].some((reply) => reply.text !== '');
  }
  // A message that the person has just sent. It stays below the confirmed items until its event arrives.
  addPending(entry) {
    this.#items.set(entry.id, { kind: 'user', id: entry.id, entry, text: entry.title ?? entry.text, isPending: true });
    this.#closeChoices(entry.text);
    this.#onChange(this.#items.get(entry.id), 'placed');
  }
  removePending(id) {
    const item = this.#items.get(id);
    if (!item?.isPending) return;
    this.#items.delete(id);
    this.#onChange(item, 'removed');
  }
  entryChanged(entry) {
    const item = this.#items.get(entry.id);
    if (item) this.#onChange(item, 'changed');
  }
  isConfirmed(id) {
    return this.#items.get(id)?.isPending === false;
  }
  // The server says that no turn runs.
  endTurn() {
    this.turn_finished({ turn_id: this.turn });
  }
  apply(event) {
    if (EVENTS.has(event.type)) this[event.type](event);
  }

  turn_started({ turn_id }) {
    // A turn that is sent again: a reply of it that stays without events is one that the server did not keep.
    this.#streaming.forEach((reply) => { reply.isStale = true; });
    this.turn = turn_id;
    this.#onTurn();
  }
  user_message({ turn_id, message_id, text }) {
    const id = message_id || `${turn_id}/user`;
    this.#userMessages.set(turn_id, id);
    let item = this.#items.get(id);
    if (item && !item.isPending) return;
    const title = this.#closeChoices(text);
    item ??= { kind: 'user', id, text: title ?? text };
    item.isPending = false;
    this.#items.set(id, item);
    this.#onChange(item, 'placed');
  }
  message_start({ id, filler }) {
    const reply = this.#reply(id, filler);
    if (reply.isComplete) return;
    // Sent again: the known text is shown until the new one is longer.
    reply.received = '';
    this.#streaming.add(reply);
    this.#onChange(reply, 'changed');
  }
  message_delta({ id, text }) {
    const reply = this.#reply(id);
    if (reply.isComplete) return;
    reply.isStale = false;
    reply.received += text;
    if (!reply.text.startsWith(reply.received)) reply.text = reply.received;
    this.#streaming.add(reply);
    this.#onChange(reply, 'changed');
  }
  message_end(event) {
    this.#complete(event);
  }
  message(event) {
    this.#complete(event);
  }
  error({ code, message }) {
    this.#note({ id: `${this.turn}/error/${code}/${message}`, note: 'error', code, text: message });
  }
  turn_finished({ turn_id, session_ended }) {
    for (const reply of this.#streaming) this.#abandon(reply);
    this.#streaming.clear();
    if (session_ended) this.#note({ id: `${turn_id}/ended`, note: 'ended' });
    if (this.turn === turn_id) this.turn = null;
    this.#onTurn(this.#userMessages.get(turn_id));
  }

  #reply(id, filler = false) {
    let reply = this.#items.get(id);
    if (!reply) {
      reply = { kind: 'reply', id, text: '', received: '', message: {}, filler, turn: this.turn, choice: null };
      this.#items.set(id, reply);
      this.#onChange(reply, 'placed');
    }
    reply.isStale = false;
    return reply;
  }
  #complete({ id, message, filler, interrupted }) {
    const reply = this.#reply(id, filler);
    const wasComplete = reply.isComplete;
    reply.message = message ?? {};
    reply.text = reply.message.text ?? '';
    Object.assign(reply, { filler: Boolean(filler), interrupted: Boolean(interrupted), isComplete: true });
    this.#streaming.delete(reply);
    if (!wasComplete && choicesOf(reply.message).length > 0) this.#open.add(reply);
    this.#onChange(reply, wasComplete ? 'changed' : 'complete');
  }
  // A reply that was begun and not ended when its turn ended.
  #abandon(reply) {
    if (reply.isStale || reply.text === '') {
      this.#items.delete(reply.id);
      this.#onChange(reply, 'removed');
    } else {
      Object.assign(reply, { isComplete: true, interrupted: true });
      this.#onChange(reply, 'complete');
    }
  }
  #note(note) {
    if (this.#items.has(note.id)) return;
    const item = { kind: 'note', ...note };
    this.#items.set(item.id, item);
    this.#onChange(item, 'placed');
  }
  // A message of the person closes all open choices. Returns the title of the one that has this payload.
  #closeChoices(payload) {
    let title;
    for (const reply of this.#open) {
      reply.choice = choicesOf(reply.message).findLast((choice) => choice.payload === payload) ?? reply.choice;
      title = reply.choice?.title ?? title;
      reply.isClosed = true;
      this.#onChange(reply, 'changed');
    }
    this.#open.clear();
    return title;
  }
}

const EVENTS = new Set([
  'turn_started', 'user_message', 'message_start', 'message_delta', 'message_end', 'message', 'error', 'turn_finished',
]);

// The choices that a message offers: its buttons, quick replies and the buttons of its elements.
export function choicesOf(message) {
  const lists = [message.buttons, message.quick_replies, ...asList(message.elements).map((element) => element?.buttons)];
  return lists.flatMap(choiceList);
}

export function choiceList(buttons) {
  return asList(buttons).filter((button) => button && typeof button.title === 'string')
    .map(({ title, payload }) => ({ title, payload: typeof payload === 'string' ? payload : title }));
}

export function asList(value) {
  return Array.isArray(value) ? value : [];
}
