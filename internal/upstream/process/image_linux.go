package process

import (
	"fmt"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"

	"golang.org/x/sys/unix"
)

// sealedImage is Options.Image as a file in memory. It has no name, and its seals prevent changes, so a supervisor
// always runs the program that the daemon holds.
type sealedImage struct {
	once     sync.Once
	file     *os.File
	err      error
	unusable atomic.Bool // executing it failed, while the own binary worked
}

// startSupervisor starts the image, or the own binary if there is no image or the system does not execute it
// (vm.memfd_noexec, a security module).
func (r *Runner) startSupervisor(argv []string, attr *syscall.ProcAttr) (exitWatch, error) {
	if r.o.Image == "" || r.image.unusable.Load() {
		return start(r.o.Self, argv, attr)
	}
	path, err := r.image.path(r.o.Image)
	if err == nil {
		var exit exitWatch
		if exit, err = start(path, argv, attr); err == nil {
			return exit, nil
		}
	}
	exit, other := start(r.o.Self, argv, attr)
	if other == nil && !r.image.unusable.Swap(true) {
		r.o.Log.Info("supervisors run from the daemon's own binary and need more memory: their separate program cannot be executed on this system", "err", err)
	}
	return exit, other
}

// path makes the image on first use and returns the path that executes it.
func (i *sealedImage) path(text string) (string, error) {
	i.once.Do(func() { i.file, i.err = sealed(text) })
	if i.err != nil {
		return "", i.err
	}
	return "/proc/self/fd/" + strconv.Itoa(int(i.file.Fd())), nil
}

const (
	imageName = "doorward-child"
	// imageFD is the least descriptor of the image. Lower numbers are used for the supervisor's descriptors between
	// fork and exec.
	imageFD = 64
)

func sealed(text string) (*os.File, error) {
	const how = unix.MFD_CLOEXEC | unix.MFD_ALLOW_SEALING
	low, err := unix.MemfdCreate(imageName, how|unix.MFD_EXEC)
	if err == unix.EINVAL { // kernels before 6.3 do not know MFD_EXEC, and do not require it
		low, err = unix.MemfdCreate(imageName, how)
	}
	if err != nil {
		return nil, os.NewSyscallError("memfd_create", err)
	}
	defer unix.Close(low)
	fd, err := unix.FcntlInt(uintptr(low), unix.F_DUPFD_CLOEXEC, imageFD)
	if err != nil {
		return nil, os.NewSyscallError("fcntl", err)
	}
	f := os.NewFile(uintptr(fd), imageName)
	if _, err = f.WriteString(text); err == nil {
		_, err = unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, unix.F_SEAL_SEAL|unix.F_SEAL_WRITE|unix.F_SEAL_GROW|unix.F_SEAL_SHRINK)
	}
	if err != nil {
		f.Close()
		return nil, fmt.Errorf("writing the program of supervisors: %w", err)
	}
	return f, nil
}
