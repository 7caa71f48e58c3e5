package process

import (
	"fmt"
	"net"
	"os"
	"strings"
	"testing"
)

// Under strict a server sees what the system needs and what was granted, and nothing else.
func TestStrictGrantsFilesOneByOne(t *testing.T) {
	eachUser(t, func(t *testing.T, s *stage, who *inmate) {
		dir := s.place(who)
		home := s.place(who)
		who.file(dir+"/read/file", "granted")
		who.file(dir+"/write/file", "granted")
		who.file(dir+"/cwd/file", "granted")
		who.file(dir+"/single", "granted")
		who.file(dir+"/other/file", "secret")
		who.file(home+"/.profile", "secret")
		got := s.attempts(who, order{Homes: []string{home}, Dir: dir + "/cwd", Env: []string{"HOME=" + home, "TMPDIR=/tmp/x"}, Sandbox: Sandbox{Mode: Strict,
			Read: []string{dir + "/read", dir + "/single", dir + "/not-there"}, Write: []string{dir + "/write"}, Limits: Limits{Memory: 1 << 30}}},
			"read "+dir+"/read/file", "write "+dir+"/read/new", "truncate "+dir+"/read/file", "read "+dir+"/single", "write "+dir+"/single",
			"read "+dir+"/write/file", "write "+dir+"/write/new", "truncate "+dir+"/write/new", "read "+dir+"/cwd/file", "write "+dir+"/cwd/new", "cwd",
			"read "+dir+"/other/file", "write "+dir+"/other/file", "truncate "+dir+"/other/file", "list "+dir, "list /", "list /home", "list /var",
			"list "+home, "write "+home+"/new", "read "+home+"/.profile", "tmpdir", "write /tmp/y", "write /dev/shm/y", "overwrite /dev/null",
			"list /usr/bin", "read /etc/hostname", "write /etc/hostname", "write /usr/x", "list /run", "run /bin/sh -c true", "status NoNewPrivs",
			"read /proc/self/stat", "read /proc/self/comm", "list /sys")
		s.refused(got, "[granted]", "read "+dir+"/read/file", "read "+dir+"/single", "read "+dir+"/write/file", "read "+dir+"/cwd/file")
		s.refused(got, "ok", "write "+dir+"/write/new", "truncate "+dir+"/write/new", "write "+dir+"/cwd/new", "write "+home+"/new", "tmpdir",
			"write /tmp/y", "write /dev/shm/y", "overwrite /dev/null")
		s.refused(got, dir+"/cwd", "cwd")
		s.refused(got, "EACCES", "list /", "list /var", "list /run")
		s.refused(got, "[cwd read single write]", "list "+dir)
		s.refused(got, "EROFS", "write /etc/hostname", "write /usr/x", "write "+dir+"/read/new", "truncate "+dir+"/read/file", "write "+dir+"/single")
		s.refused(got, "ENOENT", "read "+home+"/.profile", "list /home", "read "+dir+"/other/file", "write "+dir+"/other/file",
			"truncate "+dir+"/other/file")
		s.refused(got, "[]", "list "+home)
		for _, attempt := range []string{"list /usr/bin", "read /etc/hostname", "read /proc/self/stat", "list /sys"} {
			if r := got(attempt); !strings.HasPrefix(r, "[") {
				t.Errorf("%s: %s", attempt, r)
			}
		}
	})
}

// A named directory can be read and not written under strict. A directory that may be written stays so inside one that
// may be read.
func TestGrantsInGrants(t *testing.T) {
	eachUser(t, func(t *testing.T, s *stage, who *inmate) {
		home := s.place(who)
		who.file(home+"/file", "named")
		who.file(home+"/out/file", "granted")
		who.file(home+"/.ssh/id", "secret")
		try := []string{"read " + home + "/file", "write " + home + "/new", "overwrite " + home + "/file", "write " + home + "/out/new", "read " + home + "/.ssh/id"}
		got := s.attempts(who, order{Homes: []string{home}, Sandbox: Sandbox{Mode: Strict, Named: []string{home}}}, try...)
		s.refused(got, "[named]", try[0])
		s.refused(got, "EROFS", try[1], try[2], try[3])
		s.refused(got, "ENOENT", try[4])
		for _, mode := range []string{Contain, Strict} {
			got = s.attempts(who, order{Homes: []string{home}, Sandbox: Sandbox{Mode: mode, Read: []string{home}, Write: []string{home + "/out"}}}, try...)
			s.refused(got, "[named]", try[0])
			s.refused(got, "EROFS", try[1], try[2])
			s.refused(got, "ok", try[3])
			s.refused(got, "ENOENT", try[4])
		}
	})
}

