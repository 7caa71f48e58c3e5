package peer

import (
	"io/fs"
	"time"
)

// Stamp holds the attributes of a file. It is comparable: two equal stamps of one path,
// the first of them Settled, mean that the file did not change in between.
type Stamp struct {
	Regular  bool
	Perm     fs.FileMode
	UID, GID uint32
	Size     int64 // bytes

	dev, ino     uint64
	mtime, ctime int64 // nanoseconds since 1970
}

// Settled reports whether every change after now will show in the stamp. File times have
// a resolution, so a file that changes twice within it looks the same after both changes;
// two seconds cover the coarsest resolution.
func (s Stamp) Settled(now time.Time) bool {
	return now.UnixNano()-max(s.mtime, s.ctime) > int64(2*time.Second)
}
