package document

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"strings"

	"github.com/doorward/doorward/internal/base/plainyaml"
)

// Parse parses one file: Markdown after a YAML header between two lines of three hyphens.
// The error is Problems, in the order of the lines; file is only used in it and in
// Document.File. A byte order mark at the beginning, and CRLF instead of LF, have no
// effect: Version is the SHA-256 of all bytes of the file without the mark and with LF
// for each CRLF.
func Parse(file string, content []byte) (*Document, error) {
	p := &parser{file: file}
	d := &Document{File: file, Tier: Behavioural}
	content = bytes.TrimPrefix(content, []byte("\ufeff"))
	content = bytes.ReplaceAll(content, []byte("\r\n"), []byte("\n"))
	sum := sha256.Sum256(content)
	d.Version = hex.EncodeToString(sum[:])
	if header, body, line, ok := p.split(content); ok {
		p.header(header, d)
		p.body(body, line, d)
		p.together(d)
	}
	if len(p.problems) > 0 {
		return nil, p.problems.sorted()
	}
	return d, nil
}

// split separates the header and the body. The separators are lines of their own. line is
// the number of the first line of body.
func (p *parser) split(content []byte) (header, body string, line int, ok bool) {
	text := string(content)
	switch at := plainyaml.FirstInvalid(content); {
	case len(content) > MaxBytes:
		p.fail(1, "the file is larger than %d bytes", MaxBytes)
		return "", "", 0, false
	case at >= 0:
		p.fail(1+strings.Count(text[:at], "\n"), "this is not UTF-8 text without NUL; save the file as UTF-8")
		return "", "", 0, false
	}
	rest, found := strings.CutPrefix(text, "---\n")
	if !found {
		p.fail(1, "the first line is not ---: the file has no header")
		return "", "", 0, false
	}
	if strings.HasPrefix(rest, "---\n") || rest == "---" {
		p.fail(1, "the header is empty")
		return "", "", 0, false
	}
	header, body, found = strings.Cut(rest, "\n---\n")
	if !found {
		if header, found = strings.CutSuffix(rest, "\n---"); !found {
			p.fail(1, "the header does not end: a second line --- is missing")
			return "", "", 0, false
		}
	}
	// A line end before the header makes YAML count lines as the file does.
	header = "\n" + header + "\n"
	return header, body, 2 + strings.Count(header, "\n"), true
}

// together checks the rules that involve several keys.
func (p *parser) together(d *Document) {
	switch template := d.Class == ClassTemplate; {
	case d.Class == "" || d.Name == "":
	case d.Name == VoiceName && d.Class != ClassVoice:
		p.fail(d.line, `a document named voice must be of class voice`)
	case !template && d.Variables != nil:
		p.fail(d.line, `only a document of class template has variables`)
	case !template && d.Prompt:
		p.fail(d.line, `only a document of class template is an MCP prompt`)
	case d.Name == PreambleName && (!template || d.Variables != nil || d.Prompt || d.includes != nil):
		p.fail(d.line, `a document named preamble must be of class template, without variables, includes and mcp_prompt`)
	}
}
