package egress

// silent reports false: a connection is not used again, because it cannot be looked at
// without reading from it.
func silent(uintptr) bool { return false }
