package child

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// What lies in a home and in Doorward's own directories is not there for a contained server, unless the configuration names
// it; and Doorward's own never is.
func TestSecretsAreHidden(t *testing.T) {
	everybody(t, func(t *testing.T, s *stage, who *inmate) {
		home := s.place(who)
		for _, name := range []string{".ssh/id", ".aws/credentials", ".netrc", ".kube/config", ".docker/config.json", ".gnupg/a/b",
			".config/gcloud/key", ".npmrc", "project/file", "elsewhere/keys/x"} {
			who.file(filepath.Join(home, name), "secret")
		}
		if err := os.Symlink(home+"/elsewhere/keys", home+"/.password-store"); err != nil {
			t.Fatal(err)
		}
		own := s.place(who)
		who.file(own+"/state/seal.key", "secret")
		who.file(own+"/state/named/x", "secret")
		who.file(own+"/doorward.yaml", "secret")
		who.file(own+"/data", "data")
		h := func(name string) string { return " " + filepath.Join(home, name) }
		got := s.attempts(who, order{
			Hide: []string{own + "/state", own + "/doorward.yaml", own + "/not-there"}, Homes: []string{home},
			Sandbox: Sandbox{Mode: Contain, Read: []string{home + "/.kube"}, Write: []string{home + "/.docker/config.json", own},
				Named: []string{own + "/state/named", home + "/project/file"}},
		}, "read"+h(".ssh/id"), "list"+h(".ssh"), "write"+h(".ssh/authorized_keys"), "read"+h(".aws/credentials"), "list"+h(".gnupg"),
			"read"+h(".config/gcloud/key"), "read"+h(".netrc"), "read"+h(".password-store/x"), "read"+h("elsewhere/keys/x"),
			"read"+h(".npmrc"), "read"+h("project/file"), "write"+h("project/new"),
			"read"+h(".kube/config"), "write"+h(".kube/config"), "list"+h(".docker"), "overwrite"+h(".docker/config.json"),
			"read "+own+"/state/seal.key", "list "+own+"/state", "read "+own+"/state/named/x", "read "+own+"/doorward.yaml", "read "+own+"/data")

		s.refused(got, "ENOENT", "read"+h(".ssh/id"), "read"+h(".aws/credentials"), "read"+h(".config/gcloud/key"),
			"read"+h(".password-store/x"), "read"+h("elsewhere/keys/x"), "read "+own+"/state/seal.key", "read "+own+"/state/named/x")
		s.refused(got, "[]", "list"+h(".ssh"), "list"+h(".gnupg"), "list "+own+"/state", "read"+h(".netrc"), "read "+own+"/doorward.yaml")
		s.refused(got, "EROFS", "write"+h(".ssh/authorized_keys"), "write"+h(".kube/config"))
		s.refused(got, "[secret]", "read"+h(".npmrc"), "read"+h("project/file"), "read"+h(".kube/config"))
		s.refused(got, "[config.json]", "list"+h(".docker"))
		s.refused(got, "ok", "write"+h("project/new"), "overwrite"+h(".docker/config.json"))
		s.refused(got, "[data]", "read "+own+"/data")
		if b, _ := os.ReadFile(own + "/state/seal.key"); string(b) != "secret" {
			t.Error("hiding has changed what is hidden")
		}
	})
}

