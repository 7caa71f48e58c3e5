package desktop

import (
	"fmt"
	"os"
	"os/exec"
	"runtime"
)

// OpenBrowser makes the desktop open an address, and does not wait for it. An error means
// that there is no desktop, or no program that opens addresses.
func OpenBrowser(url string) error {
	opener := []string{"xdg-open"}
	if runtime.GOOS == "darwin" {
		opener = []string{"open"}
	} else if runtime.GOOS == "windows" {
		opener = []string{"rundll32", "url.dll,FileProtocolHandler"}
	} else if os.Getenv("DISPLAY") == "" && os.Getenv("WAYLAND_DISPLAY") == "" {
		return fmt.Errorf("opening a browser: there is no desktop")
	}
	path, err := exec.LookPath(opener[0])
	if err != nil {
		return fmt.Errorf("opening a browser: %w", err)
	}
	cmd := exec.Command(path, append(opener[1:], url)...)
	cmd.SysProcAttr = detached()
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("opening a browser: %w", err)
	}
	return cmd.Process.Release()
}
