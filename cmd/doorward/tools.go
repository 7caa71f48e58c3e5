package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"text/tabwriter"

	"github.com/doorward/doorward/client"
	"github.com/doorward/doorward/internal/trust/plaintext"
	"github.com/doorward/doorward/internal/trust/wire"
)

// tool is one line of `doorward tools`.
type tool struct {
	Server      string `json:"server"`
	Name        string `json:"name"`
	Description string `json:"description"`
}

// tools lists what the caller can use.
func tools(ctx context.Context, args []string) error {
	o := newOptions("tools")
	rest, err := o.parse(args)
	if err != nil {
		return err
	}
	if len(rest) > 1 {
		return errUsage
	}
	server := strings.Join(rest, "")
	c, err := o.dial()
	if err != nil {
		return err
	}
	defer c.Close()
	o.guide(c, client.GuideOptions{})
	all, err := listTools(ctx, c, server)
	if err != nil {
		return rpcFailure(err)
	}
	if o.json {
		return printJSON(all)
	}
	w := tabwriter.NewWriter(stdout(), 0, 8, 2, ' ', 0)
	for _, t := range all {
		first, _, _ := strings.Cut(t.Description, "\n")
		fmt.Fprintf(w, "%s\t%s\t%s\n", plaintext.Line(t.Server), plaintext.Line(t.Name), plaintext.Line(first))
	}
	return w.Flush()
}

func listTools(ctx context.Context, c *client.Client, server string) ([]tool, error) {
	all := []tool{}
	var params []byte
	for {
		result, err := c.Request(ctx, server, "tools/list", params)
		if err != nil {
			return nil, err
		}
		for entry := range wire.Elements(wire.Get(result, "tools")) {
			t := tool{Server: server}
			t.Name, _ = wire.GetString(entry, "name")
			t.Description, _ = wire.GetString(entry, "description")
			if server == "" {
				t.Server, t.Name, _ = strings.Cut(t.Name, "__")
			}
			all = append(all, t)
		}
		next := wire.Get(result, "nextCursor")
		if next == nil {
			return all, nil
		}
		params = wire.Set(nil, wire.Edit{Key: "cursor", Value: next})
	}
}

// call calls one tool and prints the raw result with --json, else its text.
func call(ctx context.Context, args []string) error {
	o := newOptions("call")
	raw := o.set.String("args", "", "arguments as a JSON object")
	rest, err := o.parse(jsonArgument(args))
	if err != nil {
		return err
	}
	if len(rest) < 2 {
		return errUsage
	}
	arguments, err := toolArguments(*raw, rest[2:])
	if err != nil {
		return err
	}
	c, err := o.dial()
	if err != nil {
		return err
	}
	defer c.Close()
	o.guide(c, client.GuideOptions{})
	params := wire.Set(nil, wire.Edit{Key: "name", Value: wire.AppendQuote(nil, rest[1])}, wire.Edit{Key: "arguments", Value: arguments})
	result, err := c.Request(ctx, rest[0], "tools/call", params)
	if err != nil {
		return rpcFailure(err)
	}
	if o.json {
		fmt.Fprintln(stdout(), string(result))
	} else {
		printContent(result)
	}
	if string(wire.Get(result, "isError")) == "true" {
		return &failure{status: exitFailed, err: errors.New("the tool reports an error"), quiet: o.json}
	}
	return nil
}

// jsonArgument lets `--json '{…}'` give the arguments, as the contract writes
// it, beside the bare `--json` that asks for JSON output.
func jsonArgument(args []string) []string {
	var out []string
	for i := 0; i < len(args); i++ {
		if (args[i] == "--json" || args[i] == "-json") && i+1 < len(args) && strings.HasPrefix(args[i+1], "{") {
			out = append(out, "--json", "--args", args[i+1])
			i++
			continue
		}
		out = append(out, args[i])
	}
	return out
}

// toolArguments makes the arguments object: key=value pairs are strings
// unless the value is JSON of another kind.
func toolArguments(raw string, pairs []string) ([]byte, error) {
	obj := []byte(raw)
	if raw != "" {
		if err := wire.ValidateValue(obj); err != nil || obj[0] != '{' {
			return nil, fmt.Errorf("%w: --args is not a JSON object", errUsage)
		}
	}
	var edits []wire.Edit
	for _, p := range pairs {
		key, value, ok := strings.Cut(p, "=")
		if !ok || key == "" {
			return nil, fmt.Errorf("%w: %q is not key=value", errUsage, p)
		}
		v := []byte(value)
		if wire.ValidateValue(v) != nil || v[0] == '"' {
			v = wire.AppendQuote(nil, value)
		}
		edits = append(edits, wire.Edit{Key: key, Value: v})
	}
	return wire.Set(obj, edits...), nil
}

func printContent(result []byte) {
	for item := range wire.Elements(wire.Get(result, "content")) {
		if text, ok := wire.GetString(item, "text"); ok {
			fmt.Fprintln(stdout(), text)
			continue
		}
		fmt.Fprintln(stdout(), string(item))
	}
}

// rpcFailure chooses the exit status of what a daemon answered.
func rpcFailure(err error) error {
	var rpc *client.RPCError
	if !errors.As(err, &rpc) {
		return err
	}
	if rpc.Code == 1403 {
		return &failure{status: exitRefused, err: err}
	}
	return &failure{status: exitFailed, err: err}
}

func printJSON(v any) error {
	e := json.NewEncoder(stdout())
	e.SetEscapeHTML(false)
	return e.Encode(v)
}