// It has its own /tmp and /dev/shm; what the configuration names there is seen through.
func TestTemporaryFilesAreItsOwn(t *testing.T) {
	everybody(t, func(t *testing.T, s *stage, who *inmate) {
		dir := must(os.MkdirTemp("/tmp", "doorward"))
		t.Cleanup(func() { os.RemoveAll(dir) })
		who.own(dir)
		who.file(dir+"/named/file", "named")
		who.file(dir+"/named.txt", "named")
		who.file(dir+"/other", "secret")
		got := s.attempts(who, order{Env: []string{"TMPDIR=" + dir + "/tmp"}, Dir: dir + "/named",
			Sandbox: Sandbox{Mode: Contain, Named: []string{dir + "/named", dir + "/named.txt"}, Limits: Limits{Memory: 1 << 30}}},
			"read "+dir+"/other", "list "+dir, "read "+dir+"/named/file", "read "+dir+"/named.txt", "write "+dir+"/named/new", "cwd",
			"parent", "tmpdir", "write /tmp/x", "write /dev/shm/x", "list /dev/shm", "list /tmp", "run /bin/sh -c ls", "write /dev/x")
		s.refused(got, "ENOENT", "read "+dir+"/other")
		s.refused(got, "[named]", "read "+dir+"/named/file", "read "+dir+"/named.txt")
		s.refused(got, "ok", "write "+dir+"/named/new", "tmpdir", "write /tmp/x", "write /dev/shm/x")
		s.refused(got, "[x]", "list /dev/shm")
		s.refused(got, "[named named.txt tmp]", "list "+dir)
		s.refused(got, dir+"/named", "cwd")
		s.refused(got, "EROFS", "write /dev/x")
		s.refused(got, "file | new", "run /bin/sh -c ls")
		if got("parent") != "true" {
			t.Errorf("the root is not where it was: %s", got("parent"))
		}
		if _, err := os.Stat("/dev/shm/x"); err == nil {
			t.Error("a file in shared memory is the host's")
		}
		if b, _ := os.ReadFile(dir + "/named/new"); string(b) != "written" {
			t.Errorf("what it wrote where it may is %q", b)
		}
	})
}

// A script below /tmp has its package with it, and nothing else of /tmp.
func TestAScriptInTmpHasItsPackage(t *testing.T) {
	everybody(t, func(t *testing.T, s *stage, who *inmate) {
		dir := must(os.MkdirTemp("/tmp", "doorward"))
		t.Cleanup(func() { os.RemoveAll(dir) })
		who.own(dir)
		modules, own := dir+"/a/node_modules", dir+"/b/own"
		for _, file := range []string{modules + "/server/dist/index.js", modules + "/library/index.js", own + "/package.json", own + "/dist/main.js", own + "/lib/x.js"} {
			who.file(file, "named")
		}
		who.file(dir+"/a/other", "secret")
		who.file(dir+"/b/other", "secret")
		got := s.attempts(who, order{Sandbox: Sandbox{Mode: Contain, Named: []string{modules + "/server/dist/index.js", own + "/dist/main.js"}}},
			"read "+modules+"/library/index.js", "read "+own+"/lib/x.js", "read "+dir+"/a/other", "read "+dir+"/b/other")
		s.refused(got, "[named]", "read "+modules+"/library/index.js", "read "+own+"/lib/x.js")
		s.refused(got, "ENOENT", "read "+dir+"/a/other", "read "+dir+"/b/other")
	})
}

// Whoever names all of /tmp gets it.
func TestTmpThatIsNamedIsTheHosts(t *testing.T) {
	everybody(t, func(t *testing.T, s *stage, who *inmate) {
		dir := must(os.MkdirTemp("/tmp", "doorward"))
		t.Cleanup(func() { os.RemoveAll(dir) })
		who.own(dir)
		who.file(dir+"/file", "seen")
		got := s.attempts(who, order{Sandbox: Sandbox{Mode: Contain, Named: []string{"/tmp"}}}, "read "+dir+"/file")
		s.refused(got, "[seen]", "read "+dir+"/file")
	})
}

// It sees no process of the host, and cannot touch the one that it stands under.
func TestProcessesAreItsOwn(t *testing.T) {
	everybody(t, func(t *testing.T, s *stage, who *inmate) {
		host := fmt.Sprint(os.Getpid())
		got := s.attempts(who, order{Sandbox: Sandbox{Mode: Contain}},
			"processes", "signals 1", "signal 1 9", "read /proc/1/environ", "stat /proc/1/fd/4", "stat /proc/1/root/etc", "overwrite /proc/1/mem",
			"read /proc/1/cmdline", "ptrace 1", "peek 1", "signal "+host+" 0", "stat /proc/"+host, "uid", "status CapEff", "status CapBnd",
			"status CapPrm", "status CapInh", "status CapAmb", "status NoNewPrivs", "status NSpid")
		s.refused(got, "2", "processes")
		s.refused(got, "ok", "signals 1", "signal 1 9") // sent, and without effect: the next attempts are made
		s.refused(got, "EACCES", "read /proc/1/environ", "stat /proc/1/fd/4", "stat /proc/1/root/etc", "overwrite /proc/1/mem")
		s.refused(got, "EPERM", "ptrace 1", "peek 1")
		s.refused(got, "ESRCH", "signal "+host+" 0")
		s.refused(got, "ENOENT", "stat /proc/"+host)
		s.refused(got, fmt.Sprint(who.uid, who.uid, who.uid), "uid")
		s.refused(got, "0000000000000000", "status CapEff", "status CapBnd", "status CapPrm", "status CapInh", "status CapAmb")
		s.refused(got, "1", "status NoNewPrivs")
		if strings.Contains(got("read /proc/1/cmdline"), "mode") {
			t.Errorf("the plan can be read: %s", got("read /proc/1/cmdline"))
		}
	})
}

