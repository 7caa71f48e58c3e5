package process

import (
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"syscall"
)

// OpenBrowser has the desktop open an address, and does not wait for it. An
// error means that there is no desktop, or nothing that opens addresses.
func OpenBrowser(url string) error {
	opener := "xdg-open"
	if runtime.GOOS == "darwin" {
		opener = "open"
	} else if os.Getenv("DISPLAY") == "" && os.Getenv("WAYLAND_DISPLAY") == "" {
		return fmt.Errorf("opening a browser: there is no desktop")
	}
	path, err := exec.LookPath(opener)
	if err != nil {
		return fmt.Errorf("opening a browser: %w", err)
	}
	cmd := exec.Command(path, url)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("opening a browser: %w", err)
	}
	return cmd.Process.Release()
}
