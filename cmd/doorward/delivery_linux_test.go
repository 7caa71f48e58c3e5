package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
)

const reviewDocument = "---\nname: review\nclass: instructions\n---\nReview in two passes.\n"

// overSocket is a client of one Unix socket, which keeps its connections.
func overSocket(path string) *http.Client {
	return &http.Client{Timeout: mailSoon, Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", path)
	}}}
}

// fetch makes one request with a session's token, if there is one.
func fetch(c *http.Client, method, path, session string) (status int, body string, err error) {
	r, err := http.NewRequest(method, "http://doorward"+path, nil)
	if err != nil {
		return 0, "", err
	}
	if session != "" {
		r.Header.Set("Doorward-Session", session)
	}
	resp, err := c.Do(r)
	if err != nil {
		return 0, "", err
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	return resp.StatusCode, string(b), err
}

// A thousand fetches of the composed text over the Unix socket: each is complete, and 95 in
// 100 take less than 50 ms. The test is not parallel, since other tests would slow the
// fetches.
func TestAThousandFetchesOfInstructionsAreWholeAndFast(t *testing.T) {
	d := startMail(t, "one", "listen: {http: []}\nlimits: {calls_per_second: 100000}\ninstructions: {dir: .}\n", "review.md", reviewDocument)
	c := overSocket(d.address(true))
	status, body, err := fetch(c, http.MethodPost, "/auth/session", "")
	var made struct{ Token string }
	if err != nil || status != http.StatusCreated || json.Unmarshal([]byte(body), &made) != nil {
		t.Fatalf("no session: %d %v", status, err)
	}
	p95 := time.Hour
	for round := 0; round == 0 || round < 5 && p95 >= 50*time.Millisecond; round++ { // a busy machine may be slow itself
		p95 = min(p95, slowest(t, c, made.Token))
	}
	if p95 >= 50*time.Millisecond {
		t.Errorf("95 of 100 took up to %s", p95)
	}
}

// slowest fetches the text a thousand times and returns what 95 in 100 took at most.
func slowest(t *testing.T, c *http.Client, token string) time.Duration {
	t.Helper()
	took := make([]time.Duration, 1000)
	for i := range took {
		begun := time.Now()
		status, body, err := fetch(c, http.MethodGet, "/auth/instructions", token)
		took[i] = time.Since(begun)
		if err != nil || status != http.StatusOK || !strings.Contains(body, "Review in two passes.") || !strings.Contains(body, "\nref: dwi-") {
			t.Fatalf("fetch %d: %d %v\n%s", i, status, err, body)
		}
	}
	slices.Sort(took)
	t.Logf("median %s, p95 %s, most %s", took[500], took[949], took[999])
	return took[949]
}

// The token of a session is refused for another user at the socket, root included, although
// the directories let that user in. It is also refused for another process of the same
// user.
func TestASessionTokenIsOfNoUseToAnotherUser(t *testing.T) {
	t.Parallel()
	h := newHousehold(t)
	h.guide(t)
	sock := filepath.Join(h.dir, "run", "doorward.sock")
	token := h.reader(t, sock)
	if err := os.Chmod(sock, 0o666); err != nil {
		t.Fatal(err)
	}
	for _, dir := range []string{h.dir, filepath.Dir(sock)} {
		if err := os.Chmod(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if status, body, err := fetch(overSocket(sock), http.MethodGet, "/auth/instructions", token); err == nil && status != http.StatusUnauthorized || strings.Contains(body, "passes") {
		t.Errorf("root got %d %s", status, body)
	}
	closed := regexp.MustCompile(`^failed: Post "http://doorward/auth/session": (EOF|http: server closed idle connection|(read|write) unix [^\n]*: (connection reset by peer|broken pipe))\n$`) // after it had connected
	for _, uid := range []uint32{0, plainUser - 1} {
		thief := h.command("stranger", "reads", sock, token)
		thief.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uid, Gid: uid}}
		var out bytes.Buffer
		thief.Stdout, thief.Stderr = &out, &out
		if err := thief.Start(); err != nil {
			t.Fatal(err)
		}
		late := time.AfterFunc(time.Minute, func() { thief.Process.Kill() }) // a thief that succeeds does not end by itself
		err := thief.Wait()
		late.Stop()
		if err == nil || !closed.MatchString(out.String()) {
			t.Errorf("user %d got %v %s", uid, err, &out)
		}
	}
	if out := h.reads(t, sock, token); strings.Contains(out, "passes") { // a sibling, not a child of the bound process
		t.Errorf("a program beside the bound one got %s", out)
	}
}

// guide imports instructions into a household, as its user.
func (h *household) guide(t *testing.T) {
	t.Helper()
	file := filepath.Join(h.dir, "review.md")
	if err := os.WriteFile(file, []byte(reviewDocument), 0o644); err != nil {
		t.Fatal(err)
	}
	if out, err := h.command("doorward", "instructions", "import", file).CombinedOutput(); err != nil {
		t.Fatalf("importing a document: %v\n%s", err, out)
	}
}

// reader starts a program that has a session and stays, and gives its token.
func (h *household) reader(t *testing.T, sock string) string {
	t.Helper()
	cmd, answers := h.start(t, "reads", sock)
	t.Cleanup(func() { cmd.Process.Kill(); cmd.Wait() })
	var made struct{ Token string }
	first, rest, _ := strings.Cut(answers, "\n")
	if err := json.Unmarshal([]byte(strings.TrimPrefix(first, "201 ")), &made); err != nil || !strings.Contains(rest, "Review in two passes.") {
		t.Fatalf("the reader heard %s", answers)
	}
	return made.Token
}

// reads runs the same program with the token of another one, and returns what it got with
// that.
func (h *household) reads(t *testing.T, sock, token string) string {
	t.Helper()
	cmd, answers := h.start(t, "reads", sock, token)
	cmd.Process.Kill()
	cmd.Wait()
	_, after, ok := strings.Cut(answers, "\nref: dwi-")
	if !ok {
		t.Fatalf("it got nothing of its own: %s", answers)
	}
	return after
}

// start runs a stranger of the household's user until it says that it stays.
func (h *household) start(t *testing.T, args ...string) (cmd *exec.Cmd, said string) {
	t.Helper()
	cmd = h.command("stranger", args...)
	cmd.Stderr = cmd.Stdout
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	var b strings.Builder
	for in := bufio.NewScanner(out); in.Scan(); {
		if in.Text() == "stays" {
			return cmd, b.String()
		}
		fmt.Fprintln(&b, in.Text())
	}
	cmd.Wait()
	t.Fatalf("it ended: %s", b.String())
	return nil, ""
}