// Nothing that is hidden can be uncovered, with a root of one's own neither.
func TestCoversStay(t *testing.T) {
	everybody(t, func(t *testing.T, s *stage, who *inmate) {
		home := s.place(who)
		who.file(home+"/.ssh/id", "secret")
		ssh := home + "/.ssh"
		got := s.attempts(who, order{Homes: []string{home}, Sandbox: Sandbox{Mode: Contain}},
			"umount "+ssh, "umount /proc", "umount /tmp", "mount /mnt", "remount "+ssh, "nested umount "+ssh, "nested remount "+ssh,
			"nested umount /dev", "nested umount /proc", "nested write "+ssh+"/x", "nested list "+ssh, "unshare", "clone")
		s.refused(got, "EPERM", "umount "+ssh, "umount /proc", "umount /tmp", "mount /mnt", "remount "+ssh, "nested remount "+ssh)
		s.refused(got, "ok", "unshare", "clone") // contain leaves a browser its own sandbox; strict does not
		if who.root() {                          // whom the kernel gives no root of his own without the capability for it
			s.refused(got, "EPERM", "nested umount "+ssh, "nested list "+ssh)
			return
		}
		s.refused(got, "EINVAL", "nested umount "+ssh, "nested umount /dev", "nested umount /proc")
		s.refused(got, "EROFS", "nested write "+ssh+"/x")
		s.refused(got, "[]", "nested list "+ssh)
	})
}

// Sockets of the daemon and of others are out of reach: by their paths, since the directories are covered, and by abstract
// names, which Landlock keeps apart.
func TestSocketsOfOthersAreOutOfReach(t *testing.T) {
	everybody(t, func(t *testing.T, s *stage, who *inmate) {
		run := s.place(who)
		abstract := fmt.Sprintf("doorward-%d-%s", os.Getpid(), who.name)
		tmp := must(os.MkdirTemp("/tmp", "doorward"))
		t.Cleanup(func() { os.RemoveAll(tmp) })
		who.own(tmp)
		var paths []string
		for _, name := range []string{run + "/doorward.sock", tmp + "/agent.sock", "@" + abstract} {
			l := must(net.Listen("unix", name))
			t.Cleanup(func() { l.Close() })
			if name[0] != '@' {
				who.own(name)
				paths = append(paths, "dial unix "+name)
			}
		}
		tcp := must(net.Listen("tcp", "127.0.0.1:0"))
		defer tcp.Close()
		over := "dial tcp " + tcp.Addr().String()
		got := s.attempts(who, order{Hide: []string{run}, Sandbox: Sandbox{Mode: Contain}}, append(paths, "dial abstract "+abstract, over)...)
		s.refused(got, "ENOENT", paths...)
		s.refused(got, "EPERM", "dial abstract "+abstract)
		s.refused(got, "ok", over) // the network is the host's until the configuration says none
	})
}

