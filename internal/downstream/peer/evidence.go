package peer

import "time"

// Evidence describes the process of a connector. All of it is observed: it was true when
// it was read, the user who runs the process chooses it, and it may be used to take
// rights away, never to grant any. A field that could not be read is empty. The zero
// value means that the process cannot be examined.
type Evidence struct {
	// Exe is the path of the running file. It ends in " (deleted)" only when the file no
	// longer exists: a file whose real name ends so has no Exe, and neither has a file
	// whose path is not UTF-8.
	Exe string
	// SHA256 is the digest of the running file in lower-case hexadecimal, even if another
	// file has its path by now.
	SHA256 string
	// Start is the time when the process began, in seconds after the boot. It does not
	// change on exec.
	Start string
	// Cgroup is the path in the unified hierarchy. Unit is the last segment of it that
	// names a systemd service or scope. In a delegated tree, the owner of the tree
	// chooses the names.
	Cgroup, Unit string

	// Process and ParentProcess name the process and its parent in the form of Ancestors,
	// "BOOT/PID@START". ParentProcess is set only if the parent did not change during the
	// look.
	Process, ParentProcess string

	ParentPID int32
	ParentExe string   // in the form of Exe
	Parents   []string // "pid:name", the nearest first, at most maxParents

	// Image reports whether the observed program still runs. Without an Image, Exe and
	// SHA256 are empty. It is valid as long as the Credentials, or until every Retain is
	// released.
	Image *Image
}

// maxParents is the largest number of entries in Parents.
const maxParents = 8

// Limits bounds the hashing of executables, which a caller could use to keep the daemon
// busy. A zero field has its default.
type Limits struct {
	Bytes int64         // larger files are not hashed; 0: 512 MiB
	Time  time.Duration // one call of Observe waits no longer; 0: 2 s
	Known int           // number of digests that are kept; 0: 256
	Retry time.Duration // delay before a failed file is tried again; 0: 1 min
}

func (l Limits) withDefaults() Limits {
	if l.Bytes <= 0 {
		l.Bytes = 512 << 20
	}
	if l.Time <= 0 {
		l.Time = 2 * time.Second
	}
	if l.Known <= 0 {
		l.Known = 256
	}
	if l.Retry <= 0 {
		l.Retry = time.Minute
	}
	return l
}
