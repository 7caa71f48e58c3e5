package onboard_test

import (
	"bytes"
	"testing"

	"github.com/doorward/doorward/internal/onboard"
)

// FuzzAnyTextIsEditedOrRefused: for any text an edit is refused, or the entry is
// there after Install, once, and gone after Uninstall.
func FuzzAnyTextIsEditedOrRefused(f *testing.F) {
	clients := onboard.Clients()
	for n, c := range clients {
		for _, text := range texts[c.Format] {
			f.Add(uint8(n), filled(c, text))
		}
	}
	f.Fuzz(func(t *testing.T, n uint8, text []byte) {
		c := clients[int(n)%len(clients)]
		if words, err := c.Installed(text); err != nil || words != nil {
			return
		}
		after, err := c.Install(text, program, []string{"connect"})
		if err != nil {
			return
		}
		if words, err := c.Installed(after); err != nil || len(words) != 2 || words[0] != program {
			t.Fatalf("%s: %v %v in\n%s", c.Name, words, err, after)
		}
		again, err := c.Install(after, program, []string{"connect"})
		if err != nil || !bytes.Equal(again, after) {
			t.Fatalf("%s: installed twice: %v\n%s\n%s", c.Name, err, after, again)
		}
		text, found, err := c.Uninstall(after)
		if err != nil {
			return // refused
		}
		if words, err := c.Installed(text); !found || err != nil || words != nil {
			t.Fatalf("%s: %v %v in\n%s", c.Name, words, err, text)
		}
	})
}
