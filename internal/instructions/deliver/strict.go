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

	"github.com/doorward/doorward/internal/trust/wire"
)

// maxBody bounds a body. maxDocument bounds that of a PUT alone, which comes by
// the Unix socket from an operator: a document of 256 KiB in its longest
// spelling.
const (
	maxBody     = 64 << 10
	maxDocument = 6*(256<<10) + 1<<10
)

// bodyTime is how long a caller may take to send a body.
const bodyTime = 30 * time.Second

// isDigest is the form of versions, in full or from the front: 12 to 64 hex.
func isDigest(s string) bool { return len(s) >= 12 && len(s) <= 64 && isHex(s) }

// isSession is the form of a session's id.
func isSession(s string) bool { return len(s) == 16 && isHex(s) }

func isHex(s string) bool {
	return strings.Trim(s, "0123456789abcdef") == ""
}

// queryOf are the parameters of a request: each of them known, there once, and
// not empty.
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

// hasBody reports whether a body comes, or may come.
func hasBody(r *http.Request) bool { return r.ContentLength != 0 }

// bodyOf reads the body of a request that may have one of at most limit bytes.
// Its type is looked at before the first byte is invited.
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
	rc := http.NewResponseController(w)
	if rc.SetReadDeadline(time.Now().Add(bodyTime)) == nil {
		defer rc.SetReadDeadline(time.Time{})
	}
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

// isJSON takes exactly one Content-Type, application/json, whose charset is
// UTF-8 when it names one.
func isJSON(kinds []string) bool {
	if len(kinds) != 1 {
		return false
	}
	kind, params, _ := strings.Cut(kinds[0], ";")
	params = strings.ToLower(strings.TrimSpace(params))
	return strings.EqualFold(strings.TrimSpace(kind), "application/json") &&
		(params == "" || params == "charset=utf-8" || params == `charset="utf-8"`)
}

// decode reads one JSON object into a struct: strict JSON, members that the
// struct has and no others, in that spelling alone, and none of them null. An
// empty body is an object without members.
func decode(body []byte, into any) error {
	if len(body) == 0 {
		return nil
	}
	if wire.ValidateValue(body) != nil || !fits(body, reflect.TypeOf(into).Elem()) || json.Unmarshal(body, into) != nil {
		return malformed()
	}
	return nil
}

// fits reports whether raw is an object with members of t alone. encoding/json
// would take a member in another case for the same, and null for nothing.
func fits(raw []byte, t reflect.Type) bool {
	if raw = bytes.TrimLeft(raw, " \t\r\n"); len(raw) == 0 || raw[0] != '{' {
		return false
	}
	for name, value := range wire.Members(raw) {
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
