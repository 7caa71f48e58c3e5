package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
)

// offered answers for the mode `offers FILE`: what the server offers stands in
// FILE, a JSON object with tools, the cursor next of the page after them, prompts,
// resources, templates and instructions, and is read for each request, so that a script can change it
// between two sessions. Every tool that is called answers with its name.
func (f *fake) offered(r fakeRequest) bool {
	var o struct{ Tools, Prompts, Resources, Templates, Instructions, Next raw }
	b, err := os.ReadFile(os.Args[2])
	b = bytes.ReplaceAll(b, []byte("\n"), nil) // a message is one line
	if err != nil || json.Unmarshal(b, &o) != nil {
		f.fail(r, -32603, "no offers", "null")
		return true
	}
	list := func(name string, entries raw) bool {
		if entries == nil {
			entries = raw("[]")
		}
		f.result(r, `{"`+name+`":`+string(entries)+`}`)
		return true
	}
	switch r.Method {
	case "initialize":
		var p struct{ ProtocolVersion string }
		_ = json.Unmarshal(r.Params, &p) // on an error the version is empty
		text := ""
		if o.Instructions != nil {
			text = `,"instructions":` + string(o.Instructions)
		}
		f.result(r, `{"protocolVersion":`+quote(p.ProtocolVersion)+`,"capabilities":{"tools":{},"prompts":{},"resources":{}},"serverInfo":{"name":"fakemcp","version":"1.0"}`+text+`}`)
		return true
	case "tools/list":
		if o.Next != nil {
			f.result(r, `{"tools":`+string(o.Tools)+`,"nextCursor":`+string(o.Next)+`}`)
			return true
		}
		return list("tools", o.Tools)
	case "prompts/list":
		return list("prompts", o.Prompts)
	case "resources/list":
		return list("resources", o.Resources)
	case "resources/templates/list":
		return list("resourceTemplates", o.Templates)
	case "tools/call":
		var p struct {
			Name      string
			Arguments raw
		}
		var tools []struct{ Name string }
		if json.Unmarshal(r.Params, &p) != nil || json.Unmarshal(o.Tools, &tools) != nil {
			return false
		}
		for _, t := range tools {
			if t.Name == p.Name {
				if p.Name == "tally" {
					tally(p.Arguments)
				}
				f.text(r, "called "+p.Name)
				return true
			}
		}
	}
	return false
}

func tally(line raw) {
	out, err := os.OpenFile(filepath.Join(filepath.Dir(os.Args[2]), "tally"), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err == nil {
		_, err = out.Write(append(bytes.Clone(line), '\n'))
		err = errors.Join(err, out.Close())
	}
	if err != nil {
		panic(err)
	}
}
