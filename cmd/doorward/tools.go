package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/doorward/doorward/client"
	"github.com/doorward/doorward/internal/base/plaintext"
	"github.com/doorward/doorward/internal/base/rawjson"
	"github.com/doorward/doorward/internal/relay"
	"github.com/doorward/doorward/internal/trust/wire"
)

// tool is one line of `doorward tools`.
type tool struct {
	Server      string `json:"server"`
	Name        string `json:"name"`
	Description string `json:"description"`
}

// newTools returns the command that lists the tools that the caller can use.
func newTools() *cobra.Command {
	o := newInvocation()
	o.narrows()
	return o.command("tools [SERVER] [--json] [-v]", "list the tools that the caller can use", "doorward tools notes", 0, 1,
		func(ctx context.Context, args []string) error {
			c, err := o.daemon.connect()
			if err != nil {
				return err
			}
			o.guide(c, client.GuideOptions{})
			all, missing, err := listTools(ctx, c, strings.Join(args, ""))
			endless := errors.Is(err, errEndless)
			if err != nil && !endless {
				return rpcFailure(err, o.json)
			}
			sayMissing(missing)
			var rows [][]string
			for _, t := range all {
				first, _, _ := strings.Cut(t.Description, "\n")
				rows = append(rows, []string{plaintext.Line(t.Server), plaintext.Line(t.Name), plaintext.Line(first)})
			}
			if printed := o.print(all, o.narrowed(table(rows...))); printed != nil || !endless {
				return printed
			}
			return err
		})
}

// maxPages bounds the pages of a list that are read: a server may name a next page each time.
// The daemon reads as many.
const maxPages = 100

// errEndless is the error of a list that has more pages.
var errEndless = fmt.Errorf("the list has more than %d pages, and the rest was not read", maxPages)

// listTools returns the tools, with errEndless those of the first pages. missing holds, for each
// server whose tools are not yet in the list, the reason.
func listTools(ctx context.Context, c *client.Client, server string) (all []tool, missing map[string]string, err error) {
	all = []tool{}
	var params []byte
	for range maxPages {
		result, err := c.Request(ctx, server, "tools/list", params)
		if err != nil {
			return nil, nil, err
		}
		if m := rawjson.GetPath(result, "_meta", relay.MetaNotYet); m != nil {
			_ = json.Unmarshal(m, &missing) // after an error nothing is reported as missing
		}
		for entry := range rawjson.Elements(rawjson.Get(result, "tools")) {
			t := tool{Server: server}
			t.Name, _ = rawjson.GetString(entry, "name")
			t.Description, _ = rawjson.GetString(entry, "description")
			if server == "" {
				t.Server, t.Name, _ = strings.Cut(t.Name, "__")
			}
			all = append(all, t)
		}
		if _, more := rawjson.GetString(result, "nextCursor"); !more { // a server may send null on its last page
			return all, missing, nil
		}
		params = rawjson.Set(nil, rawjson.Edit{Key: "cursor", Value: rawjson.Get(result, "nextCursor")})
	}
	return all, missing, errEndless
}

// sayMissing prints the servers whose tools are not in the list yet, grouped by reason.
func sayMissing(missing map[string]string) {
	byReason := make(map[string][]string)
	for server, why := range missing {
		byReason[why] = append(byReason[why], plaintext.Line(server))
	}
	for _, why := range slices.Sorted(maps.Keys(byReason)) {
		names := slices.Sorted(slices.Values(byReason[why]))
		fmt.Fprintf(stderr(), "not listed yet: %s (%s)\n", strings.Join(names, ", "), plaintext.Line(why))
	}
}

// newCall returns the command that calls one tool, and prints the raw result with --json,
// otherwise its text.
func newCall() *cobra.Command {
	o := newInvocation()
	raw := o.set.String("args", "", "arguments as a JSON object")
	output := o.set.StringP("output", "o", "", "write the first image, audio or blob of the result to this file")
	o.set.Lookup("json").Usage = "print the raw result; a JSON object after it is the arguments"
	return o.command("call SERVER TOOL [key=value… | --args JSON | --json JSON] [-o FILE]", "call one tool", "doorward call notes add_note title=Milk", 2, many,
		func(ctx context.Context, args []string) error {
			args = jsonArgument(o.json, raw, args)
			if len(args) < 2 {
				return missing("call SERVER TOOL", len(args))
			}
			arguments, err := toolArguments(*raw, args[2:])
			if err != nil {
				return err
			}
			return callTool(ctx, o, args[0], args[1], arguments, *output)
		})
}

