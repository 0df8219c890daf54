// The form for the access token, and the question before a new conversation.
import { el } from './dom.js';
import { TEXTS } from './texts.js';

// Calls `onToken(token)`. `isRefused`: the server has not accepted the one before.
export function tokenForm(onToken) {
  const field = el('input', { id: 'token', type: 'password', autocomplete: 'off', required: true, 'aria-describedby': 'token-help token-error' });
  const error = el('p', { id: 'token-error', class: 'refused', role: 'alert' });
  const submit = (event) => {
    event.preventDefault();
    const token = field.value.trim();
    field.value = '';
    if (token !== '') onToken(token);
  };
  const node = el('form', { class: 'token', hidden: true, submit },
    el('label', { for: 'token' }, TEXTS.tokenTitle), el('p', { id: 'token-help' }, TEXTS.tokenExplanation), field, error,
    el('button', { type: 'submit', class: 'primary' }, TEXTS.tokenSubmit));
  const show = (isRefused) => {
    node.hidden = false;
    error.textContent = isRefused ? TEXTS.tokenRefused : '';
    field.focus();
  };
  return { node, show };
}

// A question over the chat; the rest of the chat (`behind`) cannot be reached meanwhile. Returns whether the person agrees.
export function ask(root, behind, { title, text, agree }) {
  const before = root.activeElement;
  return new Promise((resolve) => {
    const answer = (isAgreed) => {
      frame.remove();
      behind.inert = false;
      before?.focus();
      resolve(isAgreed);
    };
    const cancel = el('button', { type: 'button', click: () => answer(false) }, TEXTS.cancel);
    const key = (event) => {
      if (event.key !== 'Escape') return;
      event.stopPropagation();
      answer(false);
    };
    const frame = el('div', { class: 'scrim', keydown: key },
      el('div', { class: 'question', role: 'alertdialog', 'aria-modal': 'true', 'aria-labelledby': 'question', 'aria-describedby': 'explanation' },
        el('h2', { id: 'question' }, title), el('p', { id: 'explanation' }, text),
        el('div', { class: 'answers' }, cancel, el('button', { type: 'button', class: 'primary', click: () => answer(true) }, agree))));
    behind.inert = true;
    root.append(frame);
    cancel.focus();
  });
}
