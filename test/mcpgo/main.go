// Command mcpgo runs the steps in its argument, a JSON object, with a client of mcp-go, each on a
// new connection, and prints one JSON line for each step: {step, ok, error, version}. The server
// is one of the official conformance suite. With -restart as the first argument it is a client
// that outlives its server, like test/clients/restart.mjs.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/mark3labs/mcp-go/client"
	"github.com/mark3labs/mcp-go/client/transport"
	"github.com/mark3labs/mcp-go/mcp"
)

// spec describes the server and the steps.
type spec struct {
	Transport string            `json:"transport"` // http or stdio
	URL       string            `json:"url"`
	Command   string            `json:"command"`
	Args      []string          `json:"args"`
	Env       map[string]string `json:"env"`
	Era       string            `json:"era"` // legacy, or any that both sides support
	Steps     []string          `json:"steps"`
	Prefix    string            `json:"prefix"` // prefix of names on the aggregate
	answer    map[string]any
}

const limit = 20 * time.Second // of one step

func main() {
	var s spec
	if err := json.Unmarshal([]byte(os.Args[len(os.Args)-1]), &s); err != nil {
		panic(err)
	}
	if os.Args[1] == "-restart" {
		s.last()
		return
	}
	for _, name := range s.Steps {
		report := map[string]any{"step": name, "ok": true}
		if version, err := s.step(name); err != nil {
			report["ok"], report["error"] = false, err.Error()
		} else {
			report["version"] = version
		}
		line, _ := json.Marshal(report)
		fmt.Println(string(line))
	}
}

// step runs one step and returns the version that was negotiated.
func (s spec) step(name string) (string, error) {
	run := steps[name]
	if run == nil {
		return "", errors.New("no such step")
	}
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	p, err := s.open(ctx)
	if err != nil {
		return "", fmt.Errorf("connecting: %w", err)
	}
	defer p.Close()
	return p.ProtocolVersion(), run(ctx, p)
}

// peer is a connected client that answers the server's questions.
type peer struct {
	*client.Client
	prefix string

	mu   sync.Mutex
	seen []mcp.JSONRPCNotification
}

func (s spec) open(ctx context.Context) (*peer, error) {
	wire, err := s.transport()
	if err != nil {
		return nil, err
	}
	options := []client.ClientOption{client.WithElicitationHandler(answers{s.answer}), client.WithSamplingHandler(answers{s.answer})}
	if s.Era == "legacy" {
		options = append(options, client.WithLegacyProtocolOnly())
	}
	p := &peer{Client: client.NewClient(wire, options...), prefix: s.Prefix}
	p.OnNotification(func(n mcp.JSONRPCNotification) {
		p.mu.Lock()
		p.seen = append(p.seen, n)
		p.mu.Unlock()
	})
	if err := p.Start(ctx); err != nil {
		return nil, err
	}
	var hello mcp.InitializeRequest
	hello.Params.ClientInfo = mcp.Implementation{Name: "mcp-go", Version: "1"}
	hello.Params.ProtocolVersion = mcp.LATEST_PROTOCOL_VERSION
	if _, err := p.Initialize(ctx, hello); err != nil {
		return nil, errors.Join(err, p.Close())
	}
	return p, nil
}

func (s spec) transport() (transport.Interface, error) {
	if s.Transport == "stdio" {
		var env []string
		for name, value := range s.Env {
			env = append(env, name+"="+value)
		}
		return transport.NewStdio(s.Command, env, s.Args...), nil
	}
	if s.Era == "legacy" { // with a stream for the server's questions
		return transport.NewStreamableHTTP(s.URL, transport.WithContinuousListening())
	}
	return transport.NewStreamableHTTP(s.URL)
}

// answers acts as the user and the model of the client.
type answers struct{ content map[string]any }

func (a answers) Elicit(context.Context, mcp.ElicitationRequest) (*mcp.ElicitationResult, error) {
	if a.content == nil {
		a.content = map[string]any{"username": "ann", "email": "ann@example.org"}
	}
	return &mcp.ElicitationResult{ElicitationResponse: mcp.ElicitationResponse{Action: mcp.ElicitationResponseActionAccept, Content: a.content}}, nil
}

func (answers) CreateMessage(context.Context, mcp.CreateMessageRequest) (*mcp.CreateMessageResult, error) {
	return &mcp.CreateMessageResult{Model: "m", StopReason: "endTurn",
		SamplingMessage: mcp.SamplingMessage{Role: mcp.RoleAssistant, Content: mcp.NewTextContent("sampled")}}, nil
}