func callTool(ctx context.Context, o *invocation, server, name string, arguments []byte, output string) error {
	c, err := o.daemon.connect()
	if err != nil {
		return err
	}
	o.guide(c, client.GuideOptions{})
	params := rawjson.Set(nil, rawjson.Edit{Key: "name", Value: rawjson.AppendQuote(nil, name)}, rawjson.Edit{Key: "arguments", Value: arguments})
	result, err := c.Request(ctx, server, "tools/call", params)
	if err != nil {
		failed := rpcFailure(err, o.json)
		if !o.json {
			failed = hintTools(failed, err, server)
		}
		return failed
	}
	if err := printResult(o, result); err != nil {
		return fmt.Errorf("printing the result: the tool was called, but its result is lost: %w", err)
	}
	if output != "" {
		if err := writeData(result, output); err != nil {
			return fmt.Errorf("writing the data of the result to --output: the tool was called: %w", err)
		}
	}
	why := "the tool reports an error"
	if hintPending(result) {
		why = "the tool was not called"
	}
	if string(rawjson.Get(result, "isError")) == "true" {
		return &failure{status: exitFailed, err: errors.New(why), quiet: o.json}
	}
	return nil
}

// hintTools adds to a failure, for parameters that the server itself does not accept, which command
// lists its tools. why is the error of the call.
func hintTools(failed, why error, server string) error {
	var rpc *client.RPCError
	var f *failure
	if errors.As(why, &rpc) && rpc.Code == codeParams && len(rpc.Data) == 0 && errors.As(failed, &f) {
		f.err = fmt.Errorf("%w; doorward tools %s lists its tools", f.err, server)
	}
	return failed
}

// codeParams is the code of JSON-RPC for invalid parameters, of MCP also for an unknown tool.
const codeParams = -32602

// hintPending says what a person can do about a call that was still held when approvals.wait was
// over, and reports whether this is one. The command is a new process each time, and so another
// caller.
func hintPending(result []byte) bool {
	data := rawjson.Get(result, "structuredContent")
	var text []byte
	for item := range rawjson.Elements(rawjson.Get(result, "content")) {
		text = item
	}
	said, _ := rawjson.GetString(text, "text")
	pending := rawjson.Get(data, "pending") != nil && rawjson.Get(data, "expires") != nil && strings.HasPrefix(said, notMade)
	if pending {
		fmt.Fprintln(stderr(), "doorward: hint: this command is another caller each time, so the same command asks again; approve it while the command waits, and let it wait longer with approvals.wait")
	}
	return pending
}

// notMade begins the text of a result of Doorward about a held call.
const notMade = "This call was not made yet"

// jsonArgument moves the object of `--json '{…}'` from words to raw and returns the other
// words. Without an object, the flag only selects JSON output.
func jsonArgument(asJSON bool, raw *string, words []string) []string {
	i := slices.IndexFunc(words, func(w string) bool { return strings.HasPrefix(w, "{") })
	if !asJSON || i < 0 {
		return words
	}
	*raw = words[i]
	return slices.Delete(words, i, i+1)
}

// toolArguments returns the arguments object. The value of a key=value pair becomes a
// string, unless it is JSON of another type.
func toolArguments(raw string, pairs []string) ([]byte, error) {
	obj := []byte(raw)
	if raw != "" {
		if err := wire.ValidateValue(obj); err != nil || obj[0] != '{' {
			return nil, fmt.Errorf("%w: the arguments are not a JSON object, such as {\"title\":\"Milk\"}", errUsage)
		}
	}
	var edits []rawjson.Edit
	for _, p := range pairs {
		key, value, ok := strings.Cut(p, "=")
		if !ok || key == "" {
			return nil, fmt.Errorf("%w: %q is not key=value", errUsage, p)
		}
		if slices.ContainsFunc(edits, func(e rawjson.Edit) bool { return e.Key == key }) {
			return nil, fmt.Errorf("%w: %s is given twice; write a list as JSON, such as %s='[1,2]'", errUsage, key, key)
		}
		v := []byte(value)
		if wire.ValidateValue(v) != nil || v[0] == '"' {
			v = rawjson.AppendQuote(nil, value)
		}
		edits = append(edits, rawjson.Edit{Key: key, Value: v})
	}
	return rawjson.Set(obj, edits...), nil
}
