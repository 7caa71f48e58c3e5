// One modern client whose servers are not there yet: it lists the tools until those of
// all servers of its argument are there, or until it has waited for `limit` milliseconds.
// It prints the milliseconds of the first list and of the whole, and the names. The
// argument is that of suite.mjs, with `servers` and `limit`.
import { open } from './connect.mjs';

const spec = JSON.parse(process.argv[2]);
const begin = Date.now();
const { client, close, modern } = await open(spec);
const list = async () => (await client.listTools()).tools.map((t) => t.name);
let names = await list();
const first = Date.now() - begin;
const missing = () => spec.servers.filter((s) => !names.some((n) => n.startsWith(s + '__')));
while (missing().length > 0 && Date.now() - begin < spec.limit) {
  await new Promise((r) => setTimeout(r, 200));
  names = await list();
}
console.log(JSON.stringify({ modern, first, whole: Date.now() - begin, missing: missing(), names }));
await close();
