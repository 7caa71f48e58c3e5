package process

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// A contained server has a home of its own, which lasts from one start to the next. Of the user's home it sees
// programs, the settings of npm without credentials, and what is granted.
func TestHomeIsItsOwn(t *testing.T) {
	eachUser(t, func(t *testing.T, s *stage, who *inmate) {
		home, private := s.place(who), s.place(who)
		for _, name := range []string{".ssh/id", ".netrc", ".bashrc", "Documents/letter", ".npm/_npx/x/package.json", ".cache/uv/x", "project/file", "other/file"} {
			who.file(filepath.Join(home, name), "secret")
		}
		who.file(home+"/.npmrc", "registry=https://npm.example.com/\n//npm.example.com/:_authToken=canary\n@a:registry=https://u:canary@x.example.com\n@b:registry=https://b.example.com\n_auth=canary\n")
		who.file(home+"/.local/bin/tool", "tool")
		o := order{Homes: []string{home}, Env: []string{"HOME=" + home}, Sandbox: Sandbox{Mode: Contain, Home: private, Named: []string{home + "/project"}}}
		h := func(name string) string { return " " + filepath.Join(home, name) }
		got := s.attempts(who, o, "list"+h(""), "read"+h(".ssh/id"), "read"+h(".netrc"), "read"+h("Documents/letter"), "read"+h(".npm/_npx/x/package.json"),
			"read"+h(".bashrc"), "read"+h("project/file"), "write"+h("project/new"), "write"+h(".bashrc"), "write"+h(".ssh"), "read"+h(".npmrc"),
			"write"+h(".npmrc"), "read"+h(".local/bin/tool"), "write"+h(".local/bin/tool"), "read"+h("other/file"), "cwd")
		s.refused(got, "[.local .npmrc project]", "list"+h(""))
		s.refused(got, "ENOENT", "read"+h(".ssh/id"), "read"+h(".netrc"), "read"+h("Documents/letter"), "read"+h(".npm/_npx/x/package.json"),
			"read"+h(".bashrc"), "read"+h("other/file"))
		s.refused(got, "ok", "write"+h("project/new"), "write"+h(".bashrc"), "write"+h(".ssh"))
		s.refused(got, "[registry=https://npm.example.com/\\n@b:registry=https://b.example.com\\n]", "read"+h(".npmrc"))
		s.refused(got, "EROFS", "write"+h(".npmrc"), "write"+h(".local/bin/tool"))
		s.refused(got, home, "cwd")

		got = s.attempts(who, o, "read"+h(".bashrc"), "read"+h(".ssh"))
		s.refused(got, "[written]", "read"+h(".bashrc"), "read"+h(".ssh"))
		if b, _ := os.ReadFile(home + "/.bashrc"); string(b) != "secret" {
			t.Errorf("the user's own .bashrc is %q", b)
		}
	})
}

// A link that a server leaves in its home does not lead a later mount elsewhere.
func TestLinksInAHomeLeadNowhere(t *testing.T) {
	eachUser(t, func(t *testing.T, s *stage, who *inmate) {
		home, private, victim := s.place(who), s.place(who), s.place(who)
		who.file(home+"/a/project/file", "granted")
		who.own(victim)
		if err := os.Symlink(victim, private+"/a"); err != nil {
			t.Fatal(err)
		}
		got := s.attempts(who, order{Homes: []string{home}, Env: []string{"HOME=" + home},
			Sandbox: Sandbox{Mode: Contain, Home: private, Named: []string{home + "/a/project"}}}, "read "+home+"/a/project/file")
		s.refused(got, "[granted]", "read "+home+"/a/project/file")
		if left := must(os.ReadDir(victim)); len(left) > 0 {
			t.Errorf("the link led there: %v", left)
		}
	})
}

