// The list of messages: places the elements, follows the end and announces new replies.
import { el, icon } from './dom.js';
import { renderItem, spokenText } from './message.js';
import { TEXTS } from './texts.js';

// The distance from the end, in pixels, at which the view still counts as being there.
const NEAR = 60;
// How much longer than a rendering the pause after it is, so that a very long reply leaves time for typing.
const REST = 4;
const DOWN = 'M10 4.5v11M5 10.5l5 5 5-5';

export class Log {
  #on;
  #nodes = new Map();
  #changed = new Set();
  #isScheduled = false;
  #isAtEnd = true;
  #top = 0;
  #pause = 0;
  #task = null;
  // Whether new replies are announced. The history is not.
  isLive = false;
  constructor(on) {
    this.#on = on;
    this.confirmed = el('div', { class: 'items' });
    this.pending = el('div', { class: 'items' });
    this.typing = typingSign();
    this.empty = el('div', { class: 'empty', hidden: true }, el('p', { class: 'greeting' }, TEXTS.emptyTitle), el('p', {}, TEXTS.emptyText));
    this.column = el('div', { class: 'column' }, this.empty, this.confirmed, this.typing, this.pending);
    this.scroller = el('div', { class: 'log', role: 'log', 'aria-live': 'off', 'aria-label': TEXTS.conversation, tabindex: 0 }, this.column);
    this.jump = el('button', { type: 'button', class: 'jump', hidden: true, click: () => this.toEnd(true) }, icon(DOWN), el('span', {}, ''));
    this.announcer = el('div', { class: 'hidden', 'aria-live': 'polite' });
    this.scroller.addEventListener('scroll', () => this.#scrolled(), { passive: true });
    const resizes = new ResizeObserver(() => this.#follow());
    resizes.observe(this.column);
    resizes.observe(this.scroller);
  }
  get nodes() {
    return [el('div', { class: 'stage' }, this.scroller, this.jump), this.announcer];
  }
  itemChanged(item, what) {
    if (what === 'removed') {
      this.#nodes.get(item)?.remove();
      this.#nodes.delete(item);
      this.#changed.delete(item);
      return;
    }
    if (what === 'placed') this.#place(item);
    if (this.isLive && isSpoken(item, what)) item.isUnspoken = true;
    this.#changed.add(item);
    this.#schedule();
  }
  clear() {
    this.#nodes.clear();
    this.#changed.clear();
    this.confirmed.replaceChildren();
    this.pending.replaceChildren();
    this.announcer.replaceChildren();
    this.isLive = false;
    this.toEnd();
  }
  // Calls `task` after the next rendering, so that the rest of the chat does not run ahead of the messages.
  afterRendering(task) {
    this.#task = task;
    this.#schedule();
  }
  announce(text) {
    const line = el('p', {}, text);
    this.announcer.append(line);
    // Old lines are removed, so that nobody reads a message twice.
    setTimeout(() => line.remove(), 10_000);
  }
  toEnd(isSmooth = false) {
    this.#isAtEnd = true;
    this.#showJump(false);
    const isCalm = !isSmooth || matchMedia('(prefers-reduced-motion: reduce)').matches;
    this.scroller.scrollTo({ top: this.scroller.scrollHeight, behavior: isCalm ? 'instant' : 'smooth' });
  }
  #place(item) {
    const node = this.#nodes.get(item) ?? renderItem(item, null, this.#on);
    this.#nodes.set(item, node);
    (item.isPending ? this.pending : this.confirmed).append(node);
    if (!this.#isAtEnd && item.kind === 'reply') this.#showJump(true, true);
  }
  // Renders at most once per frame. A hidden tab has no frames.
  #schedule() {
    if (this.#isScheduled) return;
    this.#isScheduled = true;
    const render = () => this.#render();
    if (document.hidden || this.#pause > 16) setTimeout(render, this.#pause);
    else requestAnimationFrame(render);
  }
  #render() {
    this.#isScheduled = false;
    const start = performance.now();
    for (const item of this.#changed) this.#update(item);
    this.#changed.clear();
    this.#task?.();
    this.#task = null;
    this.#pause = (performance.now() - start) * REST;
    this.#follow();
  }
  #update(item) {
    const node = this.#nodes.get(item);
    renderItem(item, node, this.#on);
    if (item.isUnspoken) this.announce(spokenText(node));
    item.isUnspoken = false;
  }
  #scrolled() {
    const { scrollTop, scrollHeight, clientHeight } = this.scroller;
    const isNear = scrollHeight - scrollTop - clientHeight < NEAR;
    // Only the person scrolls up. When content grows, the distance from the end does too, and the view still follows.
    if (isNear) this.#isAtEnd = true;
    else if (scrollTop < this.#top - 1) this.#isAtEnd = false;
    this.#top = scrollTop;
    this.#showJump(!this.#isAtEnd);
  }
  #follow() {
    if (this.#isAtEnd) this.scroller.scrollTop = this.scroller.scrollHeight;
  }
  #showJump(isShown, isNew = false) {
    if (!isShown) this.jump.classList.remove('new');
    if (isNew) this.jump.classList.add('new');
    this.jump.hidden = !isShown;
    this.jump.lastChild.textContent = this.jump.classList.contains('new') ? TEXTS.newMessages : TEXTS.toEnd;
  }
}

// Screen readers announce complete replies, notes, and messages that could not be sent.
function isSpoken(item, what) {
  if (item.kind === 'user') return what === 'changed' && item.entry?.state === 'failed';
  return what === (item.kind === 'note' ? 'placed' : 'complete');
}

function typingSign() {
  const dot = () => el('span', { class: 'dot' });
  return el('div', { class: 'item reply typing', hidden: true },
    el('div', { class: 'bubble' }, el('span', { class: 'hidden' }, TEXTS.typing), dot(), dot(), dot()));
}
