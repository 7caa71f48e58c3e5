package doortest_test

import (
	"bufio"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/doorward/doorward/test/doortest"
)

func connect(t *testing.T, dsn string) *pgx.Conn {
	t.Helper()
	c, err := pgx.Connect(t.Context(), dsn)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close(context.Background()) })
	return c
}

func one[T any](t *testing.T, c *pgx.Conn, query string) T {
	t.Helper()
	var v T
	if err := c.QueryRow(t.Context(), query).Scan(&v); err != nil {
		t.Fatalf("%s: %v", query, err)
	}
	return v
}

func TestPostgresGivesEachTestAnEmptyDatabaseOfADurableServer(t *testing.T) {
	t.Parallel()
	a, b := connect(t, doortest.Postgres(t)), connect(t, doortest.Postgres(t))
	if _, err := a.Exec(t.Context(), "CREATE TABLE kept (n BIGINT)"); err != nil {
		t.Fatal(err)
	}
	for query, want := range map[string]string{
		"SELECT count(*)::text FROM information_schema.tables WHERE table_schema = 'public'": "0",
		"SHOW fsync":              "on",
		"SHOW synchronous_commit": "on",
		"SHOW full_page_writes":   "on",
		"SHOW listen_addresses":   "",
		"SHOW server_encoding":    "UTF8",
	} {
		if got := one[string](t, b, query); got != want {
			t.Errorf("%s: %q, want %q", query, got, want)
		}
	}
	if v := one[int](t, b, "SELECT current_setting('server_version_num')::int"); v < 150000 {
		t.Errorf("server version %d", v)
	}
}

func TestPostgresServerKeepsWhatWasCommittedOverAKill(t *testing.T) {
	t.Parallel()
	s := doortest.PostgresServer(t)
	c := connect(t, s.DSN())
	for _, query := range []string{"CREATE TABLE kept (n BIGINT)", "INSERT INTO kept VALUES (41)"} {
		if _, err := c.Exec(t.Context(), query); err != nil {
			t.Fatal(err)
		}
	}
	for range 2 {
		s.Kill(t)
		if c, err := pgx.Connect(t.Context(), s.DSN()); err == nil {
			_ = c.Close(t.Context())
			t.Fatal("a killed server takes connections")
		}
		s.Start(t)
		if n := one[int](t, connect(t, s.DSN()), "SELECT n FROM kept"); n != 41 {
			t.Errorf("after the kill: %d", n)
		}
	}
}

// The child process of the next test starts a server, writes its address to a file, and
// waits to be killed. In an ordinary run this test does nothing.
func TestChildWithAPostgres(t *testing.T) {
	t.Parallel()
	out := os.Getenv("DOORTEST_CHILD_OUT")
	if out == "" {
		return
	}
	s := doortest.PostgresServer(t)
	if os.Getenv("DOORTEST_CHILD_KILLS_IT") != "" {
		s.Kill(t)
	}
	if err := os.WriteFile(out, []byte(s.DSN()+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if os.Getenv("DOORTEST_CHILD_PANICS") != "" {
		go panic("the test binary ends without tidying up")
	}
	time.Sleep(time.Minute)
}

func TestNothingStaysOfPostgresWhenTheTestBinaryIsKilledOrPanics(t *testing.T) {
	t.Parallel()
	doortest.Postgres(t) // skips where there is none
	for name, env := range map[string]string{
		"killed":                 "A=",
		"panic":                  "DOORTEST_CHILD_PANICS=1",
		"killed after its child": "DOORTEST_CHILD_KILLS_IT=1",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			out := filepath.Join(t.TempDir(), "dsn")
			cmd := exec.Command(os.Args[0], "-test.run=^TestChildWithAPostgres$")
			cmd.Env = append(os.Environ(), "DOORTEST_CHILD_OUT="+out, env)
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			dir := waitForDir(t, out)
			segment := sharedSegment(t, dir)
			if name != "panic" && !hasField(segments(t), segment) {
				t.Errorf("the server has no shared memory segment %q: the test shows nothing", segment)
			}
			_ = cmd.Process.Kill()
			_ = cmd.Wait()
			doortest.Until(t, 30*time.Second, "the directory goes", func() bool {
				_, err := os.Stat(dir)
				return os.IsNotExist(err)
			})
			doortest.Until(t, 30*time.Second, "the processes of the server end", func() bool { // its keeper ends after the directory
				return !slices.ContainsFunc(commandLines(t), func(p string) bool { return strings.Contains(p, dir) })
			})
			if hasField(segments(t), segment) {
				t.Errorf("the shared memory segment %s is left", segment)
			}
		})
	}
}

func waitForDir(t *testing.T, out string) string {
	t.Helper()
	var dsn string
	doortest.Until(t, 30*time.Second, "the child starts a server", func() bool {
		b, _ := os.ReadFile(out)
		dsn = string(b)
		return strings.HasSuffix(dsn, "\n")
	})
	return strings.TrimPrefix(strings.Fields(dsn)[0], "host=")
}

// sharedSegment is the number of the System V segment that the server has.
func sharedSegment(t *testing.T, dir string) string {
	t.Helper()
	f, err := os.Open(filepath.Join(dir, "data", "postmaster.pid"))
	if err != nil {
		return "" // the panic came first
	}
	defer f.Close()
	lines := bufio.NewScanner(f)
	for n := 1; lines.Scan(); n++ {
		if fields := strings.Fields(lines.Text()); n == 7 && len(fields) == 2 {
			return fields[1]
		}
	}
	return ""
}

func segments(t *testing.T) string {
	t.Helper()
	b, err := os.ReadFile("/proc/sysvipc/shm")
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func hasField(table, want string) bool {
	for line := range strings.Lines(table) {
		if fields := strings.Fields(line); want != "" && len(fields) > 1 && fields[1] == want {
			return true
		}
	}
	return false
}

func commandLines(t *testing.T) []string {
	t.Helper()
	files, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		t.Fatal(err)
	}
	var all []string
	for _, f := range files {
		b, _ := os.ReadFile(f)
		all = append(all, strings.ReplaceAll(string(b), "\x00", " "))
	}
	return all
}
