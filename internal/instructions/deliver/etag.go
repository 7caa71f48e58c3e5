package deliver

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"net/http"
	"strings"
)

// tagOf is the entity tag of what one reader gets: no other has the same, since
// what everybody gets bears a ref of his own. It is a digest under no key, so it
// is for the reader of the text alone and is in no record.
func tagOf(reader string, body []byte) string {
	h := sha256.New()
	for _, part := range [][]byte{[]byte("doorward etag"), []byte(reader), body} {
		h.Write(binary.BigEndian.AppendUint64(nil, uint64(len(part))))
		h.Write(part)
	}
	return `"` + hex.EncodeToString(h.Sum(nil)[:16]) + `"`
}

// unchanged reports whether the caller has tag: If-None-Match is `*` or names
// it, by the weak comparison (RFC 9110, 13.1.2). What is not of that form
// matches nothing.
func unchanged(h http.Header, tag string) bool {
	list := strings.Join(h["If-None-Match"], ",")
	if strings.TrimSpace(list) == "*" {
		return true
	}
	for {
		list = strings.TrimLeft(list, " \t,")
		opaque, ok := strings.CutPrefix(strings.TrimPrefix(list, "W/"), `"`)
		end := strings.IndexByte(opaque, '"')
		if !ok || end < 0 {
			return false
		}
		if `"`+opaque[:end+1] == tag {
			return true
		}
		list = opaque[end+1:]
	}
}
