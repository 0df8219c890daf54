// Pauses before a repeated request.

const FIRST = 500;
const LONGEST = 10_000;
const LONGEST_ASKED = 120_000;

// The pause before attempt `count` (0 is the first repetition), in milliseconds. Half of it is random: many pages must not return at once.
export function growing(count) {
  const full = Math.min(LONGEST, FIRST * 2 ** Math.min(count, 10));
  return full / 2 + Math.random() * full / 2;
}

// The pause that a response asks for with `Retry-After`, in milliseconds, or `null`.
export function asked(response) {
  const value = response.headers.get('retry-after');
  if (!value) return null;
  const seconds = Number(value);
  const milliseconds = Number.isFinite(seconds) ? seconds * 1000 : Date.parse(value) - Date.now();
  return Number.isFinite(milliseconds) ? Math.min(Math.max(milliseconds, FIRST), LONGEST_ASKED) : null;
}

// A pause that can be ended early.
export class Pause {
  #end = null;
  wait(milliseconds) {
    this.end();
    return new Promise((resolve) => {
      const timer = setTimeout(() => this.end(), milliseconds);
      this.#end = () => { clearTimeout(timer); resolve(); };
    });
  }
  end() {
    const end = this.#end;
    this.#end = null;
    end?.();
  }
}