func TestNoNetworkIsNone(t *testing.T) {
	everybody(t, func(t *testing.T, s *stage, who *inmate) {
		tcp := must(net.Listen("tcp", "127.0.0.1:0"))
		defer tcp.Close()
		abstract := fmt.Sprintf("doorward-none-%d-%s", os.Getpid(), who.name)
		l := must(net.Listen("unix", "@"+abstract))
		defer l.Close()
		to := tcp.Addr().String()
		got := s.attempts(who, order{Sandbox: Sandbox{Mode: Contain, Network: NetworkNone}},
			"dial tcp "+to, "dial udp 192.0.2.1:53", "dial tcp 192.0.2.1:80", "dial abstract "+abstract, "listen tcp 127.0.0.1:0", "interfaces")
		s.refused(got, "ECONNREFUSED", "dial tcp "+to)
		s.refused(got, "ENETUNREACH", "dial udp 192.0.2.1:53", "dial tcp 192.0.2.1:80")
		s.refused(got, "ok", "listen tcp 127.0.0.1:0")
		if r := got("dial abstract " + abstract); r != "ECONNREFUSED" && r != "EPERM" {
			t.Errorf("an abstract socket of the host: %s", r)
		}
	})
}

// Keys of the daemon's session keyring are not the server's.
func TestKeysStayBehind(t *testing.T) {
	everybody(t, func(t *testing.T, s *stage, who *inmate) {
		for mode, want := range map[string]string{Off: "found", Contain: "ENOKEY"} {
			s.refused(s.attempts(who, order{Sandbox: Sandbox{Mode: mode}}, "key "+wardensKey), want, "key "+wardensKey)
		}
	})
}

// For root the kernel asks of many files no more than who he is; these are out of his reach in there.
func TestRootIsShutInToo(t *testing.T) {
	t.Parallel()
	if os.Getuid() != 0 {
		t.Skip("only root can be shut in as root")
	}
	s := newStage(t, Options{})
	got := s.attempts(&inmate{t: t}, order{Sandbox: Sandbox{Mode: Contain}},
		"overwrite /proc/sys/kernel/core_pattern", "overwrite /proc/sysrq-trigger", "overwrite /proc/irq/default_smp_affinity",
		"overwrite /sys/kernel/mm/transparent_hugepage/enabled", "list /dev", "read /etc/shadow")
	s.refused(got, "[fd full null ptmx pts random shm stderr stdin stdout tty urandom zero]", "list /dev")
	s.refused(got, "[]", "read /etc/shadow")
	for _, path := range []string{"/proc/sys/kernel/core_pattern", "/proc/sysrq-trigger", "/proc/irq/default_smp_affinity",
		"/sys/kernel/mm/transparent_hugepage/enabled"} {
		if r := got("overwrite " + path); r != "EROFS" && r != "ENOENT" {
			t.Errorf("writing to %s: %s", path, r)
		}
	}
}

// What a contained server starts with, apart from what is taken from it.
func TestLimitsOfEachProcess(t *testing.T) {
	everybody(t, func(t *testing.T, s *stage, who *inmate) {
		got := s.attempts(who, order{Sandbox: Sandbox{Mode: Contain, Limits: Limits{Files: 100}}}, "rlimit core", "rlimit files", "tmpdir", "user")
		s.refused(got, "0/0", "rlimit core")
		s.refused(got, "100/100", "rlimit files")
		s.refused(got, "ok", "tmpdir")
	})
}

// The whole of it holds where the tests run; a machine where it does not is no place for them.
func TestEveryMeasureIsNamed(t *testing.T) {
	everybody(t, func(t *testing.T, s *stage, who *inmate) {
		said := s.prison(who, order{Sandbox: Sandbox{Mode: Contain, Limits: Limits{Memory: 1 << 30, Processes: 100, Files: 100}}})
		for _, name := range []string{"user namespace", "pid namespace", "mount namespace", "ipc and uts namespaces", "hidden paths", "own /proc",
			"read-only /sys", "no core files", "descriptor limit", "own keyring", "no abstract sockets of others", "no new privileges", "no capabilities"} {
			if state, _, _ := strings.Cut(said["measure "+name], " "); state != Enforced {
				t.Errorf("%s: %q", name, said["measure "+name])
			}
		}
		if m := said["measure memory limit"]; !strings.HasPrefix(m, Partial+" by watching") {
			t.Errorf("memory limit: %q", m)
		}
		want := Enforced
		if who.root() {
			want = Partial
		}
		if m := said["measure process limit"]; !strings.HasPrefix(m, want) {
			t.Errorf("process limit: %q, want %s", m, want)
		}
	})
}
