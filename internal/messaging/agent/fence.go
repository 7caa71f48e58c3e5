package agent

import (
	"crypto/rand"
	"encoding/hex"
	"strings"
	"unicode/utf8"
)

// fence writes text for models that see no structured content. Text of a peer is on lines
// that begin with "| ", between an opening and a closing line of Doorward that carry an
// unpredictable nonce. So the text cannot end its frame, neither for a reader that checks
// the nonce nor for one that checks the line prefix.
//
// Invariant: no line without the prefix "| " holds a byte that a peer chose, except what
// token admits.
type fence struct {
	strings.Builder
	nonce string
}

// newFence makes a fence with a new nonce of 64 random bits.
func newFence() *fence {
	var b [8]byte
	rand.Read(b[:])
	return &fence{nonce: hex.EncodeToString(b[:])}
}

// open begins a frame. The first line holds the name and value pairs.
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

// say writes a line of Doorward. It must hold no text of a peer.
func (f *fence) say(line string) { f.WriteString(line + "\n") }

// data writes text of a peer, with the prefix on each line.
func (f *fence) data(s string) {
	f.WriteString("| ")
	f.WriteString(lineBreaks.Replace(broken(s)))
	f.WriteByte('\n')
}

// labelled writes text of a peer as one line after a label.
func (f *fence) labelled(label, s string) {
	if s != "" {
		f.data(label + ": " + oneLine(s))
	}
}

// lineBreaks puts the prefix after every character that some reader takes for the end of
// a line. It includes characters that Clean removes, because a text may have been stored
// before Clean removed them.
var lineBreaks = strings.NewReplacer("\r\n", "\n| ", "\n", "\n| ", "\r", "\n| ", "\v", "\n| ", "\f", "\n| ",
	"\x1c", "\n| ", "\x1d", "\n| ", "\x1e", "\n| ", "\u0085", "\n| ", "\u2028", "\n| ", "\u2029", "\n| ")

var noBreaks = strings.NewReplacer("\r", " ", "\n", " ", "\v", " ", "\f", " ", "\x1c", " ", "\x1d", " ", "\x1e", " ",
	"\u0085", " ", "\u2028", " ", "\u2029", " ")

func oneLine(s string) string { return noBreaks.Replace(s) }

// markers are the texts with which clients, and this package, frame their own text.
var markers = []string{"<system-reminder", "</system-reminder", "<channel", "</channel", "<teammate-message", "</teammate-message",
	"<hcom", "</hcom", "[peer-", "[/peer-"}

// wedge is inserted after the first character of a marker in a peer's text, so that it is
// no marker any more.
const wedge = "·"

// broken returns s with every marker broken.
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
		// A letter that folds to an ASCII letter has more bytes than it.
		if n := prefixRunes(s, len(m)); n != len(m) && strings.EqualFold(s[:n], m) {
			return true
		}
	}
	return false
}

// prefixRunes returns the length in bytes of the first n characters of s.
func prefixRunes(s string, n int) int {
	at := 0
	for ; n > 0 && at < len(s); n-- {
		_, size := utf8.DecodeRuneInString(s[at:])
		at += size
	}
	return at
}

// token returns s in a form that is safe in a line of Doorward: bytes outside of the
// plain alphabet of names become %XX, and all after 200 bytes is cut off.
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
