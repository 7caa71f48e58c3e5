package agent

import (
	"encoding/base64"
	"regexp"
	"testing"

	"github.com/doorward/doorward/internal/mail"
)

func TestCursorsAreSealed(t *testing.T) {
	t.Parallel()
	s := &Server{o: Options{CursorKey: []byte("0123456789abcdef")}}
	other := &Server{o: Options{CursorKey: []byte("0123456789abcdeg")}}
	id, thread := "01JC000000000000000000000A", "01JC000000000000000000000B"
	for _, r := range []mail.Receipt{{PeerID: id, Epoch: 1}, {PeerID: id, Epoch: 3, Seq: 1 << 40, Notice: 7}, {PeerID: id, Epoch: 3, Seq: 2, Thread: thread}} {
		text := s.cursor(r, "s:abc")
		if !regexp.MustCompile(`^[A-Za-z0-9_-]{16,200}$`).MatchString(text) {
			t.Errorf("the cursor %s does not fit its schema", text)
		}
		got, err := s.receipt(text, "s:abc")
		if err != nil || *got != r {
			t.Errorf("%+v became %+v, %v", r, got, err)
		}
		if _, err := s.receipt(text, "s:abd"); err == nil {
			t.Error("a cursor of another session was taken")
		}
		if _, err := other.receipt(text, "s:abc"); err == nil {
			t.Error("a cursor under another key was taken")
		}
		raw, err := base64.RawURLEncoding.DecodeString(text)
		if err != nil {
			t.Fatal(err)
		}
		for i := range raw {
			b := append([]byte(nil), raw...)
			b[i] ^= 1
			if _, err := s.receipt(base64.RawURLEncoding.EncodeToString(b), "s:abc"); err == nil {
				t.Errorf("a cursor with a changed byte %d was taken", i)
			}
		}
		for n := range len(raw) {
			if _, err := s.receipt(base64.RawURLEncoding.EncodeToString(raw[:n]), "s:abc"); err == nil && n > 0 {
				t.Errorf("the first %d bytes of a cursor were taken", n)
			}
		}
	}
	if r, err := s.receipt("", "s:abc"); r != nil || err != nil {
		t.Error(r, err)
	}
}
