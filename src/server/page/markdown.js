// Markdown of a reply as DOM nodes: paragraphs, headings (as bold lines), lists, quotations, code and tables. Everything else is text.
// HTML in a message is text too. Every text can be shown, also one that is still growing; the time is in proportion to its length.
import { el } from './dom.js';
import { inline } from './inline.js';
import { TEXTS } from './texts.js';

const MAX_DEPTH = 6;
const MAX_COLUMNS = 30;
const FENCE = /^ {0,3}(`{3,}|~{3,})([^`]*)$/;
const HEADING = /^ {0,3}(#{1,6})[ \t]+(.*)$/;
const RULE = /^ {0,3}(?:(?:\*[ \t]*){3,}|(?:-[ \t]*){3,}|(?:_[ \t]*){3,})$/;
const QUOTE = /^ {0,3}> ?/;
const ITEM = /^( {0,12})([-*+•]|(\d{1,9})[.)])([ \t]+|$)/;
const SEPARATOR = /^[ \t]*\|?[ \t]*:?-+:?[ \t]*(?:\|[ \t]*:?-+:?[ \t]*)*\|?[ \t]*$/;

// `isOpen`: the text is still growing.
export function markdown(text, isOpen = false) {
  const lines = text.replace(/\r\n?/g, '\n').replaceAll('\t', '    ').split('\n');
  return new Blocks(lines, 0, isOpen).run();
}

