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

// notifyVariables returns the names of the daemon's variables that a program of Notify gets:
// those for finding programs and files, and those for the display and the session bus.
func notifyVariables() []string {
	return []string{"PATH", "HOME", "USER", "LANG", "DISPLAY", "WAYLAND_DISPLAY", "XAUTHORITY", "XDG_RUNTIME_DIR", "DBUS_SESSION_BUS_ADDRESS"}
}

// Notify runs a program of the operator and waits for its end, at most a minute. Its
// environment is notifyVariables and env; nothing else is inherited, because the daemon's
// environment contains tokens and secrets of the configuration. Its output is discarded.
func Notify(ctx context.Context, argv, env []string) error {
	ctx, cancel := context.WithTimeout(ctx, notifyTime)
	defer cancel()
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
	cmd.Env = append(inherited(notifyVariables()), env...)
	cmd.WaitDelay = time.Second
	return cmd.Run()
}

// inherited returns the named variables that are set. PATH is always included.
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
