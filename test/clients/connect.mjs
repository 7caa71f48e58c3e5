// One face for both generations of the TypeScript SDK, so that the same steps
// run on each. v1 is @modelcontextprotocol/sdk, v2 is @modelcontextprotocol/client.
import { Client as ClientV1 } from '@modelcontextprotocol/sdk/client/index.js';
import { StreamableHTTPClientTransport as HttpV1 } from '@modelcontextprotocol/sdk/client/streamableHttp.js';
import { SSEClientTransport as SseV1 } from '@modelcontextprotocol/sdk/client/sse.js';
import { StdioClientTransport as StdioV1 } from '@modelcontextprotocol/sdk/client/stdio.js';
import * as schemas from '@modelcontextprotocol/sdk/types.js';
import * as v2 from '@modelcontextprotocol/client';
import { StdioClientTransport as StdioV2 } from '@modelcontextprotocol/client/stdio';

const info = { name: 'doorward-interop', version: '1.0.0' };
const capabilities = { sampling: {}, elicitation: {}, roots: { listChanged: true } };

const requests = {
  'elicitation/create': schemas.ElicitRequestSchema,
  'sampling/createMessage': schemas.CreateMessageRequestSchema,
  'roots/list': schemas.ListRootsRequestSchema,
};
const notifications = {
  'notifications/message': schemas.LoggingMessageNotificationSchema,
  'notifications/resources/updated': schemas.ResourceUpdatedNotificationSchema,
  'notifications/tools/list_changed': schemas.ToolListChangedNotificationSchema,
};

function transport(spec) {
  const [Http, Sse, Stdio] = spec.sdk === 'v1' ? [HttpV1, SseV1, StdioV1] : [v2.StreamableHTTPClientTransport, v2.SSEClientTransport, StdioV2];
  switch (spec.transport) {
    case 'http': return new Http(new URL(spec.url));
    case 'sse': return new Sse(new URL(spec.url));
    case 'stdio': return new Stdio({ command: spec.command, args: spec.args, env: spec.env, stderr: 'inherit' });
  }
  throw new Error(`no transport ${spec.transport}`);
}

// negotiation maps our word for the era to the SDK's: `modern` pins the
// revision, so that a fallback to the handshake cannot hide a failure.
function negotiation(era) {
  return { mode: era === 'modern' ? { pin: '2026-07-28' } : era };
}

// Servers ask for the roots of every client that declares them.
const always = { 'roots/list': () => ({ roots: [] }) };

// open connects a client and collects what comes unasked in client.seen.
export async function open(spec, handlers = {}) {
  const client = spec.sdk === 'v1'
    ? new ClientV1(info, { capabilities })
    : new v2.Client(info, { capabilities, versionNegotiation: negotiation(spec.era) });
  const on = spec.sdk === 'v1'
    ? [(m, f) => client.setRequestHandler(requests[m], f), (m, f) => client.setNotificationHandler(notifications[m], f)]
    : [(m, f) => client.setRequestHandler(m, f), (m, f) => client.setNotificationHandler(m, f)];
  for (const [method, handler] of Object.entries({ ...always, ...handlers })) on[0](method, handler);
  const seen = [];
  for (const method of Object.keys(notifications)) on[1](method, (n) => { seen.push(n); });
  const wire = transport(spec);
  await client.connect(wire);
  const modern = spec.sdk === 'v2' && client.getProtocolEra() === 'modern';
  return {
    client, seen, modern, wire,
    version: spec.sdk === 'v1' ? wire.protocolVersion : client.getNegotiatedProtocolVersion(),
    close: () => client.close(),
  };
}
