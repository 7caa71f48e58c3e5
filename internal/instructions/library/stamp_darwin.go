package library

import "syscall"

// changeTime returns the time of the last change of the file or its attributes, in
// nanoseconds since 1970. No program can set it.
func changeTime(st *syscall.Stat_t) int64 { return st.Ctimespec.Nano() }
