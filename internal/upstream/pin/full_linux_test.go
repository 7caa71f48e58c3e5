package pin

import (
	"errors"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/doorward/doorward/test/doortest"
)

// lists are lists of one entry each.
var lists = map[Kind][]byte{Tools: tools("x=1"), Prompts: []byte(`[{"name":"x"}]`)}

// A first use that could not be written is tried again with the same list. Once the directory can be written,
// the earlier verdicts on the list do not stay on any connection.
func TestAFirstUseThatCouldNotBeWrittenIsTriedAgain(t *testing.T) {
	t.Parallel()
	for what, spoil := range map[string]func(t *testing.T, dir string) (mend func() error){
		"moved away": func(t *testing.T, dir string) func() error {
			if err := os.Rename(dir, dir+".away"); err != nil {
				t.Fatal(err)
			}
			return func() error { return os.Rename(dir+".away", dir) }
		},
		"full": func(t *testing.T, dir string) func() error {
			ballast := filepath.Join(dir, "ballast")
			if err := os.WriteFile(ballast, make([]byte, 1<<17), 0o600); !errors.Is(err, syscall.ENOSPC) {
				t.Skipf("mounting a small file system is not permitted here (%v)", err)
			}
			return func() error { return os.Remove(ballast) }
		},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			dir := filepath.Join(t.TempDir(), "pins")
			if err := os.Mkdir(dir, 0o700); err != nil {
				t.Fatal(err)
			}
			if what == "full" && syscall.Mount("tmpfs", dir, "tmpfs", 0, "size=64k,mode=0700") == nil {
				t.Cleanup(func() { _ = syscall.Unmount(dir, syscall.MNT_DETACH) })
			}
			s := open(t, dir)
			g := s.auto("a")
			one, two := g.View(), g.View()
			mend := spoil(t, dir)
			var old []*Verdict
			for _, v := range []*View{one, two} {
				for k, list := range lists {
					verdict := v.Judge(Asker{Era: "legacy"}, k, list)
					want(t, "meanwhile", judged(verdict), "")
					old = append(old, verdict)
				}
			}
			if err := mend(); err != nil {
				t.Fatal(err)
			}
			for _, v := range old {
				doortest.Until(t, 20*time.Second, "the verdict ends", func() bool { return !v.Current() })
			}
			for k, list := range lists {
				want(t, "afterwards", judged(one.Judge(Asker{Era: "legacy"}, k, list)), "x")
				want(t, "on the other connection", judged(two.Judge(Asker{Era: "legacy"}, k, list)), "x")
			}
			want(t, "withheld", s.held("a"), "")
			want(t, "in the next run", judged(open(t, dir).auto("a").Judge(Asker{Era: "legacy"}, Tools, lists[Tools])), "x")
		})
	}
}
