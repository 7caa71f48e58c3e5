// One client that lives longer than the daemon: it calls, prints `waiting`, and for each
// line on standard input calls again, answers what the server asks, and prints the texts
// as a JSON line. Its argument is that of suite.mjs; there are no steps.
import { createInterface } from 'node:readline';
import { open } from './connect.mjs';

const spec = JSON.parse(process.argv[2]);
const answers = { 'elicitation/create': async () => ({ action: 'accept', content: { value: 'yes' } }) };
const { client, close } = await open(spec, answers);
const call = async (name, args) => {
  const r = await client.callTool({ name: (spec.prefix ?? '') + name, arguments: args });
  return r.content[0].text;
};
await call('echo', { before: true });
console.log('waiting');
for await (const line of createInterface({ input: process.stdin })) {
  try {
    const names = (await client.listTools()).tools.map((t) => t.name);
    console.log(JSON.stringify({ line, tools: names.length, echo: await call('echo', { after: line }), ask: await call('ask', {}) }));
  } catch (e) {
    console.log(JSON.stringify({ line, error: String(e?.stack ?? e) }));
  }
}
await close();
