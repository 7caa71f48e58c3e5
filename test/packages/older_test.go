//go:build packages

package packages

import (
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"
)

// older is a revision from before the first package.
const older = "735bc5e"

// The package keeps the whole state of an older version: tokens, messages, instructions,
// the audit log to its last byte, and pins. The state is still there when the package is
// removed.
func TestTheStateOfAnOlderVersionIsKept(t *testing.T) {
	t.Parallel()
	needMachine(t)
	root, dir := moduleRoot(t), newMachine(t)
	buildOlder(t, root, dir+"/usr/local/bin/older")
	run(t, 5*time.Minute, "go", "build", "-C", root+"/examples/notes-server", "-o", dir+"/usr/local/bin/notes-server", ".")
	release(t, root, dir+"/root/release", "1.0.0", "linux/amd64")
	for name, text := range map[string]string{"before": before, "after": after, "gone": gone} {
		write(t, dir+"/home/ann/"+name, text, 0o755)
	}
	run(t, time.Minute, "chroot", dir, "chown", "-R", "ann:", "/home/ann")
	out := boot(t, dir, asAnn+`set -e
trap 'journalctl --no-pager -n 60' ERR
ann /home/ann/before
dpkg -i /root/release/doorward_1.0.0_linux_amd64.deb
`+service+`ann /home/ann/after
dpkg --purge doorward
ann /home/ann/gone
test -f /var/lib/doorward/doorward.db
echo the state is kept
`)
	if !strings.Contains(out, "\nthe state is kept\n") {
		t.Errorf("a command failed:\n%s", out)
	}
}

// buildOlder builds the program of the older revision from the history.
func buildOlder(t *testing.T, root, program string) {
	t.Helper()
	if err := exec.Command("git", "-C", root, "cat-file", "-e", older+"^{commit}").Run(); err != nil {
		t.Skipf("needs the history back to %s", older)
	}
	tree, err := os.MkdirTemp("", "doorward-older")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(tree) })
	run(t, time.Minute, "sh", "-c", `git -C "$0" archive "$1" | tar -x -C "$2"`, root, older, tree)
	run(t, 20*time.Minute, "env", "CGO_ENABLED=0", "go", "build", "-C", tree, "-trimpath", "-buildvcs=false", "-o", program, "./cmd/doorward")
}

// before makes a state with the older version, and saves descriptions of it.
const before = `mkdir -p ~/.config/doorward/instructions
cat > ~/.config/doorward/doorward.yaml <<'YAML'
listen: {http: [{addr: "127.0.0.1:0"}]}
mcpServers:
  notes: {command: /usr/local/bin/notes-server, doorward: {tools: {deny: [delete_note]}}}
YAML
review() { printf -- '---\nname: review\nclass: instructions\n---\n%s\n' "$1" > ~/.config/doorward/instructions/review.md; }
review 'The first text.'
older serve 2> ~/log &
older status --wait 60s
older token new kept > ~/kept
older token new gone > ~/gone-token
older token revoke gone
older call notes add_note title=Milk
older call agent register name=planner
older agent send planner@default The plan waits for you.
older instructions show review | grep 'The first text'
review 'The second text.'
for i in $(seq 600); do older instructions show review | grep 'The second text' && break; sleep 0.1; done
older instructions show review > ~/review
older instructions list --json | grep -o '"version":"[0-9a-f]*"' > ~/versions
older agent inbox planner@default --bodies > ~/inbox
older tools notes > ~/tools
kill %1
wait %1 || true
older audit verify
older audit export > ~/record
older token list --json | grep -o '"id":"[^"]*"' | sort > ~/tokens
grep -o '^,*{"item".*' ~/.local/state/doorward/pins/notes.json | sed 's/^,//' | sort > ~/pins
test "$(wc -l < ~/pins)" -ge 4
`

// service makes a state of the older version for the system unit, and starts it.
const service = `install -d -o doorward -g doorward -m 0700 /var/lib/doorward
runuser -u doorward -- env HOME=/var/lib/doorward DOORWARD_STATE_DIR=/var/lib/doorward DOORWARD_RUNTIME_DIR=/var/lib/doorward/run bash -exc '
cd; older serve --config /etc/doorward/doorward.yaml 2> log &
older status --wait 60s; older token new desk > desk; kill %1; wait %1 || true'
systemctl start doorward.service
runuser -u doorward -- env DOORWARD_STATE_DIR=/var/lib/doorward DOORWARD_RUNTIME_DIR=/run/doorward doorward audit verify
curl --fail --silent http://127.0.0.1:7867/mcp -H "Authorization: Bearer $(cat /var/lib/doorward/desk)" -H 'Content-Type: application/json' -H 'Accept: application/json, text/event-stream' \
  -d '{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"curl","version":"1"}}}' | grep serverInfo
`

// after compares the state with the saved descriptions. The socket starts the daemon.
const after = `systemctl --user enable --now doorward.socket
test -z "$(pgrep -u ann -x doorward)"
doorward status
pgrep -u ann -x doorward
doorward token list
doorward token list --json | grep -o '"id":"[^"]*"' | sort | cmp - ~/tokens
doorward token list --json | grep -o '"name":"kept"[^}]*"revoked":false'
doorward token list --json | grep -o '"name":"gone"[^}]*"revoked":true'
doorward instructions show review | cmp - ~/review
doorward instructions list --json | grep -o '"version":"[0-9a-f]*"' | cmp - ~/versions
doorward agent inbox planner@default --bodies | cmp - ~/inbox
doorward agent fsck
doorward trust notes 2>&1 | grep 'nothing is withheld'
doorward tools notes | cmp - ~/tools
doorward call notes add_note title=Milk
test -z "$(grep -vxF -f <(grep -o '^,*{"item".*' ~/.local/state/doorward/pins/notes.json | sed 's/^,//') ~/pins)"
doorward audit verify
doorward audit export | head -n "$(wc -l < ~/record)" | cmp - ~/record
systemctl --user disable --now doorward.socket doorward.service
`

// gone checks that the state is still there without the package.
const gone = `test -z "$(type -P doorward)"
for i in $(seq 100); do pgrep -u ann -x doorward || break; sleep 0.1; done
older version
test -f ~/.local/state/doorward/doorward.db
test -s ~/.local/state/doorward/audit/00000001.jsonl
test -f ~/.local/state/doorward/pins/notes.json
`