// A grant of a whole home includes neither keys nor Doorward's own files. These and the directories above them cannot
// be renamed. A secret that a grant names itself is seen.
func TestSecretsStayHiddenInGrants(t *testing.T) {
	eachUser(t, func(t *testing.T, s *stage, who *inmate) {
		home := s.place(who)
		for _, name := range []string{".ssh/id", ".aws/credentials", ".netrc", ".kube/config", ".docker/config.json", ".gnupg/a/b",
			".config/gcloud/key", "project/file", "elsewhere/keys/x", "state/seal.key", "state/named/x", "etc/doorward.yaml"} {
			who.file(filepath.Join(home, name), "secret")
		}
		if err := os.Symlink(home+"/elsewhere/keys", home+"/.password-store"); err != nil {
			t.Fatal(err)
		}
		h := func(name string) string { return " " + filepath.Join(home, name) }
		got := s.attempts(who, order{
			Hide: []string{home + "/state", home + "/etc/doorward.yaml", home + "/not-there"}, Homes: []string{home}, Env: []string{"HOME=" + home},
			Sandbox: Sandbox{Mode: Contain, Read: []string{home + "/.kube"}, Write: []string{home + "/.docker/config.json", home},
				Named: []string{home + "/state/named", home + "/project/file"}},
		}, "read"+h(".ssh/id"), "list"+h(".ssh"), "write"+h(".ssh/authorized_keys"), "read"+h(".aws/credentials"), "list"+h(".gnupg"),
			"read"+h(".config/gcloud/key"), "read"+h(".netrc"), "read"+h(".password-store/x"), "read"+h("elsewhere/keys/x"),
			"read"+h("project/file"), "write"+h("project/new"),
			"read"+h(".kube/config"), "write"+h(".kube/config"), "list"+h(".docker"), "overwrite"+h(".docker/config.json"),
			"read"+h("state/seal.key"), "list"+h("state"), "read"+h("state/named/x"), "read"+h("etc/doorward.yaml"),
			"rename"+h(".config")+h("x"), "rename"+h("elsewhere")+h("x"), "rename"+h("etc")+h("x"), "rename"+h("state")+h("x"), "rename"+h(".ssh")+h("x"),
			"rename"+h("etc/doorward.yaml")+h("etc/x"))

		s.refused(got, "ENOENT", "read"+h(".ssh/id"), "read"+h(".aws/credentials"), "read"+h(".config/gcloud/key"),
			"read"+h(".password-store/x"), "read"+h("elsewhere/keys/x"), "read"+h("state/seal.key"), "read"+h("state/named/x"))
		s.refused(got, "[]", "list"+h(".ssh"), "list"+h(".gnupg"), "list"+h("state"), "read"+h(".netrc"), "read"+h("etc/doorward.yaml"))
		s.refused(got, "EROFS", "write"+h(".ssh/authorized_keys"), "write"+h(".kube/config"))
		s.refused(got, "[secret]", "read"+h("project/file"), "read"+h(".kube/config"))
		s.refused(got, "[config.json]", "list"+h(".docker"))
		s.refused(got, "ok", "write"+h("project/new"), "overwrite"+h(".docker/config.json"))
		s.refused(got, "EBUSY", "rename"+h(".config")+h("x"), "rename"+h("elsewhere")+h("x"), "rename"+h("etc")+h("x"), "rename"+h("state")+h("x"),
			"rename"+h(".ssh")+h("x"), "rename"+h("etc/doorward.yaml")+h("etc/x"))
		if b, _ := os.ReadFile(home + "/state/seal.key"); string(b) != "secret" {
			t.Error("hiding has changed what is hidden")
		}
	})
}

