// Package overload gives tests more time on a machine under load.
package overload

import (
	"fmt"
	"os"
	"runtime"
	"time"
)

// Late returns how much later than promised something may happen in a test: ten seconds
// while programs wait for a processor, else nothing. The average load of the last minute tells
// it, or at the beginning of a load the number of threads that can run at the moment.
func Late() time.Duration {
	var load, five, fifteen float64
	var running int
	b, err := os.ReadFile("/proc/loadavg")
	if err == nil {
		_, err = fmt.Sscanf(string(b), "%f %f %f %d/", &load, &five, &fifteen, &running)
	}
	if err != nil || load < float64(runtime.NumCPU()) && running <= runtime.NumCPU() {
		return 0
	}
	return 10 * time.Second
}
