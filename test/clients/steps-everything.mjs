// Steps against the public server-everything and server-filesystem, whose era
// is the legacy one.
import { assert, textOf } from './check.mjs';
import { progressOf } from './steps-conformance.mjs';

export const everything = {
  async 'everything-tools'(connect, { prefix }) {
    const { client } = await connect();
    const names = (await client.listTools()).tools.map((t) => t.name);
    for (const name of ['echo', 'get-sum', 'get-structured-content']) assert.ok(names.includes(prefix + name), `${name} is not in ${names}`);
    assert.equal(textOf(await client.callTool({ name: `${prefix}echo`, arguments: { message: 'häl\u2028lo \u{1F600}' } })), 'Echo: häl\u2028lo \u{1F600}');
    assert.match(textOf(await client.callTool({ name: `${prefix}get-sum`, arguments: { a: 2, b: 40 } })), /\b42\b/);
    const weather = await client.callTool({ name: `${prefix}get-structured-content`, arguments: { location: 'Chicago' } });
    assert.deepEqual(weather.structuredContent, { temperature: 36, conditions: 'Light rain / drizzle', humidity: 82 });
    const image = await client.callTool({ name: `${prefix}get-tiny-image`, arguments: {} });
    assert.ok(image.content.some((c) => c.type === 'image' && c.data.length > 100));
  },

  async 'everything-offers'(connect, { prefix }) {
    const { client } = await connect();
    const { prompts } = await client.listPrompts();
    assert.ok(prompts.some((p) => p.name === `${prefix}args-prompt`), JSON.stringify(prompts.map((p) => p.name)));
    const got = await client.getPrompt({ name: `${prefix}args-prompt`, arguments: { city: 'Bern' } });
    assert.match(JSON.stringify(got.messages), /Bern/);
    const { resources } = await client.listResources();
    assert.ok(resources.length > 0);
    const read = await client.readResource({ uri: resources[0].uri });
    assert.ok(read.contents.length > 0);
    const done = await client.complete({ ref: { type: 'ref/prompt', name: `${prefix}completable-prompt` }, argument: { name: 'department', value: 'E' } });
    assert.ok(done.completion.values.includes('Engineering'), JSON.stringify(done));
  },

  async 'everything-progress'(connect, { prefix }) {
    const { client, wire } = await connect();
    const got = progressOf(wire);
    const onprogress = () => {}; // asks for progress
    const options = client.getProtocolEra ? [{ onprogress }] : [undefined, { onprogress }];
    const done = await client.callTool({ name: `${prefix}trigger-long-running-operation`, arguments: { duration: 0.4, steps: 4 } }, ...options);
    assert.match(textOf(done), /completed/);
    assert.deepEqual(got.map((p) => p.progress), [1, 2, 3, 4]);
  },

  async 'everything-elicitation'(connect, { prefix, label }) {
    const asked = [];
    const c = await connect({
      'elicitation/create': (r) => { asked.push(r.params); return { action: 'accept', content: { name: 'Ada Lovelace' } }; },
    });
    const got = await c.client.callTool({ name: `${prefix}trigger-elicitation-request`, arguments: {} });
    assert.match(JSON.stringify(got.content), /Ada Lovelace/);
    assert.equal(asked.length, 1);
    if (label) assert.ok(asked[0].message.includes(label), asked[0].message);
    assert.deepEqual(asked[0].requestedSchema.properties.legacyTitledEnum.enumNames, ['Cats', 'Dogs', 'Birds', 'Fish', 'Reptiles']);
  },

  async files(connect, { prefix, folder }) {
    const { client } = await connect();
    const names = (await client.listTools()).tools.map((t) => t.name);
    assert.ok(names.includes(`${prefix}read_text_file`), String(names));
    const path = `${folder}/note.txt`;
    await client.callTool({ name: `${prefix}write_file`, arguments: { path, content: 'written through the door\n' } });
    assert.equal(textOf(await client.callTool({ name: `${prefix}read_text_file`, arguments: { path } })), 'written through the door\n');
    const outside = await client.callTool({ name: `${prefix}read_text_file`, arguments: { path: '/etc/hostname' } }).catch((e) => ({ isError: true, content: [{ text: String(e) }] }));
    assert.equal(outside.isError, true, 'a file outside of the allowed folder was read');
  },
};
