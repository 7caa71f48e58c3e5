package config

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/go-json-experiment/json/jsontext"
	"go.yaml.in/yaml/v3"

	"github.com/doorward/doorward/internal/base/plainyaml"
)

// tree parses content into nodes. nil: the document is empty, or has a problem that was reported.
func (s source) tree(content []byte) *yaml.Node {
	if len(content) > maxFile {
		s.report.failAt(1, "", fmt.Sprintf("the file is larger than %d bytes", maxFile))
		return nil
	}
	if i := plainyaml.FirstInvalid(content); i >= 0 {
		s.report.failAt(lineOf(content, i), "", "this is not UTF-8 text; save the file as UTF-8")
		return nil
	}
	// JSON is parsed as JSON, because YAML lacks some of its escapes. Content that only begins like JSON is
	// YAML in flow style.
	if trimmed := bytes.TrimLeft(content, " \t\r\n"); len(trimmed) > 0 && trimmed[0] == '{' {
		root, err := jsonTree(content)
		if err == nil {
			return root
		}
		if _, notYAML := plainyaml.Parse(content); strings.HasSuffix(s.report.name, ".json") || notYAML != nil && looksLikeJSON(content) {
			line, text := jsonProblem(content, err)
			s.report.failAt(line, "", text)
			return nil
		}
	}
	return s.yamlTree(content, yaml.MappingNode, "the file must be a mapping of sections, such as listen, mcpServers and log; write mcpServers: and the servers below it")
}

// yamlTree parses one YAML document and checks the kind of its root; wrong is the problem of another kind.
func (s source) yamlTree(content []byte, kind yaml.Kind, wrong string) *yaml.Node {
	root, err := plainyaml.Parse(content)
	switch {
	case err != nil:
		s.report.failAt(err.Line, "", syntaxText(err, content))
		return nil
	case root == nil || isNull(root):
		return nil
	case root.Kind != kind:
		s.report.failAt(root.Line, "", wrong)
		return nil
	}
	return root
}

// jsonTree parses one JSON value into the nodes that YAML would produce, including duplicate names.
func jsonTree(content []byte) (*yaml.Node, error) {
	dec := jsontext.NewDecoder(bytes.NewReader(content), jsontext.AllowDuplicateNames(true))
	j := jsonReader{dec: dec, content: content, line: 1}
	root, err := j.value()
	if err != nil {
		return nil, err
	}
	if _, err := dec.ReadToken(); !errors.Is(err, io.EOF) {
		return nil, errMoreValues
	}
	return root, nil
}

// jsonReader counts lines while it reads. The decoder limits the depth.
type jsonReader struct {
	dec     *jsontext.Decoder
	content []byte
	at      int // offset up to which lines are counted
	line    int
}

// value reads one value, or the end of a container as a node without kind.
func (j *jsonReader) value() (*yaml.Node, error) {
	tok, err := j.dec.ReadToken()
	if err != nil {
		return nil, err
	}
	end := int(j.dec.InputOffset())
	j.line += bytes.Count(j.content[j.at:end], []byte("\n"))
	j.at = end
	n := &yaml.Node{Line: j.line, Kind: yaml.ScalarNode, Value: tok.String()}
	switch tok.Kind() {
	case '{':
		n.Kind, n.Tag, n.Value = yaml.MappingNode, "!!map", ""
		return n, j.children(n)
	case '[':
		n.Kind, n.Tag, n.Value = yaml.SequenceNode, "!!seq", ""
		return n, j.children(n)
	case '}', ']':
		n.Kind = 0
	case '"':
		n.Tag, n.Style = "!!str", yaml.DoubleQuotedStyle
	case 't', 'f':
		n.Tag = "!!bool"
	case 'n':
		n.Tag = "!!null"
	default:
		n.Tag = "!!int"
		if strings.ContainsAny(n.Value, ".eE") {
			n.Tag = "!!float"
		}
	}
	return n, nil
}

// children reads values up to the end of the container.
func (j *jsonReader) children(n *yaml.Node) error {
	for {
		child, err := j.value()
		if err != nil || child.Kind == 0 {
			return err
		}
		n.Content = append(n.Content, child)
	}
}

// isNull reports whether a key has no value.
func isNull(n *yaml.Node) bool { return n.Kind == yaml.ScalarNode && n.Tag == "!!null" }

// pairs iterates over a mapping that lint has checked.
func pairs(n *yaml.Node) func(yield func(string, *yaml.Node) bool) {
	return func(yield func(string, *yaml.Node) bool) {
		for i := 0; i+1 < len(n.Content); i += 2 {
			if !yield(n.Content[i].Value, n.Content[i+1]) {
				return
			}
		}
	}
}

// isForeign reports whether lint has reported a node, so that decoding skips it.
func isForeign(n *yaml.Node) bool { return n.Kind == yaml.AliasNode || n.Style&yaml.TaggedStyle != 0 }

// kindName describes the kind of a node.
func kindName(n *yaml.Node) string {
	switch {
	case n.Kind == yaml.MappingNode:
		return "a mapping"
	case n.Kind == yaml.SequenceNode:
		return "a list"
	case n.Tag == "!!str":
		return "text"
	}
	return "a bare " + strings.TrimPrefix(n.ShortTag(), "!!")
}

// is checks the kind of a node.
func (s source) is(n *yaml.Node, key string, kind yaml.Kind, want string) bool {
	if n.Kind != kind {
		s.report.fail(key, fmt.Sprintf("this must be %s, not %s%s", want, kindName(n), insteadOf(n, kind, want)))
		return false
	}
	return true
}

// text returns a scalar that is text. A bare number or truth value is refused, because parsers disagree
// about the text that it stands for.
func (s source) text(n *yaml.Node, key string) (string, bool) {
	switch {
	case n.Kind != yaml.ScalarNode:
		s.report.fail(key, "this must be text, not "+kindName(n))
	case n.Tag != "!!str":
		s.report.fail(key, "this must be text; put it in quotes")
	default:
		return n.Value, true
	}
	return "", false
}
