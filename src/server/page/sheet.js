// Style sheets for shadow roots. They are fetched and constructed, because that works under the strictest policy of a page for styles.

const sheets = new Map();

// The sheet of this folder with this name. All elements share it.
export function sheet(name) {
  if (!sheets.has(name)) {
    const made = load(name);
    sheets.set(name, made);
    made.catch(() => sheets.delete(name));
  }
  return sheets.get(name);
}

async function load(name) {
  const response = await fetch(new URL(name, import.meta.url), { credentials: 'omit' });
  if (!response.ok) throw new Error(`${name}: status ${response.status}`);
  const made = new CSSStyleSheet();
  made.replaceSync(await response.text());
  return made;
}
