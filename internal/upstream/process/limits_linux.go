package process

import (
	"bytes"
	"fmt"
)

// Names of the measures that may be enforced by watching.
const (
	memoryLimit  = "memory limit"
	processLimit = "process limit"
)

// limitMeasures may be partial under strict too, because watching enforces memory and process limits only within its
// interval.
var limitMeasures = map[string]bool{memoryLimit: true, processLimit: true}

// number parses the leading digits.
func number(b []byte) (n int64) {
	for _, c := range bytes.TrimLeft(b, " \t") {
		if c < '0' || c > '9' {
			break
		}
		n = n*10 + int64(c-'0')
	}
	return n
}

// bytesText formats a number of bytes for people.
func bytesText(n int64) string {
	switch {
	case n >= 1<<30:
		return fmt.Sprintf("%.4g GiB", float64(n)/(1<<30))
	case n >= 1<<20:
		return fmt.Sprintf("%.4g MiB", float64(n)/(1<<20))
	}
	return fmt.Sprintf("%d bytes", n)
}
