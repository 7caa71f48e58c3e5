package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"os"

	"github.com/mark3labs/mcp-go/mcp"
)

// round is the client's report after each restart.
type round struct {
	Line  string `json:"line"`
	Tools int    `json:"tools,omitempty"`
	Echo  string `json:"echo,omitempty"`
	Ask   string `json:"ask,omitempty"`
	Error string `json:"error,omitempty"`
}

// last calls the server and prints waiting. Then, for each line of standard input, it lists,
// calls, and answers the server's question, in the same session.
func (s spec) last() {
	s.answer = map[string]any{"value": "yes"}
	p, err := s.open(context.Background())
	if err == nil {
		_, _, err = p.call(context.Background(), "echo", map[string]any{"before": true}, nil)
	}
	if err != nil {
		fmt.Println(err)
		return
	}
	defer p.Close()
	fmt.Println("waiting")
	for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
		text, _ := json.Marshal(s.round(p, lines.Text())) // only strings and a number, so it always encodes
		fmt.Println(string(text))
	}
}

func (s spec) round(p *peer, line string) (r round) {
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	r.Line = line
	list, err := p.ListTools(ctx, mcp.ListToolsRequest{})
	if err == nil {
		r.Tools = len(list.Tools)
		r.Echo, _, err = p.call(ctx, "echo", map[string]any{"after": line}, nil)
	}
	if err == nil {
		r.Ask, _, err = p.call(ctx, "ask", map[string]any{}, nil)
	}
	if err != nil {
		r.Error = err.Error()
	}
	return r
}
