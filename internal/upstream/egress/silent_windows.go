package egress

// silent returns false, so that no connection is used again: here a socket cannot be checked
// without reading from it.
func silent(uintptr) bool { return false }
