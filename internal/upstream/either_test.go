package upstream

import (
	"errors"
	"testing"
	"time"

	"github.com/doorward/doorward/internal/base/rawjson"
)

// DialEither finds out the era of a program, whichever handshake it begins with,
// also where the program does not answer a method that it does not know.
func TestDialEither(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		mode       string
		first      string // of the handshakes
		wantModern bool
		only       bool
		want       error
	}{
		{"modern", "modern", true, false, nil},
		{"modern", "legacy", false, false, nil}, // it has both
		{"plain", "modern", false, true, nil},
		{"plain", "legacy", false, false, nil},
		{"refuse", "legacy", false, false, ErrEra}, // it refuses both
		{"legacy-list", "modern", false, true, nil},
		{"silent-on-discover", "modern", false, false, nil},
		{"missing-capability", "modern", false, false, ErrProtocol},
		{"exit-on-discover", "modern", false, true, nil}, // the one that is started again
		{"deaf", "modern", false, false, ErrTimeout},
		{"exit", "legacy", false, false, ErrLost},
	} {
		t.Run(tc.mode+" "+tc.first, func(t *testing.T) {
			t.Parallel()
			s := fake(t, tc.mode, func(d *Definition, deps *Deps) { d.Start, deps.ProbeTimeout = 3*time.Second, time.Second })
			c, g, err := s.DialEither(testContext(t), tc.first == "modern", []byte(modernMeta), []byte(initParams), nil)
			if c != nil {
				defer c.Close()
			}
			if !errors.Is(err, tc.want) || tc.want == nil && err != nil {
				t.Fatalf("got %v", err)
			}
			if err != nil {
				return
			}
			if g.Modern != tc.wantModern || g.Only != tc.only || (rawjson.Get(g.Result, "supportedVersions") != nil) != tc.wantModern {
				t.Errorf("greeting %+v: %s", g, g.Result)
			}
			if got := string(mustCall(t, c, tool("echo"), nil).Result); got == "" {
				t.Error("a call after it has no result")
			}
		})
	}
}