class Blocks {
  constructor(lines, depth, isOpen) {
    Object.assign(this, { lines, depth, isOpen, at: 0, nodes: [] });
  }
  run() {
    while (this.at < this.lines.length) this.block();
    return this.nodes;
  }
  block() {
    const line = this.lines[this.at];
    const fence = FENCE.exec(line);
    const isNested = this.depth >= MAX_DEPTH;
    if (line.trim() === '') this.at += 1;
    else if (fence) this.code(fence);
    else if (HEADING.test(line)) this.heading(HEADING.exec(line));
    else if (RULE.test(line)) this.add(el('hr'), 1);
    else if (!isNested && QUOTE.test(line)) this.quote();
    else if (!isNested && ITEM.test(line)) this.list();
    else if (this.isTable()) this.table();
    else this.paragraph();
  }
  add(node, lines) {
    this.nodes.push(node);
    this.at += lines;
  }
  // Whether the text may still grow at this line.
  isLast(end) {
    return this.isOpen && end >= this.lines.length;
  }
  nested(lines, isOpen) {
    return new Blocks(lines, this.depth + 1, isOpen).run();
  }
  code([, marks]) {
    const isEnd = (line) => line.trim().startsWith(marks) && line.trim() === marks[0].repeat(line.trim().length);
    let end = this.at + 1;
    while (end < this.lines.length && !isEnd(this.lines[end])) end += 1;
    const text = this.lines.slice(this.at + 1, end).join('\n');
    const block = el('pre', { tabindex: 0, role: 'group', 'aria-label': TEXTS.code, dir: 'ltr' }, el('code', {}, text));
    this.add(block, end + 1 - this.at);
  }
  heading([, , text]) {
    const title = text.trimEnd().replace(/(?:^|[ \t])#{1,6}$/, '');
    this.add(el('p', { class: 'heading', dir: 'auto' }, el('strong', {}, inline(title, this.isLast(this.at + 1)))), 1);
  }
  quote() {
    let end = this.at;
    while (end < this.lines.length && QUOTE.test(this.lines[end])) end += 1;
    const lines = this.lines.slice(this.at, end).map((line) => line.replace(QUOTE, ''));
    this.add(el('blockquote', { dir: direction(lines[0]) }, ...this.nested(lines, this.isLast(end))), end - this.at);
  }
  list() {
    const [, , marker, number] = ITEM.exec(this.lines[this.at]);
    const isSame = (item) => item && Boolean(item[3]) === Boolean(number);
    const attributes = { dir: direction(this.lines[this.at]), start: number && Number(number) !== 1 ? Number(number) : null };
    const indent = this.lines[this.at].indexOf(marker);
    const items = [];
    let item = ITEM.exec(this.lines[this.at]);
    while (isSame(item) && item[1].length < indent + 2) {
      items.push(this.item(item));
      item = this.at < this.lines.length ? ITEM.exec(this.lines[this.at]) : null;
    }
    this.nodes.push(el(number ? 'ol' : 'ul', attributes, ...items));
  }
  // One item: the rest of its line and what is indented below it. Two spaces are enough for a nested list.
  item([prefix, spaces]) {
    const content = [this.lines[this.at].slice(prefix.length)];
    const inner = Math.min(prefix.length, spaces.length + 4);
    let end = this.at + 1;
    for (; end < this.lines.length && this.belongsToItem(end, spaces.length + 2); end += 1) {
      const line = this.lines[end];
      content.push(line.slice(Math.min(inner, line.length - line.trimStart().length)));
    }
    this.at = end;
    return el('li', {}, ...this.nested(content, this.isLast(end)));
  }
  belongsToItem(at, indent) {
    const line = this.lines[at];
    const isIndented = (text) => text.trim() !== '' && text.length - text.trimStart().length >= indent;
    if (line.trim() === '') return at + 1 < this.lines.length && isIndented(this.lines[at + 1]);
    if (isIndented(line)) return true;
    return this.lines[at - 1].trim() !== '' && !this.startsBlock(line);
  }
  // Whether a line ends a paragraph. A number other than 1 may belong to a sentence.
  interrupts(line) {
    const item = ITEM.exec(line);
    return item ? !item[3] || Number(item[3]) === 1 : this.startsBlock(line);
  }
  startsBlock(line) {
    return [FENCE, HEADING, RULE, QUOTE, ITEM].some((start) => start.test(line));
  }
  isTable() {
    const next = this.lines[this.at + 1];
    return next !== undefined && this.lines[this.at].includes('|') && next.includes('-') && SEPARATOR.test(next)
      && cells(this.lines[this.at]).length === cells(next).length;
  }
  table() {
    let end = this.at + 2;
    while (end < this.lines.length && this.lines[end].includes('|')) end += 1;
    const alignments = cells(this.lines[this.at + 1]).map((cell) => (cell.endsWith(':') ? (cell.startsWith(':') ? 'middle' : 'end') : null));
    const row = (line, tag) => el('tr', {}, ...alignments.map((side, index) =>
      el(tag, { class: side, dir: 'auto', scope: tag === 'th' ? 'col' : null }, inline(line[index] ?? ''))));
    const head = el('thead', {}, row(cells(this.lines[this.at]), 'th'));
    const body = el('tbody', {}, ...this.lines.slice(this.at + 2, end).map((line) => row(cells(line), 'td')));
    const frame = { class: 'table', tabindex: 0, role: 'group', 'aria-label': TEXTS.table };
    this.add(el('div', frame, el('table', {}, head, body)), end - this.at);
  }
  paragraph() {
    let end = this.at + 1;
    while (end < this.lines.length && this.lines[end].trim() !== '' && !this.interrupts(this.lines[end])) end += 1;
    const text = this.lines.slice(this.at, end).map((line) => line.trim()).join('\n');
    this.add(el('p', { dir: 'auto' }, inline(text, this.isLast(end))), end - this.at);
  }
}

// `rtl` if the first letter belongs to a script that runs from right to left. `dir=auto` cannot be used for a list: it ignores the text of
// children that have a `dir` of their own.
function direction(text) {
  const letter = /\p{L}/u.exec(text)?.[0];
  return letter && /[\u0590-\u08ff\ufb1d-\ufdff\ufe70-\ufefc]/.test(letter) ? 'rtl' : null;
}

function cells(line) {
  const inner = line.trim().replace(/^\|/, '').replace(/\|$/, '');
  return inner.split('|', MAX_COLUMNS).map((cell) => cell.trim());
}
