// OpenAI's SDK for JavaScript as a client of the channel `openai`: a streamed answer, a whole one, a request that is ended, errors.
// The arguments are the address of a server, its key, and the folder node_modules.
import assert from 'node:assert/strict';
import { createRequire } from 'node:module';
import { resolve } from 'node:path';

const [address, apiKey, nodeModules] = process.argv.slice(2);
const { default: OpenAI } = createRequire(resolve(nodeModules, 'package.json'))('openai');
const model = 'northwater_ferries';
const client = (id) => new OpenAI({ baseURL: id ? `${address}/v1/c/${id}` : `${address}/v1`, apiKey, maxRetries: 0 });

const messages = [{ role: 'user', content: 'Which boats go from Arnvik to Skelby tomorrow?' }];
const visitor = client('javascript');
const stream = visitor.chat.completions.stream({ model, messages });
let streamed = '';
stream.on('content', (delta) => { streamed += delta; });
const completion = await stream.finalChatCompletion();
assert.ok(streamed.includes('there are 3 boats'), streamed);
assert.equal(completion.choices[0].message.content, streamed);
assert.equal(completion.choices[0].finish_reason, 'stop');

messages.push(completion.choices[0].message, { role: 'user', content: 'Book the early one, please' });
const second = await visitor.chat.completions.create({ model, messages });
assert.match(second.choices[0].message.content, /how many/i);

// Ended while the assistant speaks: the next request is answered, and nothing of the old answer comes.
messages.push(second.choices[0].message, { role: 'user', content: 'Can we bring our dog?' });
const ended = await visitor.chat.completions.create({ model, messages, stream: true });
for await (const chunk of ended) {
  assert.equal(chunk.object, 'chat.completion.chunk');
  ended.controller.abort();
  break;
}
messages.push({ role: 'user', content: 'two' });
const third = await visitor.chat.completions.create({ model, messages });
assert.match(third.choices[0].message.content, /Shall I book it\?/);

await assert.rejects(client().chat.completions.create({ model, messages }), (error) =>
  error instanceof OpenAI.BadRequestError && error.code === 'conversation_id_required');
const models = await client().models.list();
assert.deepEqual(models.data.map((one) => one.id), [model]);
console.log('ok openai_sdk_for_javascript');
