// The text field with its button, which sends or stops.
import { el, icon } from './dom.js';
import { ownTab } from './storage.js';
import { TEXTS } from './texts.js';

const ARROW = 'M10 15.5v-11M5 9.5l5-5 5 5';
const SQUARE = 'M6 6h8v8H6z';

export class Composer {
  #draftKey;
  #on;
  #isRunning = false;
  // `on.send(text)` and `on.stop()`.
  constructor(on) {
    this.#on = on;
    this.field = el('textarea', {
      rows: 1, dir: 'auto', 'aria-label': TEXTS.placeholder, placeholder: TEXTS.placeholder, enterkeyhint: 'send', autocomplete: 'off',
      input: () => this.#changed(), keydown: (event) => this.#key(event),
    });
    this.button = el('button', { type: 'submit', class: 'action' });
    this.node = el('form', { class: 'composer', submit: (event) => this.#submit(event) },
      el('div', { class: 'field' }, this.field, this.button));
    this.#show();
  }
  // The draft of a conversation, which survives a reload.
  useDraft(key) {
    this.#draftKey = key;
    this.field.value = ownTab.get(key) ?? '';
    this.#resize();
    this.#show();
  }
  setRunning(isRunning) {
    this.#isRunning = isRunning;
    this.#show();
  }
  focus() {
    this.field.focus({ preventScroll: true });
  }
  #show() {
    const text = this.#isRunning ? TEXTS.stop : TEXTS.send;
    if (this.button.getAttribute('aria-label') !== text) {
      this.button.setAttribute('aria-label', text);
      this.button.title = text;
      this.button.classList.toggle('stop', this.#isRunning);
      this.button.replaceChildren(icon(this.#isRunning ? SQUARE : ARROW, this.#isRunning));
    }
    this.button.classList.toggle('idle', !this.#isRunning && this.field.value.trim() === '');
  }
  #submit(event) {
    event.preventDefault();
    if (this.#isRunning) this.#on.stop();
    else this.#send();
  }
  // Enter sends while a turn runs too: the message waits. An input method uses Enter for itself.
  #key(event) {
    if (event.key !== 'Enter' || event.shiftKey || event.isComposing || event.keyCode === 229) return;
    event.preventDefault();
    this.#send();
  }
  #send() {
    const text = this.field.value.trim();
    if (text === '') return;
    this.field.value = '';
    this.#changed();
    this.#on.send(text);
  }
  #changed() {
    if (this.field.value === '') ownTab.remove(this.#draftKey);
    else ownTab.set(this.#draftKey, this.field.value);
    this.#resize();
    this.#show();
  }
  // The style sheet limits the height.
  #resize() {
    this.field.style.height = 'auto';
    if (this.field.value !== '') this.field.style.height = `${this.field.scrollHeight}px`;
  }
}
