package peer

import "time"

// Evidence is what a connector's process looks like. All of it is observed: true
// when it was read, chosen by the user who runs the process, and fit to take
// rights away, never to grant any. An empty field could not be read; nothing is
// filled in. The zero value stands for a process that cannot be examined.
type Evidence struct {
	// Exe is the path of the running file. It ends in " (deleted)" when the
	// file is no longer there, and never otherwise: a file that is really
	// called so has no Exe, and neither has one whose path is not UTF-8.
	Exe string
	// SHA256 of the running file in lower-case hexadecimal, also when another
	// file has its path by now.
	SHA256 string
	// Start is when the process began, in seconds after the boot. It does not
	// change on exec.
	Start string
	// Cgroup is the path in the unified hierarchy. Unit is its last segment that is
	// a systemd service or scope. The owner of a delegated tree chooses names in
	// it.
	Cgroup, Unit string

	// Process and ParentProcess name the process, and the one that was its
	// parent all the time, as Ancestors does: "BOOT/pid@start".
	Process, ParentProcess string

	ParentPID int32
	ParentExe string   // in the form of Exe
	Parents   []string // "pid:name", the nearest first, at most maxParents

	// Image reports whether the observed program still runs. Without it Exe and
	// SHA256 are empty. It is valid as long as the Credentials, or until every
	// Retain is released.
	Image *Image
}

// maxParents bounds the chain that is recorded.
const maxParents = 8

// Limits bound the hashing of executables, which a caller could use to keep
// the daemon busy. The zero value has the defaults.
type Limits struct {
	Bytes int64         // larger files are not hashed; 0: 512 MiB
	Time  time.Duration // one look waits no longer; 0: 2 s
	Known int           // digests that are kept; 0: 256
	Retry time.Duration // a file that was too slow is tried again; 0: 1 min
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
