package telemetry

import (
	"context"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"

	"github.com/doorward/doorward/internal/base/rawjson"
	"github.com/doorward/doorward/internal/downstream/front"
	"github.com/doorward/doorward/internal/relay"
	"github.com/doorward/doorward/internal/trust/wire"
)

// Attributes of spans. The names with mcp., gen_ai. and error. are those of OpenTelemetry's
// semantic conventions for MCP.
const (
	attrMethod    = attribute.Key("mcp.method.name")
	attrVersion   = attribute.Key("mcp.protocol.version")
	attrTool      = attribute.Key("gen_ai.tool.name")
	attrError     = attribute.Key("error.type")
	attrCode      = attribute.Key("rpc.response.status_code")
	attrServer    = attribute.Key("doorward.server")
	attrPrincipal = attribute.Key("doorward.principal")
	attrResult    = attribute.Key("doorward.result")
	attrRef       = attribute.Key("doorward.audit.ref")
)

// The members of _meta and the headers of a trace context (W3C Trace Context, SEP-414).
const (
	parentKey = "traceparent"
	stateKey  = "tracestate"
)

// mostState is the length of the longest tracestate that is passed on, which is the minimum
// that W3C Trace Context requires. The caller writes it, and it is sent to the collector.
const mostState = 512

// span begins the span of a stage.
func (t *Telemetry) span(ctx context.Context, m relay.Mark) (context.Context, relay.Mark) {
	name, kind := "decision", trace.SpanKindInternal
	switch m.Stage {
	case relay.StageApproval:
		name = "approval"
	case relay.StageServer:
		name, kind = spanOf(m.Method), trace.SpanKindClient
	case relay.StageKnown:
		name = "known list"
	}
	ctx, s := t.tracer.Start(ctx, name, trace.WithSpanKind(kind), trace.WithAttributes(attrMethod.String(spanOf(m.Method)), attrServer.String(m.Server)))
	m.Span = s
	return ctx, m
}

// endSpan ends the span of a stage. The name of a tool becomes an attribute only if it is
// known.
func (t *Telemetry) endSpan(m relay.Mark, result string) {
	s, ok := m.Span.(trace.Span)
	if !ok {
		return
	}
	if m.Method == toolCall && !m.Uncounted {
		tool := t.calls.of(m).key.name
		s.SetAttributes(attrTool.String(tool))
		if m.Stage == relay.StageServer {
			s.SetName(toolCall + " " + tool)
		}
	}
	if m.Ref != 0 {
		s.SetAttributes(attrRef.Int64(int64(m.Ref)))
	}
	s.SetAttributes(attrResult.String(result))
	if result != "ok" && result != "held" && result != "pending" {
		s.SetStatus(codes.Error, "")
		s.SetAttributes(attrError.String(wordOf(result)))
	}
	s.End()
}

// Carry implements relay.Observer.
func (t *Telemetry) Carry(ctx context.Context) (traceparent, tracestate string) {
	if t.tracer == nil {
		return "", ""
	}
	c := propagation.MapCarrier{}
	propagation.TraceContext{}.Inject(ctx, c)
	return c[parentKey], c[stateKey]
}

// Door returns h with a span around each request; without a collector it is h itself.
func (t *Telemetry) Door(h front.Handler) front.Handler {
	if t.tracer == nil {
		return h
	}
	return door{h, t}
}

type door struct {
	front.Handler
	t *Telemetry
}

// Request implements front.Handler.
func (d door) Request(ctx context.Context, x *front.Exchange) front.Reply {
	ctx, s := d.begin(ctx, x)
	defer s.End()
	reply := d.Handler.Request(ctx, x).Answer(ctx) // the span ends with the answer
	switch {
	case reply.None:
		s.SetAttributes(attrResult.String("cancelled"))
	case reply.Error != nil:
		s.SetStatus(codes.Error, "")
		s.SetAttributes(attrResult.String("error"), attrCode.Int64(reply.Error.Code))
	default:
		s.SetAttributes(attrResult.String("ok"))
	}
	return reply
}

// Notification implements front.Handler.
func (d door) Notification(ctx context.Context, x *front.Exchange) *wire.Error {
	if x.Method == front.Listening {
		return d.Handler.Notification(ctx, x)
	}
	ctx, s := d.begin(ctx, x)
	defer s.End()
	e := d.Handler.Notification(ctx, x)
	result := "ok"
	if e != nil {
		result = "error"
		s.SetStatus(codes.Error, "")
		s.SetAttributes(attrCode.Int64(e.Code))
	}
	s.SetAttributes(attrResult.String(result))
	return e
}

// begin begins the span of a message, at the time when its request arrived.
func (d door) begin(ctx context.Context, x *front.Exchange) (context.Context, trace.Span) {
	method := spanOf(x.Method)
	o := []trace.SpanStartOption{trace.WithSpanKind(trace.SpanKindServer), trace.WithAttributes(
		attrMethod.String(method), attrVersion.String(x.Version), attrServer.String(x.Server), attrPrincipal.String(x.Who.Name()))}
	if at := x.Arrived(); !at.IsZero() {
		o = append(o, trace.WithTimestamp(at))
	}
	return d.t.tracer.Start(joined(ctx, x), method, o...)
}

// notifications is the set of clients' notifications with a name of their own in spans.
var notifications = map[string]bool{
	"notifications/cancelled": true, "notifications/initialized": true, "notifications/progress": true, "notifications/roots/list_changed": true,
	"notifications/tasks/status": true,
}

// spanOf returns the name of a message in spans.
func spanOf(method string) string {
	if notifications[method] {
		return method
	}
	return methodOf(method)
}

// joined adds the client's trace to ctx. _meta takes precedence over the headers, which a
// program in between may have set.
func joined(ctx context.Context, x *front.Exchange) context.Context {
	meta := rawjson.Get(x.Params, "_meta")
	parent, _ := rawjson.GetString(meta, parentKey)
	state, _ := rawjson.GetString(meta, stateKey)
	if parent == "" {
		parent, state = x.Sent(parentKey), x.Sent(stateKey)
	}
	if len(state) > mostState {
		state = ""
	}
	return propagation.TraceContext{}.Extract(ctx, propagation.MapCarrier{parentKey: parent, stateKey: state})
}
