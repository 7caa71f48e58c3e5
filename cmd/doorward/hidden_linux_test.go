package main

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// askUnseen is `stranger hidden WAY HOST:PORT`: it asks over loopback with a socket
// that is not in its table of descriptors while the daemon looks for it.
//
//	flight      in a message (SCM_RIGHTS) to itself, and received for the answer; up to twenty times
//	nested      in a message inside of such a message; up to twenty times
//	thread      in the table of one thread alone
//	lent        held by a process that has left the session, and closed here; up to twenty times
//
// It prints the first answer that it got, or `closed`.
func askUnseen(way, addr string) error {
	ask := map[string]func(netip.AddrPort) (string, error){
		"flight": inFlight, "nested": nestedFlight, "thread": ofThread, "lent": lent}[way]
	to, err := netip.ParseAddrPort(addr)
	if err != nil || ask == nil {
		return fmt.Errorf("hidden %s %s: %w", way, addr, err)
	}
	for range 20 {
		answer, err := ask(to)
		if err != nil {
			return err
		}
		if answer != "" {
			fmt.Println(answer)
			return nil
		}
		if way == "thread" {
			break
		}
	}
	fmt.Println("closed")
	return nil
}

// dialled connects a socket that only the returned descriptor holds.
func dialled(to netip.AddrPort) (int, error) {
	s, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return -1, err
	}
	if err := unix.Connect(s, &unix.SockaddrInet4{Port: int(to.Port()), Addr: to.Addr().As4()}); err != nil {
		return -1, err
	}
	return s, nil
}

// heardOn writes a request and returns the status of the answer; empty: the connection was
// closed.
func heardOn(s int, to netip.AddrPort) string {
	defer unix.Close(s)
	if _, err := unix.Write(s, []byte(strings.Replace(who, "doorward", to.String(), 1))); err != nil {
		return ""
	}
	b := make([]byte, 4096)
	n, err := unix.Read(s, b)
	if err != nil || n <= 0 {
		return ""
	}
	_, answer, _ := strings.Cut(string(b[:n]), " ")
	status, _, _ := strings.Cut(answer, "\r\n")
	return status
}

// fly sends descriptors in a message (SCM_RIGHTS) to itself and closes them; land receives
// them.
func fly(fds ...int) (pair [2]int, err error) {
	if pair, err = unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0); err != nil {
		return pair, err
	}
	if err := unix.Sendmsg(pair[0], []byte("x"), unix.UnixRights(fds...), nil, 0); err != nil {
		return pair, err
	}
	for _, fd := range fds {
		unix.Close(fd)
	}
	return pair, nil
}

func land(pair [2]int) ([]int, error) {
	defer unix.Close(pair[0])
	defer unix.Close(pair[1])
	oob := make([]byte, unix.CmsgSpace(8))
	_, n, _, _, err := unix.Recvmsg(pair[1], make([]byte, 1), oob, unix.MSG_CMSG_CLOEXEC)
	if err != nil {
		return nil, err
	}
	messages, err := unix.ParseSocketControlMessage(oob[:n])
	if err != nil || len(messages) == 0 {
		return nil, errors.Join(errors.New("nothing landed"), err)
	}
	return unix.ParseUnixRights(&messages[0])
}

func inFlight(to netip.AddrPort) (string, error) {
	s, err := dialled(to)
	if err != nil {
		return "", err
	}
	pair, err := fly(s)
	if err != nil {
		return "", err
	}
	time.Sleep(20 * time.Millisecond)
	fds, err := land(pair)
	if err != nil {
		return "", err
	}
	return heardOn(fds[0], to), nil
}

func nestedFlight(to netip.AddrPort) (string, error) {
	s, err := dialled(to)
	if err != nil {
		return "", err
	}
	inner, err := fly(s)
	if err != nil {
		return "", err
	}
	outer, err := fly(inner[0], inner[1])
	if err != nil {
		return "", err
	}
	time.Sleep(20 * time.Millisecond)
	fds, err := land(outer)
	if err != nil {
		return "", err
	}
	fds, err = land([2]int{fds[0], fds[1]})
	if err != nil {
		return "", err
	}
	return heardOn(fds[0], to), nil
}

func ofThread(to netip.AddrPort) (string, error) {
	answer, failed := "", errors.New("the first thread, whose table is the process's")
	for errLeader := failed; failed == errLeader; {
		done := make(chan error)
		go func() {
			runtime.LockOSThread()
			if unix.Gettid() == unix.Getpid() {
				done <- errLeader
				select {} // keeps the first thread from the next attempt
			}
			if err := unix.Unshare(unix.CLONE_FILES); err != nil {
				done <- err
				return
			}
			s, err := dialled(to)
			if err == nil {
				answer = heardOn(s, to)
			}
			done <- err
		}()
		failed = <-done
	}
	return answer, failed
}

// lent leaves the socket to a process with a session of its own while the daemon looks. It
// speaks with a copy that is in flight meanwhile.
func lent(to netip.AddrPort) (string, error) {
	s, err := dialled(to)
	if err != nil {
		return "", err
	}
	f := os.NewFile(uintptr(s), "lent")
	cmd := exec.Command("setsid", "sleep", "0.1")
	cmd.ExtraFiles = []*os.File{f}
	if err := cmd.Start(); err != nil {
		return "", err
	}
	copied, err := unix.FcntlInt(uintptr(s), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return "", err
	}
	f.Close()
	pair, err := fly(copied)
	if err != nil {
		return "", err
	}
	_ = cmd.Wait()
	fds, err := land(pair)
	if err != nil {
		return "", err
	}
	return heardOn(fds[0], to), nil
}
