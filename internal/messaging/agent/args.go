package agent

import (
	"encoding/json"
	"fmt"
	"regexp"

	"github.com/doorward/doorward/internal/base/rawjson"
	"github.com/doorward/doorward/internal/messaging/mail"
)

// args holds the arguments of a call, checked against its schema.
type args map[string]any

// maxExact is the largest integer that a JSON reader with 64-bit floats represents
// exactly.
const maxExact = 1<<53 - 1

// parseArgs decodes and checks the raw arguments. A body with more bytes than allowed is
// TOO_LARGE; every other error is INVALID_ARGUMENT.
func (s schemas) parseArgs(raw []byte) (args, error) {
	if len(raw) == 0 {
		raw = []byte("{}")
	}
	if raw[0] != '{' {
		return nil, refusef(mail.InvalidArgument, "the arguments are not an object")
	}
	a := make(args)
	if err := json.Unmarshal(raw, &a); err != nil {
		return nil, refuse(mail.InvalidArgument)
	}
	for name := range a {
		if !s.names[name] {
			return nil, refusef(mail.InvalidArgument, "there is no argument %s", token(name))
		}
	}
	if body, _ := a["body"].(string); s.mostBody > 0 && len(body) > s.mostBody {
		return nil, refusef(TooLarge, "the message is larger than %d bytes", s.mostBody)
	}
	schema, err := s.accepts()
	if err != nil {
		return nil, err
	}
	if err := schema.Validate(map[string]any(a)); err != nil {
		return nil, s.misfit(a, err)
	}
	return a, exact(a)
}

var atProperty = regexp.MustCompile(`/properties/([a-z_]+)`)

// longSchema is the length in bytes above which an error describes an argument without its
// schema.
const longSchema = 300

// misfit returns the error for arguments that do not fit the schema. It names a missing
// argument, or the one that does not fit together with its schema. It never quotes a
// value.
func (s schemas) misfit(a args, err error) *problem {
	var required []string
	_ = json.Unmarshal(rawjson.Get(s.input, "required"), &required) // on an error none counts as missing
	for _, name := range required {
		if !a.has(name) {
			return refusef(mail.InvalidArgument, "the argument %s is missing", name)
		}
	}
	m := atProperty.FindStringSubmatch(err.Error())
	if m == nil {
		return refuse(mail.InvalidArgument)
	}
	if want := s.wanted(m[1]); want != "" {
		return refusef(mail.InvalidArgument, "the argument %s does not fit its schema %s", m[1], want)
	}
	return refusef(mail.InvalidArgument, "the argument %s does not fit its schema", m[1])
}

// wanted returns the schema of an argument without its description, or the description
// alone if the schema is longer than longSchema.
func (s schemas) wanted(name string) string {
	var property map[string]any
	if json.Unmarshal(rawjson.GetPath(s.input, "properties", name), &property) != nil {
		return ""
	}
	about := property["description"]
	delete(property, "description")
	b, err := json.Marshal(property)
	if err != nil || len(b) > longSchema {
		return fmt.Sprintf("(%v)", about)
	}
	return string(b)
}

// exact refuses numbers that JSON readers would read differently.
func exact(v any) error {
	switch v := v.(type) {
	case float64:
		if v > maxExact || v < -maxExact {
			return refusef(mail.InvalidArgument, "a number is too large")
		}
	case []any:
		for _, e := range v {
			if err := exact(e); err != nil {
				return err
			}
		}
	case map[string]any:
		for _, e := range v {
			if err := exact(e); err != nil {
				return err
			}
		}
	case args:
		return exact(map[string]any(v))
	}
	return nil
}

func (a args) has(name string) bool { _, ok := a[name]; return ok }

func (a args) str(name, unset string) string {
	if s, ok := a[name].(string); ok {
		return s
	}
	return unset
}

func (a args) int(name string, unset int) int {
	if f, ok := a[name].(float64); ok {
		return int(f)
	}
	return unset
}

func (a args) bool(name string, unset bool) bool {
	if b, ok := a[name].(bool); ok {
		return b
	}
	return unset
}

// strs returns the elements of an array of strings; a single string counts as an array of
// one.
func (a args) strs(name string) []string {
	switch v := a[name].(type) {
	case string:
		return []string{v}
	case []any:
		out := make([]string, 0, len(v))
		for _, e := range v {
			if s, ok := e.(string); ok {
				out = append(out, s)
			}
		}
		return out
	}
	return nil
}

func (a args) obj(name string) args {
	m, _ := a[name].(map[string]any)
	return m
}
