package spawn

import (
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/doorward/doorward/internal/upstream/process"
)

// watch finds MARK in the output of agents, and allows, cuts or blocks it.
type watch struct {
	mu    sync.Mutex
	mode  string
	asked int
	whole bool
	by    Running
}

func (w *watch) look(by *Running, text string, whole io.Reader) (string, bool, bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.asked, w.by, w.whole = w.asked+1, *by, whole != nil
	inWhole := false
	if whole != nil {
		all, err := io.ReadAll(whole)
		inWhole = err != nil || strings.Contains(string(all), "MARK")
	}
	found := inWhole || strings.Contains(text, "MARK")
	switch {
	case w.mode == "block" && found:
		return "", false, true
	case w.mode == "redact":
		return strings.ReplaceAll(text, "MARK", "[cut]"), !inWhole, false
	}
	return text, true, false
}

// The whole output of an agent is checked once before the parent gets a text or a reference to
// a file. A blocked output, or a file that would have to be cut, is withheld.
func TestTheOutputOfAnAgentIsCheckedFirst(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		mode, prompt string
		begins       string
		refs, files  int
	}{
		"nothing":           {"block", "say harmless", "harmless\n", 0, 0},
		"nothing in much":   {"block", "say harmless\nflood 1\nsay end", "0123", 1, 1},
		"found":             {"alert", "say a MARK", "a MARK\n", 0, 0},
		"cut":               {"redact", "say a MARK", "a [cut]\n", 0, 0},
		"held back":         {"block", "say a MARK", resultWithheld, 0, 0},
		"cut in much":       {"redact", "say a MARK\nflood 1\nsay end", wholeWithheld, 0, 0},
		"held back in much": {"block", "say a MARK\nflood 1\nsay end", resultWithheld, 0, 0},
		"found in much":     {"alert", "say a MARK\nflood 1", "", 1, 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newStage(t, process.Contain)
			w := &watch{mode: c.mode}
			s.o.Look = w.look
			id := s.start(c.prompt)
			e := s.over(id, time.Minute)
			if len(e.Output) > resultBytes || !strings.HasPrefix(e.Output, c.begins) && !strings.Contains(e.Output, c.begins) || len(e.Rest) != c.refs {
				t.Errorf("%d bytes that begin with %q, %d refs", len(e.Output), e.Output[:min(len(e.Output), 90)], len(e.Rest))
			}
			if c.mode != "alert" && strings.Contains(e.Output, "MARK") {
				t.Error("the parent got MARK")
			}
			if files, _ := filepath.Glob(s.dir + "/state/" + outputsDir + "/*"); len(files) != c.files {
				t.Errorf("there are %v", files)
			}
			w.mu.Lock()
			defer w.mu.Unlock()
			if w.asked != 1 || w.by.ID != id || w.by.Parent == nil || w.whole != strings.Contains(c.prompt, "flood") {
				t.Errorf("%d checks, of %+v, whole %v", w.asked, w.by, w.whole)
			}
		})
	}
}

// Recover removes an output that was not checked before the daemon was killed, and keeps those
// that were.
func TestAnUncheckedOutputIsRemoved(t *testing.T) {
	t.Parallel()
	s := newStage(t, process.Contain)
	dir := s.dir + "/state/" + outputsDir
	must(0, os.MkdirAll(dir, 0o700))
	for _, name := range []string{"left.part", "kept.out"} {
		must(0, os.WriteFile(filepath.Join(dir, name), []byte("MARK"), 0o600))
	}
	must(0, s.Recover(t.Context()))
	files, _ := filepath.Glob(dir + "/*")
	if len(files) != 1 || filepath.Base(files[0]) != "kept.out" {
		t.Errorf("there are %v", files)
	}
}
