// Package document defines instruction documents: how a file is parsed, its audience, the
// documents that one reader gets, and how they become text.
//
// It exists so that these rules are the same for a document from a directory, a database
// or another daemon, and for delivery over MCP and HTTP. The package does no I/O and
// keeps no state. A Document, a Set and a View never change after they are made, and
// goroutines may share them.
//
// Invariants: a document that a reader may not have is in no text of the reader's view,
// also not by an include. A caller's value is enclosed in ⟦ and ⟧, and nothing in it ends
// that. A model reads the same characters that a person sees in the file. No text is
// larger than MaxBytes. Equal documents give equal bytes.
package document

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
)

// Classes of documents.
const (
	ClassInstructions = "instructions" // composed into the text that opens a session
	ClassVoice        = "voice"        // read by name
	ClassTemplate     = "template"     // read or rendered by name; the only one with variables
)

// Tiers of documents.
const (
	Behavioural = "behavioural" // content to which an operator may want to revoke access
	Structural  = "structural"  // formats, layouts, procedure without judgement
)

// Names with a special meaning.
const (
	PreambleName = "preamble" // replaces DefaultPreamble
	VoiceName    = "voice"    // must be of class voice
	sessionName  = "session"  // the composed text; no document has this name
)

// Limits.
const (
	MaxBytes    = 256 << 10 // of a file, and of every text made here
	MaxPreamble = 1024      // bytes of a document named preamble
	MaxDepth    = 8         // of includes below a document

	maxDescription = 1024
	maxVariables   = 64
)

// ErrUnknown: the view has no document of that name.
var ErrUnknown = errors.New("no document of that name")

// Document is one instruction file.
type Document struct {
	Name        string
	Class       string
	Tier        string // from its header; see Set.Tier
	Description string
	Version     string // SHA-256, 64 hex digits: see Parse
	Body        string // the text after the header, without the blank lines around it
	Audience    Audience
	Variables   map[string]json.RawMessage // JSON Schema by name; nil when there are none
	Prompt      bool                       // offered as an MCP prompt
	File        string

	line     int // of its name in the file
	parts    []part
	includes []string
	compiled map[string]*variable
}

// Variant distinguishes documents of one name: "" for a document for all readers,
// otherwise 8 hex digits of the SHA-256 of the audience, independent of the order in its
// lists.
func (d *Document) Variant() string {
	if d.Audience.everybody() {
		return ""
	}
	sum := sha256.Sum256(d.Audience.canonical())
	return hex.EncodeToString(sum[:4])
}

// Schema returns the JSON Schema of an object with the document's variables, its members
// in the order of their names. A variable with a default is optional.
func (d *Document) Schema() json.RawMessage {
	var properties, required []byte
	for _, name := range slices.Sorted(maps.Keys(d.Variables)) {
		properties = fmt.Appendf(properties, `,%q:%s`, name, d.Variables[name])
		if d.compiled[name].fallback == nil {
			required = fmt.Appendf(required, `,%q`, name)
		}
	}
	return fmt.Appendf(nil, `{"type":"object","properties":{%s},"required":[%s],"additionalProperties":false}`,
		bytes.TrimPrefix(properties, []byte(",")), bytes.TrimPrefix(required, []byte(",")))
}

// Includes returns the names of the documents that this one includes directly, each once,
// sorted.
func (d *Document) Includes() []string { return slices.Clone(d.includes) }

var (
	documentName = regexp.MustCompile(`^[a-z0-9][a-z0-9._-]{0,62}$`)
	variableName = regexp.MustCompile(`^[A-Za-z][A-Za-z0-9_-]{0,62}$`)
)

// ValidName reports whether s has the form of a document's name. The labels of its
// versions have the same form.
func ValidName(s string) bool { return documentName.MatchString(s) }
