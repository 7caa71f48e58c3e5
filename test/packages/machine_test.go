//go:build packages

package packages

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// needMachine skips the test where no machine with systemd can be started.
func needMachine(t *testing.T) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root to start a machine with systemd")
	}
	for _, path := range []string{machineFiles(t), "/usr/bin/systemd-nspawn"} {
		if _, err := os.Stat(path); err != nil {
			t.Skipf("needs %s: run test/machine.sh", path)
		}
	}
}

// machineFiles is the tarball that test/machine.sh makes.
func machineFiles(t *testing.T) string {
	t.Helper()
	cache, err := os.UserCacheDir()
	if err != nil {
		t.Fatal(err)
	}
	return filepath.Join(cache, "doorward-test", "machine", "root.tar")
}

// newMachine makes the files of a Debian system with a user ann, who may sudo.
func newMachine(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("/var/tmp", "doorward-machine")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	run(t, 5*time.Minute, "tar", "-C", dir, "-xpf", machineFiles(t)) // with the mode of the root directory
	run(t, time.Minute, "chroot", dir, "useradd", "-m", "-s", "/bin/bash", "ann")
	write(t, dir+"/etc/sudoers.d/ann", "ann ALL=(ALL) NOPASSWD:SETENV: ALL\n", 0o440)
	write(t, dir+"/etc/hosts", "127.0.0.1 localhost doorward.example.com vm\n", 0o644)
	write(t, dir+"/etc/machine-id", "", 0o644)
	return dir
}

// boot starts the machine without a network, lets it run the script as root, and
// returns the output of the script. The machine switches itself off.
func boot(t *testing.T, dir, script string) string {
	t.Helper()
	write(t, dir+"/root/script", script, 0o755)
	write(t, dir+"/etc/systemd/system/script.service", `[Unit]
After=multi-user.target
[Service]
Type=oneshot
ExecStart=/bin/bash /root/script
ExecStopPost=/bin/systemctl poweroff --no-block
StandardOutput=file:/root/output
StandardError=inherit
`, 0o644)
	link := dir + "/etc/systemd/system/multi-user.target.wants/script.service"
	if err := os.Symlink("../script.service", link); err != nil && !os.IsExist(err) {
		t.Fatal(err)
	}
	defer alone(t)()
	args := []string{"-D", dir, "--boot", "-q", "--private-network", "--register=no",
		"--system-call-filter=@keyring landlock_create_ruleset landlock_add_rule landlock_restrict_self"}
	if _, err := os.Stat("/run/systemd/system"); err != nil {
		args = append(args, "--keep-unit")
	}
	c := exec.Command("timeout", append([]string{"600", "systemd-nspawn"}, args...)...)
	c.Env = append(os.Environ(), "SYSTEMD_NSPAWN_UNIFIED_HIERARCHY=1")
	console, _ := c.CombinedOutput() // its status is that of the unmounting
	out, err := os.ReadFile(dir + "/root/output")
	if err != nil {
		t.Fatalf("the machine did not run the script: %v\n%s", err, console)
	}
	return string(out)
}

// alone waits until no other machine runs, and returns the function that lets the next
// one run. On a host without the unified hierarchy two machines get the same control
// groups, and take each other's services for their own.
func alone(t *testing.T) func() {
	t.Helper()
	f, err := os.Open(machineFiles(t))
	if err == nil {
		err = syscall.Flock(int(f.Fd()), syscall.LOCK_EX)
	}
	if err != nil {
		t.Fatal(err)
	}
	return func() { f.Close() }
}

func run(t *testing.T, limit time.Duration, name string, args ...string) {
	t.Helper()
	c := exec.Command("timeout", append([]string{fmt.Sprint(limit.Seconds()), name}, args...)...)
	if out, err := c.CombinedOutput(); err != nil {
		t.Fatalf("%s: %v\n%s", name, err, out)
	}
}

func write(t *testing.T, path, text string, mode os.FileMode) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), mode); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(path, mode); err != nil {
		t.Fatal(err)
	}
}

// The commands of the documents install, run, upgrade and remove Doorward on a machine
// with systemd, for a user that may sudo, and leave nothing behind but the state.
func TestTheDocumentsInstallRunUpgradeAndRemove(t *testing.T) {
	t.Parallel()
	needMachine(t)
	root, dir := moduleRoot(t), newMachine(t)
	for i, version := range []string{"1.0.0", "1.1.0"} {
		release(t, root, fmt.Sprintf("%s/home/ann/release-%d", dir, i+1), version, "linux/amd64")
	}
	run(t, time.Minute, "go", "build", "-C", root+"/examples/notes-server", "-o", dir+"/usr/local/bin/notes-server", ".")
	write(t, dir+"/home/ann/walk", walk(t, root), 0o755)
	run(t, time.Minute, "chroot", dir, "chown", "-R", "ann:", "/home/ann")
	out := boot(t, dir, asAnn+`ann /home/ann/walk || { journalctl --no-pager -n 60; exit 1; }
`)
	if !strings.Contains(out, "\nthe walk is over\n") {
		t.Errorf("a command failed:\n%s", out)
	}
	if left := remains(t, dir); left != "" {
		t.Errorf("the documents leave behind:\n%s", left)
	}
}

