// Requests to the server.

export class Api {
  #server;
  #rest = '/webhooks/rest';
  token = null;
  constructor(server) {
    this.#server = server;
  }
  async config() {
    const response = await this.#fetch('/chat/config.json', {});
    if (!response.ok) throw new Error(`status ${response.status}`);
    const config = await response.json();
    if (typeof config.rest === 'string') this.#rest = config.rest;
    return config;
  }
  send(sender, message, signal) {
    return this.#post('/webhook', { sender, message: message.text, message_id: message.id }, signal);
  }
  async stop(sender) {
    const response = await this.#post('/stop', { sender });
    if (!response.ok) throw new Error(`status ${response.status}`);
    return response.json();
  }
  events(sender, after, signal) {
    const query = new URLSearchParams({ sender, after });
    return this.#fetch(`${this.#rest}/events?${query}`, { signal, headers: { accept: 'text/event-stream', ...this.#token() } });
  }
  #post(path, body, signal) {
    const headers = { 'content-type': 'application/json', ...this.#token() };
    return this.#fetch(this.#rest + path, { method: 'POST', headers, body: JSON.stringify(body), signal });
  }
  #token() {
    return this.token ? { authorization: `Bearer ${this.token}` } : {};
  }
  // No cookies and no cache: the token in the header decides who reads.
  #fetch(path, options) {
    return fetch(this.#server + path, { credentials: 'omit', cache: 'no-store', ...options });
  }
}
