package deliver

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"net/http"
	"strings"
)

// tagOf returns the entity tag of one reader's text. Every tag is unique, because each
// text has a ref of its own. It is an unkeyed digest, so it is sent only to the reader of
// the text and is in no record.
func tagOf(reader string, body []byte) string {
	h := sha256.New()
	for _, part := range [][]byte{[]byte("doorward etag"), []byte(reader), body} {
		h.Write(binary.BigEndian.AppendUint64(nil, uint64(len(part))))
		h.Write(part)
	}
	return `"` + hex.EncodeToString(h.Sum(nil)[:16]) + `"`
}

// unchanged reports whether the caller has tag: If-None-Match is `*` or names it,
// by the weak comparison (RFC 9110, 13.1.2). A malformed value matches nothing.
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
