package agent

import (
	"crypto/rand"
	"encoding/hex"
	"strings"
	"unicode/utf8"
)

// fence writes text for models that see no structured content. Text of a peer
// stands on lines that begin with "| ", between an opening and a closing line of
// ours that carry an unpredictable nonce. The text can therefore end its frame
// neither for a reader that knows the nonce nor for one that goes by the lines.
//
// Invariant: no line outside "| " holds a byte that a peer chose, except what
// token admits.
type fence struct {
	strings.Builder
	nonce string
}

// newFence draws the nonce: 64 random bits, new for every answer.
func newFence() *fence {
	var b [8]byte
	rand.Read(b[:])
	return &fence{nonce: hex.EncodeToString(b[:])}
}

// open begins a frame, with name and value pairs in its first line.
func (f *fence) open(kind string, pairs ...string) {
	f.WriteString("[peer-" + kind + " " + f.nonce)
	for i := 0; i+1 < len(pairs); i += 2 {
		if pairs[i+1] != "" {
			f.WriteString(" " + pairs[i] + "=" + token(pairs[i+1]))
		}
	}
	f.WriteString("]\n")
}

func (f *fence) close(kind string) { f.WriteString("[/peer-" + kind + " " + f.nonce + "]\n") }

// say is a line of ours. It must hold nothing of a peer's.
func (f *fence) say(line string) { f.WriteString(line + "\n") }

// data writes text of a peer's, each line with its prefix.
func (f *fence) data(s string) {
	f.WriteString("| ")
	f.WriteString(lineBreaks.Replace(broken(s)))
	f.WriteByte('\n')
}

// labelled is data for one line, with a word of ours in front.
func (f *fence) labelled(label, s string) {
	if s != "" {
		f.data(label + ": " + oneLine(s))
	}
}

// lineBreaks puts the prefix after everything that some reader takes for the end
// of a line. It includes characters that Clean removes, because an answer must
// not depend on when a text was stored.
var lineBreaks = strings.NewReplacer("\r\n", "\n| ", "\n", "\n| ", "\r", "\n| ", "\v", "\n| ", "\f", "\n| ",
	"\x1c", "\n| ", "\x1d", "\n| ", "\x1e", "\n| ", "\u0085", "\n| ", "\u2028", "\n| ", "\u2029", "\n| ")

var noBreaks = strings.NewReplacer("\r", " ", "\n", " ", "\v", " ", "\f", " ", "\x1c", " ", "\x1d", " ", "\x1e", " ",
	"\u0085", " ", "\u2028", " ", "\u2029", " ")

func oneLine(s string) string { return noBreaks.Replace(s) }

// markers are what clients frame their own text with, and what we do.
var markers = []string{"<system-reminder", "</system-reminder", "<channel", "</channel", "<teammate-message", "</teammate-message",
	"<hcom", "</hcom", "[peer-", "[/peer-"}

// wedge is what stands behind the first character of a marker that a peer
// wrote, so that it is one no longer.
const wedge = "·"

// broken breaks every marker in s.
func broken(s string) string {
	var out strings.Builder
	from := 0
	for i := 0; i < len(s); i++ {
		if s[i] == '<' || s[i] == '[' {
			if beginsMarker(s[i:]) {
				out.WriteString(s[from : i+1])
				out.WriteString(wedge)
				from = i + 1
			}
		}
	}
	if from == 0 {
		return s
	}
	out.WriteString(s[from:])
	return out.String()
}

func beginsMarker(s string) bool {
	for _, m := range markers {
		if len(s) >= len(m) && strings.EqualFold(s[:len(m)], m) {
			return true
		}
		// A letter that folds to an ASCII one takes more bytes than it.
		if n := prefixRunes(s, len(m)); n != len(m) && strings.EqualFold(s[:n], m) {
			return true
		}
	}
	return false
}

// prefixRunes is the length in bytes of the first n characters of s.
func prefixRunes(s string, n int) int {
	at := 0
	for ; n > 0 && at < len(s); n-- {
		_, size := utf8.DecodeRuneInString(s[at:])
		at += size
	}
	return at
}

// token is s as it may stand in a line of ours: what is not of the plain
// alphabet of names is written as %XX, and it is cut at 200 bytes.
func token(s string) string {
	const hexes = "0123456789ABCDEF"
	var out strings.Builder
	for i := 0; i < len(s) && i < 200; i++ {
		c := s[i]
		if c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || strings.IndexByte(":._@/#+=,-", c) >= 0 {
			out.WriteByte(c)
			continue
		}
		out.Write([]byte{'%', hexes[c>>4], hexes[c&15]})
	}
	return out.String()
}
