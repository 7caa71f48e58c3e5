package peer

import (
	"io/fs"
	"time"
)

// Stamp is what a file looks like from outside. It is comparable: two equal
// stamps of one path, the first of them Settled, mean that nothing changed in
// between.
type Stamp struct {
	Regular  bool
	Perm     fs.FileMode
	UID, GID uint32
	Size     int64 // bytes

	dev, ino     uint64
	mtime, ctime int64 // nanoseconds since 1970
}

// Settled reports whether a change after now must show in the stamp. File
// times have a grain, so a file that is changed twice within it looks the same
// after both; two seconds cover the coarsest.
func (s Stamp) Settled(now time.Time) bool {
	return now.UnixNano()-max(s.mtime, s.ctime) > int64(2*time.Second)
}
