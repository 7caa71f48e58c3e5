package process

import (
	"fmt"
	"os"
	"sync/atomic"
	"time"
)

// answerPatience bounds how long the file systems of granted paths may take to answer while a sandbox is built. It is
// shorter than reportPatience, so that the daemon learns which path it was.
const answerPatience = 10 * time.Second

// patience bounds the time for building a sandbox. A file system may never answer, such as a mount of FUSE whose
// program hangs, and a system call that asks it cannot be given up: only the end of the process ends it.
type patience struct {
	asked atomic.Pointer[string]
	timer *time.Timer
}

// newPatience starts the time. At the limit it calls over with the path that was asked last, unless end was called.
func newPatience(limit time.Duration, over func(path string)) *patience {
	p := new(patience)
	p.asked.Store(new(string))
	p.timer = time.AfterFunc(limit, func() { over(*p.asked.Load()) })
	return p
}

// ask notes the path that is asked next. A nil patience has no limit.
func (p *patience) ask(path string) {
	if p != nil {
		p.asked.Store(&path)
	}
}

// end stops the time.
func (p *patience) end() { p.timer.Stop() }

// giveUp reports the path that does not answer, and ends the stage.
func giveUp(path string) {
	why := fmt.Sprintf("%s does not answer for %s: its file system hangs; mount it again, or do not grant it", path, answerPatience)
	tell(note{Error: why, Astray: true})
	os.Exit(exitSupervisor)
}
