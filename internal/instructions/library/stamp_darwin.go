package library

import "syscall"

// changeTime is when the file was changed last in any way, in nanoseconds since
// 1970. No program can set it.
func changeTime(st *syscall.Stat_t) int64 { return st.Ctimespec.Nano() }
