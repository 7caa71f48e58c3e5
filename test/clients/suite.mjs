// Runs the steps that its one argument, a JSON object, asks for, each with a
// fresh connection, and prints one JSON line a step: {step, ok, error}.
//
//   sdk        v1 | v2                    transport  http | sse | stdio
//   era        legacy | auto | modern     url, or command + args + env
//   steps      names from the files steps-*.mjs
//   version    protocol version that must have been negotiated, if given
//   prefix     before tool and prompt names, on the aggregate
//   label      text that must stand in every elicitation's message, if given
//   sampling   whether the server may ask for samples and roots
import { open } from './connect.mjs';
import { conformance } from './steps-conformance.mjs';
import { everything } from './steps-everything.mjs';
import { recorder } from './steps-recorder.mjs';

const spec = JSON.parse(process.argv[2]);
const steps = { ...conformance, ...everything, ...recorder };

function withLimit(promise, ms) {
  let timer;
  const limit = new Promise((_, reject) => { timer = setTimeout(() => reject(new Error(`not done after ${ms} ms`)), ms); });
  return Promise.race([promise, limit]).finally(() => clearTimeout(timer));
}

let failed = false;
for (const name of spec.steps) {
  const report = { step: name, ok: true };
  const started = Date.now();
  const opened = [];
  // Steps open connections through this, so that a failed one is closed too.
  const connect = async (handlers) => {
    const c = await open(spec, handlers);
    opened.push(c);
    if (spec.version && c.version !== spec.version) throw new Error(`negotiated ${c.version}, not ${spec.version}`);
    return c;
  };
  try {
    if (!steps[name]) throw new Error('no such step');
    await withLimit(steps[name](connect, { prefix: '', sampling: true, ...spec }), 60_000);
  } catch (e) {
    failed = true;
    Object.assign(report, { ok: false, error: String(e?.stack ?? e) });
  }
  await withLimit(Promise.all(opened.map((c) => c.close())), 30_000).catch((e) => {
    failed = true;
    Object.assign(report, { ok: false, error: `closing: ${e}` });
  });
  console.log(JSON.stringify({ ...report, ms: Date.now() - started }));
}
process.exit(failed ? 1 : 0);
