package deliver

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/url"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/doorward/doorward/internal/base/rawjson"
	"github.com/doorward/doorward/internal/trust/wire"
)

// maxBody bounds a body. maxDocument bounds the body of a PUT, which comes by the Unix
// socket from an operator: a document of 256 KiB with every character escaped.
const (
	maxBody     = 64 << 10
	maxDocument = 6*(256<<10) + 1<<10
)

// bodyTime is how long a caller may take to send a body.
const bodyTime = 30 * time.Second

// isDigest reports whether s has the form of a version or its prefix: 12 to 64 hex
// digits.
func isDigest(s string) bool { return len(s) >= 12 && len(s) <= 64 && isHex(s) }

// isSession reports whether s has the form of a session's id.
func isSession(s string) bool { return len(s) == 16 && isHex(s) }

func isHex(s string) bool {
	return strings.Trim(s, "0123456789abcdef") == ""
}

// queryOf returns the parameters of a request: each of them must be known, occur once,
// and not be empty.
func queryOf(raw string, known []string) (url.Values, error) {
	q, err := url.ParseQuery(raw)
	if err != nil {
		return nil, malformed()
	}
	for name, values := range q {
		if !slices.Contains(known, name) || len(values) != 1 || values[0] == "" {
			return nil, malformed()
		}
	}
	return q, nil
}

// hasBody reports whether the request has a body, or may have one.
func hasBody(r *http.Request) bool { return r.ContentLength != 0 }

// bodyOf reads the body of a request, of at most limit bytes. It checks the type before
// it reads the first byte.
func bodyOf(w http.ResponseWriter, r *http.Request, limit int64) ([]byte, error) {
	kinds := r.Header["Content-Type"]
	if len(kinds) > 0 && !isJSON(kinds) || len(kinds) == 0 && hasBody(r) {
		return nil, wrongType()
	}
	if !hasBody(r) {
		return nil, nil
	}
	if r.ContentLength > limit {
		return nil, tooLarge()
	}
	// net/http clears the deadline at the end of the body. Without it, it would wait for the rest
	// of a body that was refused.
	http.NewResponseController(w).SetReadDeadline(time.Now().Add(bodyTime))
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, limit))
	var over *http.MaxBytesError
	switch {
	case errors.As(err, &over):
		return nil, tooLarge()
	case err != nil:
		return nil, malformed()
	}
	return body, nil
}

// isJSON accepts exactly one Content-Type, application/json, with the charset UTF-8 or
// none.
func isJSON(kinds []string) bool {
	if len(kinds) != 1 {
		return false
	}
	kind, params, _ := strings.Cut(kinds[0], ";")
	params = strings.ToLower(strings.TrimSpace(params))
	return strings.EqualFold(strings.TrimSpace(kind), "application/json") &&
		(params == "" || params == "charset=utf-8" || params == `charset="utf-8"`)
}

// decode reads one JSON object into a struct: strict JSON, only members that the struct
// has, in that spelling, and none of them null. An empty body is an object without
// members.
func decode(body []byte, into any) error {
	if len(body) == 0 {
		return nil
	}
	if wire.ValidateValue(body) != nil || !fits(body, reflect.TypeOf(into).Elem()) || json.Unmarshal(body, into) != nil {
		return malformed()
	}
	return nil
}

// fits reports whether raw is an object that has only members of t. encoding/json would
// accept a member in another case, and ignore null.
func fits(raw []byte, t reflect.Type) bool {
	if raw = bytes.TrimLeft(raw, " \t\r\n"); len(raw) == 0 || raw[0] != '{' {
		return false
	}
	for name, value := range rawjson.Members(raw) {
		f, ok := member(t, name)
		if !ok || string(value) == "null" || f.Type.Kind() == reflect.Struct && !fits(value, f.Type) {
			return false
		}
	}
	return true
}

func member(t reflect.Type, name string) (reflect.StructField, bool) {
	for i := range t.NumField() {
		if f := t.Field(i); f.Tag.Get("json") == name {
			return f, true
		}
	}
	return reflect.StructField{}, false
}
