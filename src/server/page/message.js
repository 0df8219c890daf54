// The DOM of one item of a conversation.
import { el, icon, replaceChanged } from './dom.js';
import { choiceList, asList } from './conversation.js';
import { markdown } from './markdown.js';
import { link, safeUrl } from './inline.js';
import { TEXTS } from './texts.js';

const CHECK = 'M4.5 10.5l3.5 3.5 7.5-8';

// Creates or updates the element of an item. `on.choose(choice)` and `on.retry(entry)` are called by its buttons.
export function renderItem(item, node, on) {
  const made = node ?? el('div', { class: `item ${item.kind}` });
  if (item.kind === 'user') renderUser(item, made, on);
  else if (item.kind === 'reply') renderReply(item, made, on);
  else renderNote(item, made);
  return made;
}

// The plain text of an item for screen readers.
export function spokenText(node) {
  return [...node.querySelectorAll('.bubble, .failed, .choices button, .card p')].map((part) => part.innerText).join('\n');
}

function hidden(text) {
  return el('span', { class: 'hidden' }, text);
}

function renderUser(item, node, on) {
  const bubble = el('div', { class: 'bubble', dir: 'auto' }, hidden(`${TEXTS.you} `), el('span', { class: 'said' }, item.text));
  replaceChanged(node, [bubble, ...userState(item, on)]);
}

function userState({ entry, isPending }, on) {
  const state = entry?.state;
  if (state === 'failed') return [failure(entry, on)];
  if (!isPending || !TEXTS[state]) return [];
  return [el('p', { class: `state ${state}` }, TEXTS[state])];
}

function failure(entry, on) {
  const reason = entry.status === 413 ? TEXTS.tooLong : entry.status >= 500 ? TEXTS.failed : TEXTS.refused;
  const code = entry.code ? ` (${entry.code})` : '';
  const retry = el('button', { type: 'button', class: 'retry', click: () => on.retry(entry) }, TEXTS.tryAgain);
  // The listener is not compared when nodes are replaced, but the entry of an item never changes.
  return el('p', { class: 'state failed' }, `${TEXTS.notSent}: ${reason}${code}`, retry);
}

function renderReply(item, node, on) {
  node.classList.toggle('filler', item.filler);
  node.classList.toggle('streaming', !item.isComplete);
  let bubble = node.querySelector(':scope > .bubble');
  if (!bubble) {
    bubble = el('div', { class: 'bubble' });
    node.append(hidden(`${item.filler ? TEXTS.interim : TEXTS.assistant} `), bubble);
  }
  replaceChanged(bubble, item.text === '' ? [] : markdown(item.text, !item.isComplete));
  bubble.hidden = item.text === '';
  if (item.isComplete) renderExtras(item, node, on);
}

// What stands below the text: pictures, cards, buttons.
function renderExtras(item, node, on) {
  const { message } = item;
  const parts = [
    item.interrupted && el('p', { class: 'state' }, TEXTS.stopped),
    picture(message.image),
    ...asList(message.elements).map((element) => card(element, item, on)),
    attachment(message.attachment),
    message.custom !== undefined && message.custom !== null && data(TEXTS.data, message.custom),
    choices([...choiceList(message.buttons), ...choiceList(message.quick_replies)], item, on),
  ].filter(Boolean);
  const extras = node.querySelector(':scope > .extras') ?? el('div', { class: 'extras' });
  replaceChanged(extras, parts);
  if (parts.length > 0) node.append(extras);
}

function choices(list, item, on) {
  if (list.length === 0) return null;
  return el('div', { class: 'choices', role: 'group', 'aria-label': TEXTS.choices }, ...list.map((choice) => choiceButton(choice, item, on)));
}

function choiceButton(choice, item, on) {
  const isChosen = item.choice?.payload === choice.payload && item.choice.title === choice.title;
  const attributes = { type: 'button', dir: 'auto', class: isChosen ? 'chosen' : null, disabled: Boolean(item.isClosed) };
  const mark = isChosen ? [icon(CHECK), hidden(` (${TEXTS.chosen})`)] : [];
  return el('button', { ...attributes, click: () => on.choose(choice) }, choice.title, ...mark);
}

function card(element, item, on) {
  if (!element || typeof element !== 'object') return null;
  const line = (text, name) => (typeof text === 'string' && text !== '' ? el('p', { class: name, dir: 'auto' }, text) : null);
  return el('div', { class: 'card' }, picture(element.image_url), line(element.title, 'heading'), line(element.subtitle, 'subtitle'),
    choices(choiceList(element.buttons), item, on));
}

// A picture that cannot be loaded becomes a link.
function picture(address) {
  if (typeof address !== 'string') return null;
  const href = safeUrl(address);
  const isShown = /^data:image\/(?:png|jpeg|gif|webp|avif);base64,[a-z0-9+/=]*$/i.test(address) || href?.startsWith('http');
  if (!isShown) return href && el('p', {}, link(href, TEXTS.openImage));
  const image = el('img', { alt: TEXTS.image, loading: 'lazy', decoding: 'async', referrerpolicy: 'no-referrer', src: href ?? address });
  const frame = el('div', { class: 'picture' }, image);
  image.addEventListener('error', () => frame.replaceChildren(href ? link(href, TEXTS.openImage) : TEXTS.image));
  return frame;
}

function attachment(value) {
  if (value === undefined || value === null) return null;
  const address = [value, value.url, value.payload?.src, value.payload?.url].find((one) => typeof one === 'string');
  const href = address && safeUrl(address);
  return href ? el('p', { class: 'attachment' }, link(href, `${TEXTS.attachment}: ${href}`)) : data(TEXTS.attachment, value);
}

function data(title, value) {
  const text = typeof value === 'string' ? value : JSON.stringify(value, null, 2);
  const code = el('pre', { tabindex: 0, role: 'group', 'aria-label': title, dir: 'ltr' }, el('code', {}, text));
  return el('details', {}, el('summary', {}, title), code);
}

function renderNote(item, node) {
  node.classList.add(item.note);
  const text = item.note === 'ended' ? TEXTS.ended : TEXTS.error;
  const detail = [item.text, item.code && `(${item.code})`].filter(Boolean).join(' ');
  replaceChanged(node, [el('p', { class: 'bubble' }, text), ...(detail ? [el('p', { class: 'detail', dir: 'auto' }, detail)] : [])]);
}