// steps maps names to interactions between a client and a server.
var steps = map[string]func(context.Context, *peer) error{
	"tools":       tools,
	"call":        simpleCall,
	"errors":      toolError,
	"parallel":    parallel,
	"progress":    progress,
	"logging":     logging,
	"prompts":     prompts,
	"resources":   resources,
	"elicitation": elicitation,
	"sampling":    sampling,
}

// call calls a tool and returns its first text.
func (p *peer) call(ctx context.Context, name string, args map[string]any, token any) (text string, failed bool, err error) {
	var r mcp.CallToolRequest
	r.Params.Name, r.Params.Arguments = p.prefix+name, args
	if token != nil {
		r.Params.Meta = &mcp.Meta{ProgressToken: token}
	}
	result, err := p.CallTool(ctx, r)
	if err != nil {
		return "", false, err
	}
	if len(result.Content) == 0 {
		return "", result.IsError, errors.New("no content")
	}
	content, _ := result.Content[0].(mcp.TextContent)
	return content.Text, result.IsError, nil
}

// says fails unless the text of a call contains part.
func (p *peer) says(ctx context.Context, name string, args map[string]any, part string) error {
	text, failed, err := p.call(ctx, name, args, nil)
	if err == nil && (failed || !strings.Contains(text, part)) {
		err = fmt.Errorf("%s: %q", name, text)
	}
	return err
}

func tools(ctx context.Context, p *peer) error {
	list, err := p.ListTools(ctx, mcp.ListToolsRequest{})
	if err != nil {
		return err
	}
	for _, t := range list.Tools {
		if t.Name == p.prefix+"test_simple_text" {
			return nil
		}
	}
	return fmt.Errorf("%d tools, and not the one", len(list.Tools))
}

func simpleCall(ctx context.Context, p *peer) error {
	return p.says(ctx, "test_simple_text", nil, "This is a simple text response for testing.")
}

func toolError(ctx context.Context, p *peer) error {
	text, failed, err := p.call(ctx, "test_error_handling", nil, nil)
	if err == nil && !failed {
		err = fmt.Errorf("no error: %q", text)
	}
	return err
}

func parallel(ctx context.Context, p *peer) error {
	errs := make([]error, 30)
	var all sync.WaitGroup
	for i := range errs {
		all.Go(func() {
			if i%2 == 0 {
				errs[i] = simpleCall(ctx, p)
			} else {
				errs[i] = toolError(ctx, p)
			}
		})
	}
	all.Wait()
	return errors.Join(errs...)
}

// heard waits until n notifications of a method have arrived.
func (p *peer) heard(ctx context.Context, method string, n int) error {
	for {
		p.mu.Lock()
		got := 0
		for _, s := range p.seen {
			if s.Method == method {
				got++
			}
		}
		p.mu.Unlock()
		if got >= n {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%d times %s, want %d", got, method, n)
		case <-time.After(10 * time.Millisecond):
		}
	}
}

func progress(ctx context.Context, p *peer) error {
	if _, _, err := p.call(ctx, "test_tool_with_progress", nil, "p"); err != nil {
		return err
	}
	return p.heard(ctx, "notifications/progress", 3)
}

func logging(ctx context.Context, p *peer) error {
	var r mcp.SetLevelRequest
	r.Params.Level = mcp.LoggingLevelDebug
	if err := p.SetLevel(ctx, r); err != nil {
		return err
	}
	if _, _, err := p.call(ctx, "test_tool_with_logging", nil, nil); err != nil {
		return err
	}
	return p.heard(ctx, "notifications/message", 3)
}

func prompts(ctx context.Context, p *peer) error {
	var r mcp.GetPromptRequest
	r.Params.Name = p.prefix + "test_simple_prompt"
	got, err := p.GetPrompt(ctx, r)
	if err != nil {
		return err
	}
	if len(got.Messages) != 1 {
		return fmt.Errorf("%d messages", len(got.Messages))
	}
	return nil
}

func resources(ctx context.Context, p *peer) error {
	list, err := p.ListResources(ctx, mcp.ListResourcesRequest{})
	if err != nil {
		return err
	}
	for _, resource := range list.Resources {
		if !strings.HasSuffix(resource.URI, "static-text") {
			continue
		}
		var r mcp.ReadResourceRequest
		r.Params.URI = resource.URI
		got, err := p.ReadResource(ctx, r)
		if err == nil && len(got.Contents) != 1 {
			err = fmt.Errorf("%d contents", len(got.Contents))
		}
		return err
	}
	return fmt.Errorf("%d resources, and not the one", len(list.Resources))
}

func elicitation(ctx context.Context, p *peer) error {
	return p.says(ctx, "test_elicitation", map[string]any{"message": "who?"}, "accept")
}

func sampling(ctx context.Context, p *peer) error {
	return p.says(ctx, "test_sampling", map[string]any{"prompt": "say"}, "sampled")
}
