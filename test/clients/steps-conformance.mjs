// Steps against go-sdk's conformance server, which speaks either era.
import { assert, until, textOf, rejects } from './check.mjs';

const logLevel = 'io.modelcontextprotocol/logLevel';
const accept = (content) => ({ action: 'accept', content });

async function changed(c, kind, trigger) {
  if (c.modern) await c.client.listen({ toolsListChanged: true });
  await trigger();
  await until(kind, () => c.seen.some((n) => n.method === kind));
}

export const conformance = {
  async identity(connect) {
    const c = await connect();
    assert.ok(c.client.getServerVersion()?.name, 'the server has no name');
    assert.ok(c.client.getServerCapabilities()?.tools, 'no tools capability');
    if (!c.modern) assert.deepEqual(await c.client.ping(), {});
  },

  async tools(connect, { prefix }) {
    const { client } = await connect();
    const { tools } = await client.listTools();
    const names = tools.map((t) => t.name);
    for (const name of ['test_simple_text', 'test_tool_with_progress', 'test_x_mcp_header']) assert.ok(names.includes(prefix + name), `${prefix}${name} is not listed`);
    assert.equal(new Set(names).size, names.length, 'a tool is listed twice');
    const schema = tools.find((t) => t.name === `${prefix}json_schema_2020_12_tool`).inputSchema;
    assert.equal(schema.additionalProperties, false);
    assert.deepEqual(schema.then, { required: ['phone'] });
  },

  async call(connect, { prefix }) {
    const { client } = await connect();
    const plain = await client.callTool({ name: `${prefix}test_simple_text`, arguments: {} });
    assert.equal(textOf(plain), 'This is a simple text response for testing.');
    const mixed = await client.callTool({ name: `${prefix}test_multiple_content_types`, arguments: {} });
    assert.deepEqual(mixed.content.map((c) => c.type), ['text', 'image', 'resource']);
    const header = await client.callTool({ name: `${prefix}test_x_mcp_header`, arguments: { region: 'été 1' } });
    assert.notEqual(header.isError, true, textOf(header));
  },

  async errors(connect, { prefix }) {
    const { client } = await connect();
    const failed = await client.callTool({ name: `${prefix}test_error_handling`, arguments: {} });
    assert.equal(failed.isError, true);
    assert.match(textOf(failed), /intentionally returns an error/);
    const unknown = await rejects(client.callTool({ name: `${prefix}no_such_tool`, arguments: {} }));
    assert.equal(unknown.code, -32602, String(unknown));
  },

  async parallel(connect, { prefix }) {
    const { client } = await connect();
    const names = ['test_simple_text', 'test_error_handling', 'test_image_content'];
    const calls = Array.from({ length: 30 }, (_, i) => client.callTool({ name: prefix + names[i % 3], arguments: {} }));
    for (const [i, r] of (await Promise.all(calls)).entries()) {
      const good = [() => textOf(r).startsWith('This is a simple'), () => r.isError, () => r.content[0].type === 'image'][i % 3];
      assert.ok(good(), `answer ${i} belongs to another call: ${JSON.stringify(r)}`);
    }
  },

  async progress(connect, { prefix }) {
    const { client, wire } = await connect();
    const got = progressOf(wire), told = [];
    await client.callTool({ name: `${prefix}test_tool_with_progress`, arguments: {} }, ...progressArgs(client, (p) => told.push(p.progress)));
    assert.deepEqual(got.map((p) => p.progress), [0, 50, 100]);
    assert.deepEqual(got.map((p) => p.total), [100, 100, 100]);
    assert.deepEqual(told, [0, 50, 100].slice(0, told.length));
    assert.equal(got[1].message, 'Completed step 50 of 100');
  },

  async logging(connect, { prefix }) {
    const c = await connect();
    const call = { name: `${prefix}test_tool_with_logging`, arguments: {} };
    if (c.modern) call._meta = { [logLevel]: 'debug' };
    else assert.deepEqual(await c.client.setLoggingLevel('debug'), {});
    await c.client.callTool(call);
    const logs = () => c.seen.filter((n) => n.method === 'notifications/message');
    await until('three log messages', () => logs().length >= 3);
    assert.deepEqual(logs().map((n) => n.params.data), ['Tool execution started', 'Tool processing data', 'Tool execution completed']);
  },

  async quiet(connect, { prefix }) { // a modern request without a level gets no log
    const c = await connect();
    await c.client.callTool({ name: `${prefix}test_tool_with_logging`, arguments: {} });
    assert.deepEqual(c.seen.filter((n) => n.method === 'notifications/message'), []);
  },

  async prompts(connect, { prefix }) {
    const { client } = await connect();
    const { prompts } = await client.listPrompts();
    assert.ok(prompts.some((p) => p.name === `${prefix}test_prompt_with_arguments`));
    const got = await client.getPrompt({ name: `${prefix}test_prompt_with_arguments`, arguments: { arg1: 'a', arg2: 'b' } });
    assert.equal(got.messages[0].content.text, "Prompt with arguments: arg1='a', arg2='b'");
  },

  async resources(connect) {
    const { client } = await connect();
    const { resources } = await client.listResources();
    assert.ok(resources.some((r) => r.uri === 'test://static-text'));
    const { resourceTemplates } = await client.listResourceTemplates();
    assert.ok(resourceTemplates.some((r) => r.uriTemplate === 'test://template/{id}/data'));
    const read = async (uri) => (await client.readResource({ uri })).contents[0];
    assert.equal((await read('test://static-text')).text, 'This is the content of the static text resource.');
    assert.ok(Buffer.from((await read('test://static-binary')).blob, 'base64').subarray(1, 4).equals(Buffer.from('PNG')));
    assert.equal(JSON.parse((await read('test://template/42/data')).text).id, '42');
    const missing = await rejects(client.readResource({ uri: 'test://nowhere' }));
    assert.ok([-32002, -32602].includes(missing.code), String(missing));
  },

  async subscribe(connect) {
    const c = await connect();
    const uri = 'test://watched-resource';
    if (c.modern) await c.client.listen({ resourceSubscriptions: [uri] });
    else assert.deepEqual(await c.client.subscribeResource({ uri }), {});
    const updated = () => c.seen.filter((n) => n.method === 'notifications/resources/updated');
    await until('an update of the watched resource', () => updated().some((n) => n.params.uri === uri));
    if (c.modern) return;
    await c.client.unsubscribeResource({ uri });
    await new Promise((resolve) => setTimeout(resolve, 500)); // one may be on its way
    const before = updated().length;
    await new Promise((resolve) => setTimeout(resolve, 3_500)); // the fixture updates every 3 s
    assert.equal(updated().length, before, 'updates go on after unsubscribe');
  },

  async changes(connect, { prefix }) {
    const c = await connect();
    await changed(c, 'notifications/tools/list_changed', () => c.client.callTool({ name: `${prefix}test_trigger_tool_change`, arguments: {} }));
  },

  async completion(connect, { prefix }) {
    const { client } = await connect();
    const got = await client.complete({ ref: { type: 'ref/prompt', name: `${prefix}test_prompt_with_arguments` }, argument: { name: 'arg1', value: 'x' } });
    assert.deepEqual(got.completion.values, []);
  },

  async elicitation(connect, { prefix, label }) {
    const asked = [];
    const c = await connect({ 'elicitation/create': (r) => { asked.push(r.params); return accept({ username: 'ada', name: 'ada' }); } });
    // go-sdk's tools ask by a request in the legacy era and by their result in the modern one.
    const got = c.modern
      ? await c.client.callTool({ name: `${prefix}test_input_required_result_elicitation`, arguments: {} })
      : await c.client.callTool({ name: `${prefix}test_elicitation`, arguments: { message: 'Who are you?' } });
    assert.match(textOf(got), /ada/);
    assert.equal(asked.length, 1);
    assert.ok(asked[0].message.includes(c.modern ? 'What is your name?' : 'Who are you?'), asked[0].message);
    if (label) assert.ok(asked[0].message.includes(label), `the question does not name its server: ${asked[0].message}`);
    assert.equal(asked[0].requestedSchema.type, 'object');
  },

  async declined(connect, { prefix }) {
    const c = await connect({ 'elicitation/create': () => ({ action: 'decline' }) });
    if (c.modern) return; // the modern tool knows one way to answer only
    const got = await c.client.callTool({ name: `${prefix}test_elicitation`, arguments: { message: 'Who?' } });
    assert.match(textOf(got), /action=decline/);
  },

  async sampling(connect, { prefix, sampling }) {
    let asked = 0;
    const reply = { role: 'assistant', content: { type: 'text', text: 'Paris' }, model: 'none', stopReason: 'endTurn' };
    const c = await connect({ 'sampling/createMessage': () => { asked++; return reply; } });
    const call = c.modern ? { name: 'test_input_required_result_sampling', arguments: {} } : { name: 'test_sampling', arguments: { prompt: 'capital of France?' } };
    const outcome = c.client.callTool({ ...call, name: prefix + call.name });
    if (sampling) {
      assert.match(textOf(await outcome), /Paris/);
      assert.equal(asked, 1);
      return;
    }
    // Refused: the model of the user is not reached, and the call ends in some error.
    const got = await outcome.catch((e) => ({ isError: true, error: e }));
    assert.equal(got.isError, true, JSON.stringify(got));
    assert.equal(asked, 0, 'a refused sampling request reached the client');
  },

  async rounds(connect, { prefix }) { // several rounds, kinds and a requestState; modern only
    const questions = [];
    const c = await connect({
      'elicitation/create': (r) => { questions.push(r.params.message); return accept({ name: 'ada', color: 'blue', ok: true }); },
      'sampling/createMessage': () => ({ role: 'assistant', content: { type: 'text', text: 'hi' }, model: 'none' }),
      'roots/list': () => ({ roots: [{ uri: 'file:///tmp/x', name: 'x' }] }),
    });
    assert.ok(c.modern);
    for (const name of ['multi_round', 'multiple_inputs', 'request_state', 'list_roots']) {
      const got = await c.client.callTool({ name: `${prefix}test_input_required_result_${name}`, arguments: {} });
      assert.notEqual(got.isError, true, `${name}: ${textOf(got)}`);
    }
    assert.equal(questions.filter((q) => /Step [12]/.test(q)).length, 2, questions.join(' | '));
  },

  async reconnection(connect, { prefix }) { // the server ends the stream in mid-call
    const { client } = await connect();
    const got = await client.callTool({ name: `${prefix}test_reconnection`, arguments: {} });
    assert.match(textOf(got), /Reconnection test completed successfully/);
  },
};

// progressOf collects the progress that arrives on a connection. A callback of
// the SDK is not told what is read in one go with the answer, which removes it.
export function progressOf(wire) {
  const got = [], next = wire.onmessage;
  wire.onmessage = (message, ...rest) => {
    if (message.method === 'notifications/progress') got.push(message.params);
    next(message, ...rest);
  };
  return got;
}

// progressArgs: v1 takes a result schema before the options, v2 does not.
function progressArgs(client, onprogress) {
  return client.getProtocolEra ? [{ onprogress }] : [undefined, { onprogress }];
}
