// Values in localStorage and sessionStorage. A browser can forbid both; the chat then keeps the values for as long as the page is open.

class Store {
  #memory = new Map();
  #area;
  constructor(name) {
    try { this.#area = globalThis[name]; } catch { /* forbidden */ }
  }
  get(key) {
    try {
      const value = this.#area.getItem(key);
      if (value !== null) return value;
    } catch { /* forbidden */ }
    return this.#memory.get(key) ?? null;
  }
  set(key, value) {
    this.#memory.set(key, value);
    try { this.#area.setItem(key, value); } catch { /* forbidden or full */ }
  }
  remove(key) {
    this.#memory.delete(key);
    try { this.#area.removeItem(key); } catch { /* forbidden */ }
  }
}

export const shared = new Store('localStorage');
export const ownTab = new Store('sessionStorage');

// A random id. `randomUUID` is missing on pages without TLS.
export function newId() {
  if (crypto.randomUUID) return crypto.randomUUID();
  const bytes = crypto.getRandomValues(new Uint8Array(16));
  bytes[6] = (bytes[6] & 0x0f) | 0x40;
  bytes[8] = (bytes[8] & 0x3f) | 0x80;
  const hex = [...bytes].map((byte) => byte.toString(16).padStart(2, '0')).join('');
  return hex.replace(/^(.{8})(.{4})(.{4})(.{4})(.{12})$/, '$1-$2-$3-$4-$5');
}
