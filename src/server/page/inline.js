// Inline Markdown: bold, italic, strikethrough, code, links. Makes DOM nodes, and takes time in proportion to the length of the text:
// the text is split into tokens once, delimiters are paired with a stack, and no search starts again from an earlier place.
import { el } from './dom.js';

const MAX_URL = 2048;
const MAX_DEPTH = 12;
const SCHEMES = ['http:', 'https:', 'mailto:'];
const TAGS = { em: 'em', strong: 'strong', strike: 's' };
const PUNCTUATION = /[!-/:-@[-`{-~]/;
const PLAIN = /[^\\`*_~[\]!<\nh]+/y;
const BARE_URL = /https?:\/\/[^\s<>"'`]+/y;

// The address of a link if it may be opened, else `null`.
export function safeUrl(text, schemes = SCHEMES) {
  if (text.length > MAX_URL) return null;
  try {
    const url = new URL(text);
    return schemes.includes(url.protocol) ? url.href : null;
  } catch { return null; }
}

export function link(href, ...children) {
  return el('a', { href, rel: 'noopener noreferrer nofollow', target: '_blank' }, ...children);
}

// `isOpen`: the text is still growing, so an unpaired delimiter of bold is taken as the start of bold text.
export function inline(text, isOpen = false) {
  const tokens = new Lexer(text).run();
  pairDelimiters(tokens, isOpen);
  return build(tokens);
}

// Splits the text into tokens: `{text}`, `{code}`, `{isBreak}`, `{href, text}` (an address in the text), delimiters `{kind, canOpen,
// canClose, text}`, and brackets, which get `linkEnd` or `isLinkEnd` if they belong to a link.
class Lexer {
  constructor(text) {
    this.text = text;
    this.at = 0;
    this.tokens = [];
    this.brackets = [];
    this.backticks = backtickRuns(text);
  }
  run() {
    while (this.at < this.text.length) this.step();
    return this.tokens;
  }
  step() {
    const char = this.text[this.at];
    if (char === '\\') this.escape();
    else if (char === '`') this.code();
    else if (char === '*' || char === '_' || char === '~') this.delimiters(char);
    else if (char === '\n') this.push({ isBreak: true }, 1);
    else if (char === '[') this.open(1);
    else if (char === '!' && this.text[this.at + 1] === '[') this.open(2);
    else if (char === ']') this.close();
    else if (char === '<') this.angle();
    else if (char === 'h') this.bareUrl();
    else this.plain();
  }
  push(token, length) {
    this.tokens.push(token);
    this.at += length;
  }
  literal(length) {
    this.push({ text: this.text.slice(this.at, this.at + length) }, length);
  }
  plain() {
    PLAIN.lastIndex = this.at;
    this.literal(PLAIN.exec(this.text)?.[0].length ?? 1);
  }
  escape() {
    const next = this.text[this.at + 1];
    if (next !== undefined && PUNCTUATION.test(next)) this.push({ text: next }, 2);
    else this.literal(1);
  }
  code() {
    const length = runLength(this.text, this.at);
    const end = this.backticks.closing(this.at, length);
    if (end < 0) return this.literal(length);
    const inner = this.text.slice(this.at + length, end).replaceAll('\n', ' ');
    const isPadded = inner.startsWith(' ') && inner.endsWith(' ') && inner.trim() !== '';
    return this.push({ code: isPadded ? inner.slice(1, -1) : inner }, end + length - this.at);
  }
  delimiters(char) {
    const length = runLength(this.text, this.at);
    const before = this.text[this.at - 1] ?? ' ';
    const after = this.text[this.at + length] ?? ' ';
    const isStrike = char === '~';
    // Three delimiters close in the opposite order.
    const both = /\s/.test(before) ? ['strong', 'em'] : ['em', 'strong'];
    const names = (isStrike ? [null, ['strike'], null] : [['em'], ['strong'], both])[length - 1];
    if (!names) return this.literal(length);
    const isWord = /[\p{L}\p{N}]/u;
    const canOpen = !/\s/.test(after) && (char !== '_' || !isWord.test(before));
    const canClose = !/\s/.test(before) && (char !== '_' || !isWord.test(after));
    for (const name of names) {
      const size = name === 'em' ? 1 : 2;
      this.push({ kind: char + name, tag: TAGS[name], canOpen, canClose, text: char.repeat(size) }, size);
    }
    return undefined;
  }
  open(length) {
    const token = { isBracket: true, text: this.text.slice(this.at, this.at + length) };
    this.brackets.push(token);
    this.push(token, length);
  }
  close() {
    const opener = this.brackets.pop();
    const target = opener && linkTarget(this.text, this.at + 1);
    const href = target && safeUrl(target.url);
    if (!href) return this.literal(1);
    opener.href = href;
    // A link contains no other link.
    this.brackets = [];
    return this.push({ isLinkEnd: true, text: '' }, target.end - this.at);
  }
  angle() {
    const end = this.text.slice(this.at, this.at + MAX_URL).search(/[\s>]/);
    const href = end > 0 && this.text[this.at + end] === '>' ? safeUrl(this.text.slice(this.at + 1, this.at + end)) : null;
    if (href) this.push({ href, text: this.text.slice(this.at + 1, this.at + end) }, end + 1);
    else this.literal(1);
  }
  bareUrl() {
    BARE_URL.lastIndex = this.at;
    const before = this.text[this.at - 1] ?? ' ';
    const match = /[\p{L}\p{N}]/u.test(before) ? null : BARE_URL.exec(this.text)?.[0];
    const text = match && trimUrl(match);
    const href = text && safeUrl(text);
    if (href) this.push({ href, text }, text.length);
    else this.literal(1);
  }
}

function runLength(text, at) {
  let end = at;
  while (text[end] === text[at]) end += 1;
  return end - at;
}

// The places of the runs of backticks by length. Questions come with growing places, so each list is read once.
function backtickRuns(text) {
  const places = new Map();
  for (const match of text.matchAll(/`+/g)) {
    const { length } = match[0];
    if (!places.has(length)) places.set(length, { list: [], next: 0 });
    places.get(length).list.push(match.index);
  }
  return {
    closing(at, length) {
      const runs = places.get(length);
      while (runs && runs.list[runs.next] <= at) runs.next += 1;
      return runs?.list[runs.next] ?? -1;
    },
  };
}

// `(address)` or `(address "title")` at this place: the address and the end. Stops at the second level of parentheses.
function linkTarget(text, start) {
  if (text[start] !== '(') return null;
  const limit = Math.min(text.length, start + MAX_URL);
  let depth = 0;
  for (let at = start + 1; at < limit; at += 1) {
    const char = text[at];
    if (char === ')' && depth === 0) return { url: text.slice(start + 1, at), end: at + 1 };
    if (char === ')') depth -= 1;
    else if (char === '(' && (depth += 1) > 1) return null;
    else if (/\s/.test(char)) return linkTitle(text, start, at);
  }
  return null;
}

const TITLE = /[ \t]+(?:"[^"\n(]{0,200}"|'[^'\n(]{0,200}')[ \t]?\)/y;

function linkTitle(text, start, at) {
  TITLE.lastIndex = at;
  return TITLE.test(text) ? { url: text.slice(start + 1, at), end: TITLE.lastIndex } : null;
}

// Punctuation at the end belongs to the sentence; so does a parenthesis that the address does not open.
function trimUrl(url) {
  let end = url.length;
  let surplus = url.split(')').length - url.split('(').length;
  for (; end > 0; end -= 1) {
    const char = url[end - 1];
    if (char === ')' && surplus > 0) surplus -= 1;
    else if (!'.,;:!?*_~]'.includes(char)) break;
  }
  return url.slice(0, end);
}

// Marks the delimiters that belong together (`starts`, `ends`). Delimiters inside a link are paired with each other only.
function pairDelimiters(tokens, isOpen) {
  let stack = new DelimiterStack();
  let outer = null;
  for (const token of tokens) {
    if (token.href && token.isBracket) {
      outer = stack;
      stack = new DelimiterStack();
    } else if (token.isLinkEnd) {
      stack = outer ?? stack;
      outer = null;
    } else if (token.kind) {
      if (!(token.canClose && stack.close(token)) && token.canOpen) stack.open(token);
    }
  }
  if (isOpen) stack.openers.filter((token) => token.tag === 'strong').forEach((token) => { token.starts = true; });
}

class DelimiterStack {
  openers = [];
  #counts = new Map();
  open(token) {
    this.openers.push(token);
    this.#count(token, 1);
  }
  // The count tells whether a search can succeed; a search removes all that it passes. So all searches together are linear.
  close(token) {
    if (!this.#counts.get(token.kind)) return false;
    for (;;) {
      const opener = this.openers.pop();
      this.#count(opener, -1);
      if (opener.kind !== token.kind) continue;
      opener.starts = true;
      token.ends = true;
      return true;
    }
  }
  #count(token, change) {
    this.#counts.set(token.kind, (this.#counts.get(token.kind) ?? 0) + change);
  }
}

function build(tokens) {
  const root = document.createDocumentFragment();
  const parents = [root];
  // Below the maximum depth, text is added without further elements.
  let surplus = 0;
  const descend = (node) => {
    if (parents.length > MAX_DEPTH) { surplus += 1; return; }
    parents.at(-1).append(node);
    parents.push(node);
  };
  const ascend = () => {
    if (surplus > 0) surplus -= 1;
    else if (parents.length > 1) parents.pop();
  };
  for (const token of tokens) {
    if (token.starts) descend(el(token.tag));
    else if (token.isBracket && token.href) descend(link(token.href));
    else if (token.ends || token.isLinkEnd) ascend();
    else parents.at(-1).append(leaf(token));
  }
  root.normalize();
  nameEmptyLinks(root);
  return root;
}

function leaf(token) {
  if (token.isBreak) return el('br');
  if (token.code !== undefined) return el('code', {}, token.code);
  if (token.href) return link(token.href, token.text);
  return token.text;
}

function nameEmptyLinks(root) {
  for (const node of root.querySelectorAll('a')) if (node.textContent.trim() === '') node.textContent = node.href;
}
