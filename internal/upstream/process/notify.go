package process

import (
	"context"
	"os"
	"os/exec"
	"time"
)

// notifyTime is how long a program of Notify may run.
const notifyTime = time.Minute

// Notify runs a program of the operator's with additional variables in its environment,
// and waits for its end, a minute at most. Its output is dropped.
func Notify(ctx context.Context, argv, env []string) error {
	ctx, cancel := context.WithTimeout(ctx, notifyTime)
	defer cancel()
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
	cmd.Env = append(os.Environ(), env...)
	cmd.WaitDelay = time.Second
	return cmd.Run()
}