// asAnn defines the command ann, which runs a script as the user ann in a login session.
const asAnn = `set -x
loginctl enable-linger ann
for i in $(seq 600); do [ -S /run/user/1000/systemd/private ] && break; sleep 0.1; done
ann() { runuser -u ann -- env -i HOME=/home/ann USER=ann PATH=/usr/bin:/bin:/usr/sbin:/sbin:/usr/local/bin XDG_RUNTIME_DIR=/run/user/1000 bash -ex "$@"; }
`

// remains lists the files on the machine with doorward in their names, without the
// releases, the records of dpkg, and the saved state in the user's home.
func remains(t *testing.T, dir string) string {
	t.Helper()
	c := exec.Command("find", "etc", "usr", "var", "run", "home", "-name", "*doorward*", "-not", "-path", "home/ann/release-*", "-not", "-path", "var/lib/dpkg/*",
		"-not", "-path", "home/ann/doorward-state.tar.gz",
		"-not", "-path", "home/ann/.local/state/doorward.before*")
	c.Dir = dir
	out, err := c.CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return strings.TrimSpace(string(out))
}

// walk is the script of the documents' commands, with checks in between.
func walk(t *testing.T, root string) string {
	t.Helper()
	var s strings.Builder
	follow := func(name string, from, to int) {
		all := blocks(t, root, name)
		if to > len(all) {
			t.Fatalf("%s has %d blocks of commands", name, len(all))
		}
		for i, block := range all[from:to] {
			fmt.Fprintf(&s, ": %s, block %d\n%s", name, from+i+1, block)
		}
	}
	s.WriteString("cd ~/release-1\n")
	follow("install.md", 0, len(blocks(t, root, "install.md")))
	s.WriteString(serversRun)
	s.WriteString("cd ~\n")
	follow("certificates.md", 0, len(blocks(t, root, "certificates.md")))
	follow("second-machine.md", 0, len(blocks(t, root, "second-machine.md")))
	s.WriteString("doorward token new kept > /dev/null\n")
	follow("backup.md", 0, 2) // the others are run by backup_postgres.txtar
	s.WriteString("doorward token list | grep kept\ncd ~/release-2\n")
	follow("upgrade.md", 0, len(blocks(t, root, "upgrade.md")))
	s.WriteString(upgraded)
	follow("uninstall.md", 0, 1)
	s.WriteString(removed)
	follow("uninstall.md", 1, len(blocks(t, root, "uninstall.md")))
	s.WriteString("echo the walk is over\n")
	return s.String()
}

// serversRun checks that a stdio server runs under the hardened unit with all measures
// of its sandbox.
const serversRun = `sudo tee /etc/doorward/doorward.yaml > /dev/null <<'YAML'
listen: {http: [{addr: 127.0.0.1:7867, auth: required}]}
mcpServers:
  notes: {command: /usr/local/bin/notes-server}
  walled: {command: /usr/local/bin/notes-server, doorward: {sandbox: strict}}
YAML
sudo systemctl restart doorward-servers.service
dw call notes add_note title=Milk
dw call walled add_note title=Milk
dw status
dw status -v
test -z "$(dw status -v | grep -E '^[a-z]+ +(partial|unavailable) ' | grep -v ' memory limit ')"
test "$(dw status -v | grep -c '^[a-z]* *enforced .*user namespace.*own /proc.*root by allow-list.*no abstract sockets')" = 2
`

// upgraded checks that the new version has the old one's state, and that the daemons
// run.
const upgraded = `doorward version | grep 1.1.0
doorward status | grep 'doorward 1.1.0'
doorward token list | grep kept
dw status | grep 'doorward 1.1.0'
dw token list | grep desk
grep doorward.example.com /etc/doorward/doorward.yaml
`

// removed checks that only the state is left and no daemon runs. Files in /run end with
// the login.
const removed = `test -z "$(pgrep -x doorward)"
sudo test -f /var/lib/doorward/doorward.db
test -f ~/.local/state/doorward/doorward.db
test -z "$(dpkg-query -W doorward 2> /dev/null)"
test -z "$(sudo find /etc /usr -name '*doorward*' -not -path '/etc/doorward/*' -not -path /etc/doorward)"
`
