// Helpers that build DOM nodes. Texts become text nodes and never HTML, so that no message can add markup.

const SVG = 'http://www.w3.org/2000/svg';

// An element with attributes (`false`, `null` and `undefined` are left out; a function is a listener) and children.
export function el(tag, attributes = {}, ...children) {
  const node = document.createElement(tag);
  // The children come first: with `dir=auto`, a browser looks through all of them for each that is added.
  node.append(...children.filter((child) => child !== null && child !== undefined && child !== false));
  for (const [name, value] of Object.entries(attributes)) {
    if (typeof value === 'function') node.addEventListener(name, value);
    else if (value !== false && value !== null && value !== undefined) node.setAttribute(name, value === true ? '' : value);
  }
  return node;
}

// A drawing of 20 by 20 units. It is hidden from screen readers: the button around it has a label.
export function icon(path, filled = false) {
  const svg = document.createElementNS(SVG, 'svg');
  svg.setAttribute('viewBox', '0 0 20 20');
  svg.setAttribute('aria-hidden', 'true');
  svg.setAttribute('class', filled ? 'icon filled' : 'icon');
  const shape = document.createElementNS(SVG, 'path');
  shape.setAttribute('d', path);
  svg.append(shape);
  return svg;
}

// Replaces only the children that differ, so that a selection or the focus in the others survives.
export function replaceChanged(parent, children) {
  const old = [...parent.childNodes];
  children.forEach((child, index) => {
    const current = old[index];
    if (!current) parent.append(child);
    else if (!current.isEqualNode(child)) current.replaceWith(child);
  });
  old.slice(children.length).forEach((node) => node.remove());
}