// A list of ports allows TCP to these and nothing else: neither another protocol nor data in the opening of a
// connection. Port 53 allows UDP too.
func TestStrictGrantsPortsOneByOne(t *testing.T) {
	eachUser(t, func(t *testing.T, s *stage, who *inmate) {
		granted, other := must(net.Listen("tcp", "127.0.0.1:0")), must(net.Listen("tcp", "127.0.0.1:0"))
		defer granted.Close()
		defer other.Close()
		free := must(net.Listen("tcp", "127.0.0.1:0"))
		free.Close()
		port := func(l net.Listener) uint16 { return uint16(l.Addr().(*net.TCPAddr).Port) }
		got := s.attempts(who, order{Sandbox: Sandbox{Mode: Strict, Network: NetworkPorts, Ports: []uint16{port(granted), port(free)}}},
			"dial tcp "+granted.Addr().String(), "dial tcp "+other.Addr().String(), "fastopen "+granted.Addr().String(),
			"fastopen "+other.Addr().String(), "dial udp 127.0.0.1:53", "socket 2 2 0", "socket 2 1 262", "socket 2 1 0",
			"listen tcp "+free.Addr().String(), "listen tcp 127.0.0.1:1999")
		s.refused(got, "ok", "dial tcp "+granted.Addr().String(), "socket 2 1 0", "listen tcp "+free.Addr().String())
		s.refused(got, "EACCES", "dial tcp "+other.Addr().String(), "listen tcp 127.0.0.1:1999")
		s.refused(got, "ENOTSUP", "fastopen "+granted.Addr().String(), "fastopen "+other.Addr().String())
		s.refused(got, "ESOCKTNOSUPPORT", "dial udp 127.0.0.1:53", "socket 2 2 0")
		s.refused(got, "EPROTONOSUPPORT", "socket 2 1 262")

		got = s.attempts(who, order{Sandbox: Sandbox{Mode: Strict, Network: NetworkPorts, Ports: []uint16{53}}},
			"dial udp 127.0.0.1:53", "dial tcp "+other.Addr().String())
		s.refused(got, "ok", "dial udp 127.0.0.1:53")
		s.refused(got, "EACCES", "dial tcp "+other.Addr().String())
	})
}

// Strict refuses more than files and ports: namespaces, tracing, mounts, io_uring, bpf, keys, other kinds of sockets,
// and abstract sockets of others. The errors are those of the filter: without it some of these would be others.
func TestStrictClosesTheHoles(t *testing.T) {
	eachUser(t, func(t *testing.T, s *stage, who *inmate) {
		abstract := fmt.Sprintf("doorward-strict-%d-%s", os.Getpid(), who.name)
		l := must(net.Listen("unix", "@"+abstract))
		defer l.Close()
		socket := s.place(who) + "/agent.sock"
		p := must(net.Listen("unix", socket))
		defer p.Close()
		who.own(socket)
		got := s.attempts(who, order{Key: true, Sandbox: Sandbox{Mode: Strict}},
			"unshare", "clone", "clone3", "ptrace 1", "peek 1", "mount /mnt", "umount /tmp", "remount /tmp", "uring", "bpf", "key "+wardensKey,
			"socket 2 1 262", "socket 2 1 132", "socket 2 1 256", "socket 16 3 0", "socket 17 3 0", "socket 2 3 1", "socket 40 1 0", "socket 38 5 0",
			"socket 1 1 0", "socket 2 1 0", "socket 10 1 6", "socket 2 2 17", "dial abstract "+abstract, "signal 1 9", "processes")
		s.refused(got, "EPERM", "unshare", "clone", "ptrace 1", "peek 1", "mount /mnt", "umount /tmp", "remount /tmp", "uring", "bpf",
			"key "+wardensKey, "dial abstract "+abstract)
		s.refused(got, "ENOSYS", "clone3")
		s.refused(got, "EPROTONOSUPPORT", "socket 2 1 262", "socket 2 1 132", "socket 2 1 256")
		s.refused(got, "EAFNOSUPPORT", "socket 16 3 0", "socket 17 3 0", "socket 40 1 0", "socket 38 5 0")
		s.refused(got, "ESOCKTNOSUPPORT", "socket 2 3 1")
		s.refused(got, "ok", "socket 1 1 0", "socket 2 1 0", "socket 10 1 6", "socket 2 2 17")
		s.refused(got, "2", "processes")
	})
}

// Every measure of strict but the limits is enforced.
func TestStrictIsWhole(t *testing.T) {
	eachUser(t, func(t *testing.T, s *stage, who *inmate) {
		said := s.prison(who, order{Sandbox: Sandbox{Mode: Strict, Limits: Limits{Memory: 1 << 30, Processes: 100, Files: 100}}})
		for name, state := range said {
			measure, ok := strings.CutPrefix(name, "measure ")
			if ok && !limitMeasures[measure] && !strings.HasPrefix(state, Enforced) {
				t.Errorf("%s: %s", measure, state)
			}
		}
		for _, name := range []string{"files by allow-list", "system calls by deny-list", "no nested namespaces"} {
			if !strings.HasPrefix(said["measure "+name], Enforced) {
				t.Errorf("%s: %q", name, said["measure "+name])
			}
		}
	})
}

// An interpreter runs under strict, with its threads, its subprocesses and its sockets.
func TestInterpretersRunUnderStrict(t *testing.T) {
	eachUser(t, func(t *testing.T, s *stage, who *inmate) {
		python := must(Resolve("python3", "/usr/bin:/bin"))
		script := `
import threading, subprocess, socket, tempfile, os, json, ssl, multiprocessing, select, mmap
t = threading.Thread(target=lambda: None); t.start(); t.join()
print("sub:", subprocess.run(["/bin/echo", "hi"], capture_output=True).stdout.decode().strip())
s = socket.socket(); s.bind(("127.0.0.1", 0)); s.listen(); c = socket.create_connection(s.getsockname()); print("tcp:", "ok")
with tempfile.TemporaryDirectory() as d:
    u = socket.socket(socket.AF_UNIX); u.bind(d + "/s"); print("unix:", "ok")
pid = os.fork()
if pid == 0: os._exit(7)
print("fork:", os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
`
		said := s.prison(who, order{Path: python, Args: []string{"-S", "-c", script}, Sandbox: Sandbox{Mode: Strict, Limits: benchSandbox(Strict).Limits}})
		for name, want := range map[string]string{"sub": "hi", "tcp": "ok", "unix": "ok", "fork": "7", "ended": "exit status 0"} {
			if said[name] != want {
				t.Errorf("%s: %q, want %q (%v)", name, said[name], want, said)
			}
		}
	})
}
