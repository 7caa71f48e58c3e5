package process

import (
	"bytes"
	"fmt"
)

// Names of the measures that watching may stand in for.
const (
	memoryLimit  = "memory limit"
	processLimit = "process limit"
)

// limitMeasures may be partial under strict too: what watching can do about memory and processes is a matter of degree.
var limitMeasures = map[string]bool{memoryLimit: true, processLimit: true}

// number reads digits up to the first that is none.
func number(b []byte) (n int64) {
	for _, c := range bytes.TrimLeft(b, " \t") {
		if c < '0' || c > '9' {
			break
		}
		n = n*10 + int64(c-'0')
	}
	return n
}

// bytesText is a number of bytes for reading.
func bytesText(n int64) string {
	switch {
	case n >= 1<<30:
		return fmt.Sprintf("%.4g GiB", float64(n)/(1<<30))
	case n >= 1<<20:
		return fmt.Sprintf("%.4g MiB", float64(n)/(1<<20))
	}
	return fmt.Sprintf("%d bytes", n)
}
