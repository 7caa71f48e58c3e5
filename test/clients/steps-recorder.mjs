// Steps against servers/recorder.mjs, which tells what reached it.
import { assert, textOf, rejects } from './check.mjs';

const seenBy = async (client, prefix) => JSON.parse(textOf(await client.callTool({ name: `${prefix}seen`, arguments: {} })));

export const recorder = {
  async cancel(connect, { prefix }) {
    const { client } = await connect();
    const stop = new AbortController();
    const options = { signal: stop.signal, onprogress: () => stop.abort('enough') };
    const started = Date.now();
    await rejects(client.callTool({ name: `${prefix}wait`, arguments: { ms: 45_000 } }, ...(client.getProtocolEra ? [options] : [undefined, options])));
    assert.ok(Date.now() - started < 30_000, 'the cancelled call went on');
    // The server must have heard of it, with the id of that very call.
    for (const end = Date.now() + 20_000; ;) {
      const seen = await seenBy(client, prefix);
      const call = seen.find((m) => m.method === 'tools/call' && m.params.name === 'wait');
      const cancelled = seen.find((m) => m.method === 'notifications/cancelled');
      if (cancelled) {
        assert.equal(cancelled.params.requestId, call.id);
        return;
      }
      assert.ok(Date.now() < end, 'the server was never told of the cancellation');
    }
  },

  async questions(connect, { prefix, label }) { // two rounds, whatever the eras
    const asked = [];
    const { client } = await connect({
      'elicitation/create': (r) => { asked.push(r.params.message); return { action: 'accept', content: { value: `answer ${asked.length}` } }; },
    });
    const got = await client.callTool({ name: `${prefix}ask`, arguments: {} });
    assert.equal(textOf(got), 'first=answer 1 second=answer 2');
    assert.equal(asked.length, 2);
    if (label) for (const message of asked) assert.ok(message.includes(label), message);
  },

  async arguments(connect, { prefix }) { // what went in is what came out
    const { client } = await connect();
    const args = { text: 'a\u0000b\u2028"\\/', big: 9007199254740991, deep: [[[{ x: null }]]], empty: {}, '': 1 };
    assert.deepEqual(JSON.parse(textOf(await client.callTool({ name: `${prefix}echo`, arguments: args }))), args);
    const long = 'x'.repeat(1 << 20);
    assert.equal(JSON.parse(textOf(await client.callTool({ name: `${prefix}echo`, arguments: { long } }))).long, long);
  },

  async unknown(connect, { prefix }) { // an error of the server arrives as it is
    const { client } = await connect();
    const e = await rejects(client.callTool({ name: `${prefix}nothing`, arguments: {} }));
    assert.equal(e.code, -32602, String(e));
  },

  async ordered(connect, { prefix }) { // many waits end in the order of their length, a second apart: the machine may be busy
    const { client } = await connect();
    const done = [];
    await Promise.all([2000, 0, 1000].map(async (ms) => {
      await client.callTool({ name: `${prefix}wait`, arguments: { ms } });
      done.push(ms);
    }));
    assert.deepEqual(done, [0, 1000, 2000]);
  },
};
