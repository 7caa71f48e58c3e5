package doortest

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

const (
	pgOldest = 15 // the oldest major version that Doorward is tested with
	pgOwner  = "doorward"
	pgReady  = time.Minute // recovery after a kill included
	// pgDirMax leaves room for "/dwpg", a random number and the name of the socket within the
	// kernel's 107 bytes.
	pgDirMax = 70
	pgAdvice = "no PostgreSQL of version 15 or later here: as root, run test/install.sh postgres (Debian's package `postgresql`)"
)

// keeper is the program that owns a server: it makes the cluster and starts it on request. At the
// end of its input, which the end of the test binary always causes, it stops the server and
// removes all files. It has a session of its own, so a signal to the tests' process group does
// not reach it.
//
// After a kill -9 the System V segment that marks PostgreSQL's data directory as used remains;
// its number is in the seventh line of postmaster.pid.
const keeper = `
trap '' PIPE INT TERM HUP
bin=$1 owner=$2 dir=$3 pid=
while read -r word; do
	case $word in
	init)
		if "$bin/initdb" -D data -U "$owner" -A trust -E UTF8 --no-locale --no-sync --no-instructions >>log 2>&1 </dev/null
		then echo 0; else echo failed; fi ;;
	start)
		"$bin/postgres" -D data -k "$dir" -c listen_addresses= -c unix_socket_permissions=0700 \
			-c fsync=on -c synchronous_commit=on -c full_page_writes=on -c max_connections=300 -c shared_buffers=32MB \
			-c dynamic_shared_memory_type=mmap -c log_checkpoints=off -c jit=off >>log 2>&1 </dev/null &
		pid=$!
		echo "$pid" ;;
	reap)
		wait "$pid"
		pid=
		echo 0 ;;
	esac
done
if [ -n "$pid" ]; then
	kill -QUIT "$pid"
	wait "$pid"
fi
if [ -f data/postmaster.pid ]; then
	ipcrm -m "$(sed -n '7s/.* //p' data/postmaster.pid)" 2>/dev/null
fi
cd /
rm -rf "$dir"
`

// shared is the one server of a test binary, started by the first test that needs a database.
var shared struct {
	once   sync.Once
	server *Server
	err    error
}

// Postgres returns a connection string to a new, empty database of a real PostgreSQL: one server
// for each test binary, on a Unix socket only, with fsync on. The database is dropped when the
// test ends. Without PostgreSQL the test is skipped, which test/count refuses in CI.
func Postgres(t testing.TB) string {
	t.Helper()
	bin := postgresBin(t)
	shared.once.Do(func() { shared.server, shared.err = startPostgres(bin) })
	must(t, shared.err)
	return shared.server.Database(t)
}

// Server is a PostgreSQL server that a test may kill. Its methods are for the test's own
// goroutine, except Database and DSN, which any may call.
type Server struct {
	bin, dir string
	cred     *syscall.Credential // nil: the user that runs the tests
	keeper   *exec.Cmd
	in       io.WriteCloser // the keeper lives as long as this is open
	out      *bufio.Reader
	pid      int
	frozen   bool

	mu sync.Mutex
	n  int
}

// PostgresServer starts a server for this test only, and ends it with the test. It skips as
// Postgres does.
func PostgresServer(t testing.TB) *Server {
	t.Helper()
	s, err := startPostgres(postgresBin(t))
	must(t, err)
	t.Cleanup(func() {
		if err := s.end(); err != nil {
			t.Errorf("ending PostgreSQL: %v", err)
		}
	})
	return s
}

// DSN returns the connection string of a database that was empty at first. It stays valid over
// Kill and Start.
func (s *Server) DSN() string { return s.dsn(pgOwner) }

// Database makes another empty database. It is dropped when t ends, even if clients are still
// connected.
func (s *Server) Database(t testing.TB) string {
	t.Helper()
	s.mu.Lock()
	s.n++
	name := "dw" + strconv.Itoa(s.n)
	s.mu.Unlock()
	must(t, s.create(name))
	t.Cleanup(func() {
		// A server that the test left dead cannot drop it.
		_ = s.tool("dropdb", "--if-exists", "--force", name)
	})
	return s.dsn(name)
}

// Kill ends the postmaster and all its children with SIGKILL and returns when they have ended.
func (s *Server) Kill(t testing.TB) {
	t.Helper()
	s.frozen = false
	must(t, killFamily(s.pid))
	_, err := s.tell("reap")
	must(t, err)
}

// Freeze stops all processes of the server, so that its clients wait. Thaw continues them. A
// frozen server can be killed.
func (s *Server) Freeze(t testing.TB) {
	t.Helper()
	s.frozen = true
	must(t, signalFamily(s.pid, syscall.SIGSTOP))
}

// Thaw undoes Freeze.
func (s *Server) Thaw(t testing.TB) {
	t.Helper()
	s.frozen = false
	must(t, signalFamily(s.pid, syscall.SIGCONT))
}

// Start starts a killed server on its data directory and returns when it accepts connections.
func (s *Server) Start(t testing.TB) {
	t.Helper()
	must(t, s.start())
}

func startPostgres(bin string) (*Server, error) {
	s := &Server{bin: bin}
	err := errors.Join(s.prepare(), s.keep())
	if err == nil {
		_, err = s.tell("init")
	}
	if err == nil {
		err = s.start()
	}
	if err == nil {
		err = s.create(pgOwner)
	}
	if err != nil {
		log, _ := os.ReadFile(filepath.Join(s.dir, "log"))
		err = fmt.Errorf("starting PostgreSQL: %w\n%s", err, log)
		return nil, errors.Join(err, s.end())
	}
	return s, nil
}