// A contained server has its own /tmp and /dev/shm. What the configuration names there is visible.
func TestTemporaryFilesAreItsOwn(t *testing.T) {
	eachUser(t, func(t *testing.T, s *stage, who *inmate) {
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

// A script below /tmp sees its package, and nothing else of /tmp.
func TestAScriptInTmpHasItsPackage(t *testing.T) {
	eachUser(t, func(t *testing.T, s *stage, who *inmate) {
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

// A server for which all of /tmp is named sees that of the host.
func TestTmpThatIsNamedIsTheHosts(t *testing.T) {
	eachUser(t, func(t *testing.T, s *stage, who *inmate) {
		dir := must(os.MkdirTemp("/tmp", "doorward"))
		t.Cleanup(func() { os.RemoveAll(dir) })
		who.own(dir)
		who.file(dir+"/file", "seen")
		got := s.attempts(who, order{Sandbox: Sandbox{Mode: Contain, Named: []string{"/tmp"}}}, "read "+dir+"/file")
		s.refused(got, "[seen]", "read "+dir+"/file")
	})
}

// A contained server sees no process of the host. It cannot read, trace or end the process that it runs under.
func TestProcessesAreItsOwn(t *testing.T) {
	eachUser(t, func(t *testing.T, s *stage, who *inmate) {
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

// A contained server can neither mount nor make namespaces, unless the configuration allows nested ones. Those have a
// root without what is not granted, and cannot be combined with grants that hide something.
func TestNestedNamespaces(t *testing.T) {
	eachUser(t, func(t *testing.T, s *stage, who *inmate) {
		home := s.place(who)
		who.file(home+"/.ssh/id", "secret")
		ssh := home + "/.ssh"
		o := order{Homes: []string{home}, Sandbox: Sandbox{Mode: Contain}}
		got := s.attempts(who, o, "umount /proc", "umount /tmp", "mount /mnt", "remount /usr", "unshare", "clone", "clone3", "nested list "+ssh)
		s.refused(got, "EPERM", "umount /proc", "umount /tmp", "mount /mnt", "remount /usr", "unshare", "clone", "nested list "+ssh)
		s.refused(got, "ENOSYS", "clone3")

		o.Sandbox.Nested = true
		if who.root() { // parts of /etc are hidden from root
			if said := s.prison(who, o); !strings.Contains(said["not started"], "nested_sandbox cannot be combined with a grant") {
				t.Errorf("%v", said)
			}
			return
		}
		got = s.attempts(who, o, "unshare", "clone", "nested list "+ssh, "nested umount /proc", "nested umount /usr", "nested write /usr/x", "nested remount /usr")
		s.refused(got, "ok", "unshare", "clone")
		s.refused(got, "ENOENT", "nested list "+ssh)
		s.refused(got, "EINVAL", "nested umount /proc", "nested umount /usr")
		s.refused(got, "EROFS", "nested write /usr/x")
		s.refused(got, "EPERM", "nested remount /usr")
		o.Sandbox.Read = []string{home}
		if said := s.prison(who, o); !strings.Contains(said["not started"], ssh) {
			t.Errorf("%v", said)
		}
	})
}

// A contained server does not reach sockets of the daemon and of others: not by their paths, since the directories are
// covered, and not by abstract names, which Landlock keeps apart.
func TestSocketsOfOthersAreOutOfReach(t *testing.T) {
	eachUser(t, func(t *testing.T, s *stage, who *inmate) {
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
	eachUser(t, func(t *testing.T, s *stage, who *inmate) {
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

// A contained server does not find the keys of the daemon's session keyring.
func TestKeysStayBehind(t *testing.T) {
	eachUser(t, func(t *testing.T, s *stage, who *inmate) {
		for mode, want := range map[string]string{Off: "found", Contain: "EPERM"} {
			s.refused(s.attempts(who, order{Key: true, Sandbox: Sandbox{Mode: mode}}, "key "+wardensKey), want, "key "+wardensKey)
		}
	})
}

// A contained server of root cannot write files for which the kernel checks the user alone.
func TestRootIsContainedToo(t *testing.T) {
	t.Parallel()
	if os.Getuid() != 0 {
		t.Skip("only root can be contained as root")
	}
	s := newStage(t, Options{})
	got := s.attempts(&inmate{t: t}, order{Sandbox: Sandbox{Mode: Contain}},
		"overwrite /proc/sys/kernel/core_pattern", "overwrite /proc/sysrq-trigger", "overwrite /proc/irq/default_smp_affinity",
		"overwrite /sys/kernel/mm/transparent_hugepage/enabled", "list /dev", "read /etc/shadow", "chmod /dev/null", "chmod /dev/urandom", "overwrite /dev/null")
	s.refused(got, "EROFS", "chmod /dev/null", "chmod /dev/urandom")
	s.refused(got, "ok", "overwrite /dev/null")
	s.refused(got, "[fd full null ptmx pts random shm stderr stdin stdout tty urandom zero]", "list /dev")
	s.refused(got, "[]", "read /etc/shadow")
	for _, path := range []string{"/proc/sys/kernel/core_pattern", "/proc/sysrq-trigger", "/proc/irq/default_smp_affinity",
		"/sys/kernel/mm/transparent_hugepage/enabled"} {
		if r := got("overwrite " + path); r != "EROFS" && r != "ENOENT" {
			t.Errorf("writing to %s: %s", path, r)
		}
	}
}

// A contained server starts with no core files, its limit of descriptors and a temporary directory.
func TestLimitsOfEachProcess(t *testing.T) {
	eachUser(t, func(t *testing.T, s *stage, who *inmate) {
		got := s.attempts(who, order{Sandbox: Sandbox{Mode: Contain, Limits: Limits{Files: 100}}}, "rlimit core", "rlimit files", "tmpdir", "user")
		s.refused(got, "0/0", "rlimit core")
		s.refused(got, "100/100", "rlimit files")
		s.refused(got, "ok", "tmpdir")
	})
}

// Every measure of contain is enforced and reported where the tests run. The memory limit, and for root that of
// processes, are partial there.
func TestEveryMeasureIsNamed(t *testing.T) {
	eachUser(t, func(t *testing.T, s *stage, who *inmate) {
		said := s.prison(who, order{Sandbox: Sandbox{Mode: Contain, Limits: Limits{Memory: 1 << 30, Processes: 100, Files: 100}}})
		for _, name := range []string{"user namespace", "pid namespace", "mount namespace", "ipc and uts namespaces", "root by allow-list", "own /proc", "no nested namespaces", "system calls by deny-list",
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
