// The button at the corner of another page, and the panel with the chat. Both live in a shadow root, so that the styles of the page and
// those of the chat do not affect each other.
import './chat.js';
import { el, icon } from './dom.js';
import { sheet } from './sheet.js';
import { TEXTS } from './texts.js';

const BUBBLE = 'M4 5.5h12a1.5 1.5 0 0 1 1.5 1.5v6a1.5 1.5 0 0 1-1.5 1.5H9L5.5 17.5v-3H4A1.5 1.5 0 0 1 2.5 13V7A1.5 1.5 0 0 1 4 5.5z';

// Adds the button to the page.
export async function mount(options) {
  const styles = await sheet('launcher.css');
  const host = document.createElement('segue-launcher');
  const root = host.attachShadow({ mode: 'open' });
  root.adoptedStyleSheets = [styles];
  new Launcher(root, options);
  if (!document.body) await new Promise((ready) => { addEventListener('DOMContentLoaded', ready, { once: true }); });
  document.body.append(host);
}

class Launcher {
  #options;
  #chat = null;
  constructor(root, options) {
    this.#options = options;
    const name = options.title ? `${TEXTS.open}: ${options.title}` : TEXTS.open;
    this.badge = el('span', { class: 'badge', hidden: true }, el('span', { class: 'hidden' }, TEXTS.unread));
    this.button = el('button', {
      type: 'button', class: 'launch', 'aria-label': name, 'aria-expanded': 'false', 'aria-haspopup': 'dialog', click: () => this.#toggle(),
    }, icon(BUBBLE), this.badge);
    this.panel = el('div', { class: 'panel', role: 'dialog', 'aria-label': options.title ?? TEXTS.label, hidden: true });
    root.append(this.panel, this.button);
  }
  get #isOpen() {
    return !this.panel.hidden;
  }
  #toggle() {
    this.panel.hidden = this.#isOpen;
    this.button.setAttribute('aria-expanded', String(this.#isOpen));
    this.badge.hidden = true;
    if (!this.#isOpen) return this.button.focus();
    // The chat connects when it is opened first, not on every page.
    this.#chat ??= this.#makeChat();
    return this.#chat.focus();
  }
  #makeChat() {
    const { server, title, sender, token } = this.#options;
    const chat = el('segue-chat', { server, 'data-title': title, 'data-sender': sender, 'data-token': token, 'data-closable': true });
    chat.addEventListener('segue-close', () => this.#toggle());
    chat.addEventListener('segue-title', ({ detail }) => this.panel.setAttribute('aria-label', detail));
    chat.addEventListener('segue-message', () => { this.badge.hidden = this.#isOpen; });
    this.panel.append(chat);
    return chat;
  }
}
