//go:build !linux

package peer

// Gone cannot be told on this system: false.
func Gone(instance string) bool { return false }

// Above cannot be told on this system: ErrLineage.
func Above() ([]Process, error) { return nil, ErrLineage }
