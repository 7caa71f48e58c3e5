package desktop

import (
	"context"
	"os"
	"os/exec"
	"time"

	"github.com/doorward/doorward/internal/upstream/process"
)

// notifyTime is how long a program of Notify may run.
const notifyTime = time.Minute

// notifyVariables are the variables of the daemon that a program of Notify gets: what finds
// programs and files, and what reaches the display and the session bus of the desktop.
func notifyVariables() []string {
	return []string{"PATH", "HOME", "USER", "LANG", "DISPLAY", "WAYLAND_DISPLAY", "XAUTHORITY", "XDG_RUNTIME_DIR", "DBUS_SESSION_BUS_ADDRESS"}
}

// Notify runs a program of the operator's and waits for its end, a minute at most. Its
// environment is notifyVariables and env; nothing else of the daemon's environment is
// inherited, since tokens and secrets of the configuration stand there. Its output is
// dropped.
func Notify(ctx context.Context, argv, env []string) error {
	ctx, cancel := context.WithTimeout(ctx, notifyTime)
	defer cancel()
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
	cmd.Env = append(inherited(notifyVariables()), env...)
	cmd.WaitDelay = time.Second
	return cmd.Run()
}

// inherited are those of the named variables that are set. PATH is always there.
func inherited(names []string) (env []string) {
	for _, name := range names {
		v := os.Getenv(name)
		if v == "" && name == "PATH" {
			v = process.FallbackPath
		}
		if v != "" {
			env = append(env, name+"="+v)
		}
	}
	return env
}
