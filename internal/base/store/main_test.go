package store

import (
	"fmt"
	"os"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/doorward/doorward/test/doortest"
)

// TestMain makes the test binary one of the processes that are killed or run out
// of space, and fails when goroutines of the store are left after the tests.
func TestMain(m *testing.M) {
	if len(os.Args) > 2 {
		switch os.Args[1] {
		case "write-for-ever":
			os.Exit(writeForEver(os.Args[2:]))
		case "limited-files":
			os.Exit(limitedFiles(os.Args[2]))
		case "small-disk":
			os.Exit(smallDisk(os.Args[2]))
		}
	}
	code := m.Run()
	if leak := leaked(); code == 0 && leak != "" {
		fmt.Fprintln(os.Stderr, leak)
		code = 1
	}
	os.Exit(code)
}

// leaked is a goroutine of this package or its drivers that does not end.
func leaked() (left string) {
	doortest.Becomes(20*time.Second, func() bool { left = leftovers(); return left == "" })
	return left
}

func leftovers() string {
	buf := make([]byte, 4<<20)
	buf = buf[:runtime.Stack(buf, true)]
	for _, g := range strings.Split(string(buf), "\n\n") {
		if strings.Contains(g, "store.leaked(") {
			continue
		}
		for _, owner := range []string{"internal/base/store.", "database/sql.", "pgconn."} {
			if strings.Contains(g, owner) {
				return "goroutine left over:\n" + g
			}
		}
	}
	return ""
}