// prepare makes the directory of data and socket. PostgreSQL refuses to run as root, so for
// root it belongs to another user.
func (s *Server) prepare() error {
	root := os.Geteuid() == 0
	base := os.TempDir()
	if root || len(base) > pgDirMax {
		base = "/tmp" // another user may not enter root's directory, and a long name leaves no room for a socket
	}
	var err error
	if s.dir, err = os.MkdirTemp(base, "dwpg"); err != nil || !root {
		return err
	}
	if s.cred, err = somebody(); err != nil {
		return err
	}
	return os.Chown(s.dir, int(s.cred.Uid), int(s.cred.Gid))
}

// somebody returns the credentials of an unprivileged user.
func somebody() (*syscall.Credential, error) {
	u, err := user.Lookup("postgres")
	if err != nil {
		u, err = user.Lookup("nobody")
	}
	if err != nil {
		return nil, fmt.Errorf("finding a user for PostgreSQL, which refuses root: %w", err)
	}
	uid, err1 := strconv.ParseUint(u.Uid, 10, 32)
	gid, err2 := strconv.ParseUint(u.Gid, 10, 32)
	return &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}, errors.Join(err1, err2)
}

// keep starts the keeper. Its output is a separate pipe, so that a process that waits for
// the output of the tests does not wait for the keeper.
func (s *Server) keep() error {
	s.keeper = exec.Command("/bin/sh", "-c", keeper, "keeper", s.bin, pgOwner, s.dir)
	s.keeper.Dir = s.dir
	s.keeper.Env = []string{"PATH=" + os.Getenv("PATH"), "LC_ALL=C", "TZ=UTC"}
	s.keeper.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Credential: s.cred}
	in, err1 := s.keeper.StdinPipe()
	out, err2 := s.keeper.StdoutPipe()
	if err := errors.Join(err1, err2); err != nil {
		return err
	}
	s.in, s.out = in, bufio.NewReader(out)
	return s.keeper.Start()
}

// tell sends the keeper a word and reads its answer, a number.
func (s *Server) tell(word string) (int, error) {
	if _, err := fmt.Fprintln(s.in, word); err != nil {
		return 0, fmt.Errorf("telling the keeper to %s: %w", word, err)
	}
	answer, err := s.out.ReadString('\n')
	if err != nil {
		return 0, fmt.Errorf("the keeper's answer to %s: %w", word, err)
	}
	n, err := strconv.Atoi(strings.TrimSpace(answer))
	if err != nil {
		return 0, fmt.Errorf("%s: %q", word, answer)
	}
	return n, nil
}

func (s *Server) start() error {
	var err error
	if s.pid, err = s.tell("start"); err != nil {
		return err
	}
	for deadline := time.Now().Add(pgReady); ; time.Sleep(10 * time.Millisecond) {
		err := s.tool("pg_isready", "-q", "-d", "postgres")
		if err == nil {
			return nil
		}
		if !running(s.pid) {
			return errors.New("PostgreSQL ended at once")
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("not ready within %s: %w", pgReady, err)
		}
	}
}

func (s *Server) create(name string) error { return s.tool("createdb", "-T", "template0", name) }

// tool runs one of PostgreSQL's own programs with the server.
func (s *Server) tool(name string, args ...string) error {
	cmd := exec.Command(filepath.Join(s.bin, name), append([]string{"-h", s.dir, "-U", pgOwner}, args...)...)
	cmd.Env = []string{"LC_ALL=C", "PGDATABASE=postgres"}
	cmd.Dir = "/"
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w: %s", name, err, out)
	}
	return nil
}

func (s *Server) dsn(name string) string {
	return fmt.Sprintf("host=%s user=%s dbname=%s sslmode=disable", s.dir, pgOwner, name)
}

// end closes the keeper's input, so that it cleans up and ends.
func (s *Server) end() error {
	if s.keeper == nil || s.keeper.Process == nil {
		return os.RemoveAll(s.dir)
	}
	var thawed error
	if s.frozen { // a frozen server does not end when it is asked
		thawed = signalFamily(s.pid, syscall.SIGCONT)
	}
	return errors.Join(thawed, s.in.Close(), s.keeper.Wait())
}

// postgresBin returns the directory of PostgreSQL's programs: that on PATH, or the newest
// one in the usual places of distributions.
func postgresBin(t testing.TB) string {
	t.Helper()
	var dirs []string
	if path, err := exec.LookPath("postgres"); err == nil {
		dirs = append(dirs, filepath.Dir(path))
	}
	for _, pattern := range []string{"/usr/lib/postgresql/*/bin", "/usr/pgsql-*/bin", "/opt/homebrew/opt/postgresql@*/bin"} {
		found, _ := filepath.Glob(pattern)
		dirs = append(dirs, found...)
	}
	best, newest := "", pgOldest-1
	for _, dir := range dirs {
		if v := pgVersion(dir); v > newest {
			best, newest = dir, v
		}
	}
	if best == "" {
		t.Skip(pgAdvice)
	}
	return best
}

// pgVersion returns the major version of the server in dir; 0: there is none.
func pgVersion(dir string) int {
	for _, name := range []string{"initdb", "createdb", "dropdb", "pg_isready"} {
		if _, err := os.Stat(filepath.Join(dir, name)); err != nil {
			return 0
		}
	}
	out, err := exec.Command(filepath.Join(dir, "postgres"), "--version").Output()
	if err != nil {
		return 0
	}
	var major int
	_, _ = fmt.Sscanf(string(out), "postgres (PostgreSQL) %d", &major)
	return major
}
