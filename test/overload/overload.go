// Package overload gives tests more time on a machine under load.
package overload

import (
	"fmt"
	"os"
	"runtime"
	"time"
)

// Late returns how much later than promised something may happen in a test: ten seconds
// while programs wait for a processor, else nothing.
func Late() time.Duration {
	var load float64
	b, err := os.ReadFile("/proc/loadavg")
	if err == nil {
		_, err = fmt.Sscan(string(b), &load)
	}
	if err != nil || load < float64(runtime.NumCPU()) {
		return 0
	}
	return 10 * time.Second
}
