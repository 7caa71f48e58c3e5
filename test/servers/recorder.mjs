// An MCP server on stdio that remembers what reached it and answers with bytes
// that no library would write, so that tests can tell what a gateway changed.
//
//   node recorder.mjs [legacy|modern]     (default legacy: 2025-11-25)
//
// tools: wait {ms}   answers after ms, unless it is cancelled before
//        seen        every message that came so far, as JSON text
//        exact       a result with odd but valid JSON
//        echo {...}  the bytes of the arguments as they came, as text
//        ask         two questions one after the other, then both answers
import { createInterface } from 'node:readline';

const modern = process.argv[2] === 'modern';
const version = modern ? '2026-07-28' : '2025-11-25';
const seen = [];
const waiting = new Map(); // request id -> timer
const asked = new Map(); // our request id -> resolve
let nextAsk = 1;

const exact =
  '{"vendor":{"z":1,"a":[1.0,1e2,-0.0,9007199254740993],"\\u00e9":"\\/"},' +
  '"content":[{"type":"text","text":"exact","annotations":{"later":true}},{"type":"vendor/unknown","x":null}],"isError":false' +
  (modern ? ',"resultType":"complete"' : '') + '}';

const send = (text) => process.stdout.write(text + '\n');
const envelope = (id, body) => send(`{"jsonrpc":"2.0","id":${JSON.stringify(id)},${body}}`);
const result = (id, value) => {
  const whole = modern ? { resultType: 'complete', ...value } : value;
  envelope(id, `"result":${JSON.stringify(whole)}`);
};
const fail = (id, code, message, data) => envelope(id, `"error":${JSON.stringify({ code, message, data })}`);
const text = (id, value) => result(id, { content: [{ type: 'text', text: value }] });

const question = (word) => ({
  method: 'elicitation/create',
  params: {
    message: `${word}?`,
    requestedSchema: { type: 'object', properties: { value: { type: 'string' } }, required: ['value'] },
  },
});

function ask(word) {
  const id = `ask-${nextAsk++}`;
  const { method, params } = question(word);
  send(JSON.stringify({ jsonrpc: '2.0', id, method, params }));
  return new Promise((resolve) => asked.set(id, resolve));
}

// member is the value of the first member of that name in a line, byte for byte.
function member(line, name) {
  const start = line.indexOf(`"${name}":`) + name.length + 3;
  let depth = 0;
  for (let i = start, inString = false; i < line.length; i++) {
    const c = line[i];
    if (inString) {
      if (c === '\\') i++;
      else if (c === '"') inString = false;
    } else if (c === '"') inString = true;
    else if ('{['.includes(c)) depth++;
    else if ('}]'.includes(c) && --depth === 0) return line.slice(start, i + 1);
  }
  return '';
}

const answer = (reply) => (reply?.action === 'accept' ? reply.content.value : (reply?.action ?? 'error'));

async function askTwice(id, params) {
  if (!modern) {
    const first = await ask('first');
    const second = await ask('second');
    return text(id, `first=${answer(first)} second=${answer(second)}`);
  }
  const { inputResponses: got = {}, requestState: state } = params;
  if (got.second && state) return text(id, `first=${state} second=${answer(got.second)}`);
  if (got.first) {
    return result(id, {
      resultType: 'input_required', inputRequests: { second: question('second') }, requestState: answer(got.first),
    });
  }
  return result(id, { resultType: 'input_required', inputRequests: { first: question('first') } });
}

function call(id, params, line) {
  const args = params.arguments ?? {};
  const token = params._meta?.progressToken;
  switch (params.name) {
    case 'wait':
      if (token !== undefined) {
        const progress = { progressToken: token, progress: 1, total: 2 };
        send(JSON.stringify({ jsonrpc: '2.0', method: 'notifications/progress', params: progress }));
      }
      waiting.set(id, setTimeout(() => { waiting.delete(id); text(id, 'waited'); }, args.ms ?? 0));
      return;
    case 'seen': return text(id, JSON.stringify(seen));
    case 'exact': return envelope(id, `"result":${exact}`);
    case 'echo': return text(id, member(line, 'arguments'));
    case 'ask': return void askTwice(id, params);
    default: return fail(id, -32602, 'no such tool', { vendor: 1 });
  }
}

const tool = (name, properties = {}) => ({ name, description: `the tool ${name}`, inputSchema: { type: 'object', properties } });
const tools = [tool('wait', { ms: { type: 'integer' } }), tool('seen'), tool('exact'), tool('echo'), tool('ask')];
const info = { name: 'recorder', version: '1.0.0' };
const cached = { ttlMs: 0, cacheScope: 'private' };

function request(id, method, params, line) {
  switch (method) {
    case 'initialize':
      if (modern) break;
      return result(id, { protocolVersion: version, capabilities: { tools: {} }, serverInfo: info });
    case 'server/discover':
      if (!modern) break;
      return result(id, {
        supportedVersions: [version], capabilities: { tools: {} }, ...cached,
        _meta: { 'io.modelcontextprotocol/serverInfo': info },
      });
    case 'ping':
      if (modern) break;
      return result(id, {});
    case 'tools/list': return result(id, modern ? { tools, ...cached } : { tools });
    case 'tools/call': return call(id, params, line);
    case 'vendor/echo': return result(id, { later: member(line, 'later') });
  }
  fail(id, -32601, 'method not found');
}

createInterface({ input: process.stdin }).on('line', (line) => {
  const message = JSON.parse(line);
  seen.push(message);
  if (message.method === undefined) return asked.get(message.id)?.(message.result);
  if (message.id !== undefined) return request(message.id, message.method, message.params ?? {}, line);
  if (message.method === 'notifications/cancelled') {
    clearTimeout(waiting.get(message.params.requestId));
    waiting.delete(message.params.requestId);
  }
});
