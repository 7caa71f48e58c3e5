package process

import (
	"fmt"
	"os"
	"sync/atomic"
	"time"
)

// patience bounds the time for each path while a sandbox is built. A file system may never answer, such as a mount of
// FUSE whose program hangs, and a system call that asks it cannot be given up: only the end of the process ends it.
type patience struct {
	limit    time.Duration
	asked    atomic.Pointer[string]
	timer    *time.Timer
	progress func()
	told     time.Time // when progress was called last
}

// progressEvery is how often the daemon is told that the next path is asked. It is shorter than reportPatience by more
// than answerPatience.
const progressEvery = time.Second

// newPatience starts the time. A path that takes longer than the limit makes it call over, unless end was called. It
// calls progress now and then while paths are asked.
func newPatience(limit time.Duration, over func(path string), progress func()) *patience {
	p := &patience{limit: limit, progress: progress, told: time.Now()}
	p.asked.Store(new(string))
	p.timer = time.AfterFunc(limit, func() { over(*p.asked.Load()) })
	return p
}

// ask notes the path that is asked next, and starts its time. A nil patience has no limit.
func (p *patience) ask(path string) {
	if p == nil {
		return
	}
	p.asked.Store(&path)
	p.timer.Reset(p.limit)
	if now := time.Now(); now.Sub(p.told) >= progressEvery {
		p.told = now
		p.progress()
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
