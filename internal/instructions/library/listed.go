package library

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"

	"github.com/doorward/doorward/internal/instructions/document"
)

var versionForm = regexp.MustCompile(`^[0-9a-f]{64}$`)

// Listed is an entry in a list of documents, of the routes here and on another Doorward.
// Unknown members of a remote's entry are ignored, because the remote may be newer.
type Listed struct {
	Name        string                     `json:"name"`
	Class       string                     `json:"class"`
	Tier        string                     `json:"tier"`
	Version     string                     `json:"version"`
	Description string                     `json:"description"`
	Variables   map[string]json.RawMessage `json:"variables"`
	Prompt      bool                       `json:"mcp_prompt"`
}

// refuse returns the reason for which an entry is not fetched; "" for none.
// document.Parse checks the rest.
func (e Listed) refuse() string {
	switch {
	case !document.ValidName(e.Name):
		return "is not the name of a document"
	case !versionForm.MatchString(e.Version):
		return "has an invalid version"
	case e.Class != document.ClassInstructions && e.Class != document.ClassVoice && e.Class != document.ClassTemplate:
		return "has an unknown class"
	case e.Tier != document.Behavioural && e.Tier != document.Structural:
		return "has an unknown tier"
	}
	return ""
}

// parse makes the document as if a file had held it, so that validity is decided in one
// place. Its version is the remote's, because the text alone has another one.
func (e Listed) parse(file, text string) (*document.Document, error) {
	if len(text) > maxContent {
		return nil, fmt.Errorf("has %d bytes: a document has at most %d", len(text), maxContent)
	}
	var b bytes.Buffer
	b.WriteString("---\n")
	for _, line := range []struct {
		key   string
		value any
	}{{"name", e.Name}, {"class", e.Class}, {"tier", e.Tier}, {"description", e.Description}, {"mcp_prompt", e.Prompt}} {
		value, err := json.Marshal(line.value)
		if err != nil {
			return nil, fmt.Errorf("reading its %s: %w", line.key, err)
		}
		fmt.Fprintf(&b, "%s: %s\n", line.key, value)
	}
	if len(e.Variables) > 0 {
		b.WriteString("variables:\n")
	}
	for _, name := range slices.Sorted(maps.Keys(e.Variables)) {
		// Go's JSON is valid YAML. A pair of escapes for one character would not be.
		var schema any
		dec := json.NewDecoder(bytes.NewReader(e.Variables[name]))
		dec.UseNumber()
		if err := dec.Decode(&schema); err != nil {
			return nil, fmt.Errorf("reading its variables: %w", err)
		}
		quoted, _ := json.Marshal(name)  // a text
		value, _ := json.Marshal(schema) // as it was read
		fmt.Fprintf(&b, "  %s: %s\n", quoted, value)
	}
	b.WriteString("---\n")
	b.WriteString(text)
	d, err := document.Parse(file, b.Bytes())
	if err != nil {
		return nil, err
	}
	d.Version = e.Version
	return d, nil
}
