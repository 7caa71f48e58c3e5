//go:build !linux

package peer

// Gone is false: this system does not report it.
func Gone(instance string) bool { return false }

// Above returns ErrLineage: this system does not report it.
func Above() ([]Process, error) { return nil, ErrLineage }
