package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"os"

	"github.com/mark3labs/mcp-go/mcp"
)

// round is what a client reports after each restart.
type round struct {
	Line  string `json:"line"`
	Tools int    `json:"tools,omitempty"`
	Echo  string `json:"echo,omitempty"`
	Ask   string `json:"ask,omitempty"`
	Error string `json:"error,omitempty"`
}

// last calls, prints waiting, and for each line of standard input lists, calls, and
// answers what the server asks, in the same session.
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
		text, _ := json.Marshal(s.round(p, lines.Text())) // strings and a number alone
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
