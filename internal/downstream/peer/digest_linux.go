package peer

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"io"
	"os"
	"strconv"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// digests caches the digests of executables by the state of the file. Each is computed
// once for all callers, and at most hashings at a time, so that a client that starts many
// programs cannot keep the daemon reading.
type digests struct {
	limits Limits
	slots  chan struct{} // each hashing takes one

	mu    sync.Mutex
	known map[fileID]*digest
}

// digest is the digest of one file, or a failure to compute it, which lasts until a time.
type digest struct {
	ready chan struct{}
	sum   string    // after ready
	until time.Time // after ready; zero: it does not expire
}

// hashings is the number of files that are read at a time.
const hashings = 2

func newDigests(l Limits) *digests {
	return &digests{limits: l, slots: make(chan struct{}, hashings), known: make(map[fileID]*digest)}
}

// exeFile is a handle (O_PATH) on the file that a process runs.
type exeFile struct{ fd int }

func (f exeFile) close() { unix.Close(f.fd) }

// of returns the digest of f, whose state is id, in hexadecimal; empty when it is not
// ready in time. It takes over f and closes it.
func (d *digests) of(ctx context.Context, f exeFile, id fileID) string {
	if id.size > uint64(d.limits.Bytes) || id.mount == 0 && !isLocal(f.fd) {
		f.close()
		return ""
	}
	e, fresh := d.entry(id)
	if fresh {
		go d.make(e, f, id)
	} else {
		f.close()
	}
	select {
	case <-e.ready: // first without a timer, which costs more than this check
		return e.sum
	default:
	}
	select {
	case <-e.ready:
		return e.sum
	case <-time.After(d.limits.Time):
	case <-ctx.Done():
	}
	return ""
}

// entry finds the digest of id. If fresh, the caller has to compute it.
func (d *digests) entry(id fileID) (e *digest, fresh bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if e := d.known[id]; e != nil && !e.expired() {
		return e, false
	}
	for other := range d.known { // drops any entry: there is no order to keep
		if len(d.known) < d.limits.Known {
			break
		}
		delete(d.known, other)
	}
	e = &digest{ready: make(chan struct{})}
	d.known[id] = e
	return e, true
}

func (e *digest) expired() bool {
	select {
	case <-e.ready:
		return !e.until.IsZero() && time.Now().After(e.until)
	default:
		return false
	}
}

// make computes e. A file that has just changed may change again within the resolution of
// its times, so its digest is not kept.
func (d *digests) make(e *digest, f exeFile, id fileID) {
	defer f.close()
	defer close(e.ready)
	deadline := time.Now().Add(d.limits.Time)
	sum, ok := d.hash(f, id, deadline)
	e.sum = sum
	switch {
	case !ok:
		e.until = time.Now().Add(d.limits.Retry)
	case !id.settled(time.Now()):
		e.until = time.Now()
	}
}

// settled reports whether every change after now will show in the file's times.
func (a fileID) settled(now time.Time) bool {
	return Stamp{mtime: a.mtime, ctime: a.ctime}.Settled(now)
}

// hash reads the file once a slot is free, and compares its state afterwards: a file that
// changed meanwhile has no digest.
func (d *digests) hash(f exeFile, id fileID, deadline time.Time) (string, bool) {
	select {
	case d.slots <- struct{}{}:
		defer func() { <-d.slots }()
	case <-time.After(time.Until(deadline)):
		return "", false
	}
	if id.mount != 0 && !isLocal(f.fd) {
		return "", false
	}
	file, err := os.Open("/proc/self/fd/" + strconv.Itoa(f.fd)) // reopens the same file for reading
	if err != nil {
		return "", false
	}
	defer file.Close()
	sum, ok := readAll(file, int64(id.size), deadline)
	if now, there := identify(int(file.Fd()), ""); !there || now != id {
		return "", false
	}
	return sum, ok
}

// readAll hashes exactly size bytes, in pieces, until the deadline.
func readAll(r io.Reader, size int64, deadline time.Time) (string, bool) {
	h := sha256.New()
	buf := make([]byte, 256<<10)
	for n := int64(0); n < size; {
		if time.Now().After(deadline) {
			return "", false
		}
		got, err := r.Read(buf[:min(int64(len(buf)), size-n)])
		h.Write(buf[:got])
		n += int64(got)
		if err != nil && n < size {
			return "", false
		}
	}
	return hex.EncodeToString(h.Sum(nil)), true
}
