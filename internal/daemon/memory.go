package daemon

import (
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"time"

	"github.com/doorward/doorward/internal/downstream/peer"
)

// The garbage collector is tuned for a small heap: by default it would run for every 4 MiB of
// garbage, about twenty times a second under load, while 2 MiB are live. It therefore runs
// later until the heap has heapTarget bytes, and as usual beyond that. This saves 10 to 15 %
// of the CPU of a call.
const (
	heapTarget  = 16 << 20
	lazyPercent = 400
	usualFactor = 100
	paceEvery   = time.Second
	// worthFreeing is the amount of dead memory from which an idle daemon returns memory.
	worthFreeing = 6 << 20
	// worthUnmapping is the amount of pages of the program, used since they were released, from
	// which an idle daemon releases them again.
	worthUnmapping = 4 << 20
	// betweenTrims is the least number of seconds between two times that an idle daemon
	// returns memory. Idle sessions produce garbage with each keep-alive.
	betweenTrims = 10
	// atRest is the number of ticks without work after which connections rest
	// (listen.RestAfter), so that what they used can be returned too.
	atRest = 3
	// manyLeft is the number of connections that have ended since memory was returned from which
	// an idle daemon returns what they used. It is small pieces, which are no garbage before the
	// next collection.
	manyLeft = 100
)

// pacer adapts the collector to the live heap, and returns memory to the system when the
// daemon is idle after work.
type pacer struct {
	work    func() uint64 // counts acts; unchanged means idle
	open    func() int    // counts connections
	most    int           // the most connections since memory was returned
	last    uint64
	quiet   int    // ticks without work
	trimmed bool   // memory was returned since the last work
	wait    int    // ticks until memory may be returned again; 0: now
	kept    uint64 // dead memory that remained after the last return
	mapped  int    // resident pages of files after the last release, in bytes
	started bool   // the memory of the start has been returned
	samples []metrics.Sample
	stop    chan struct{}
}

func startPacer(work func() uint64, open func() int) *pacer {
	p := newPacer(work, open)
	debug.SetGCPercent(lazyPercent)
	go p.run()
	return p
}

func newPacer(work func() uint64, open func() int) *pacer {
	return &pacer{work: work, open: open, stop: make(chan struct{}), samples: []metrics.Sample{
		{Name: "/gc/heap/live:bytes"},
		{Name: "/memory/classes/heap/objects:bytes"},
		{Name: "/memory/classes/heap/free:bytes"},
		{Name: "/memory/classes/heap/unused:bytes"},
	}}
}

func (p *pacer) run() {
	tick := time.Tick(paceEvery)
	for {
		select {
		case <-tick:
			p.pace()
		case <-p.stop:
			return
		}
	}
}

// read returns the live heap and the memory of the process that holds no objects.
func (p *pacer) read() (live, dead uint64) {
	metrics.Read(p.samples)
	live = p.samples[0].Value.Uint64()
	objects := p.samples[1].Value.Uint64()
	return live, objects - min(live, objects) + p.samples[2].Value.Uint64() + p.samples[3].Value.Uint64()
}

func (p *pacer) pace() {
	live, dead := p.read()
	debug.SetGCPercent(percentFor(live))
	now := p.work()
	if p.quiet++; now != p.last {
		p.last, p.quiet, p.trimmed = now, 0, false
	}
	conns := p.open()
	p.wait, p.kept, p.most = max(0, p.wait-1), min(p.kept, dead), max(p.most, conns)
	switch {
	case p.quiet == 0:
	case !p.started:
		p.started = true
		runtime.GC()
		debug.FreeOSMemory()
		p.unmap()
	case p.wait == 0 && (dead > p.kept+worthFreeing || p.most-conns >= manyLeft), p.trimmed && p.quiet == atRest:
		p.trim()
		p.most = conns
	case p.quiet%betweenTrims == 0 && peer.Mapped() > p.mapped+worthUnmapping:
		p.unmap()
	}
}

// unmap releases the pages of the program. Those that are used again are read from the system's
// cache.
func (p *pacer) unmap() {
	_ = peer.Unmap() // a failure only keeps the pages resident
	p.mapped = peer.Mapped()
}

// trim returns memory to the system.
func (p *pacer) trim() {
	p.wait, p.trimmed = betweenTrims, true
	// Each collection halves the stacks that idle goroutines no longer
	// need; FreeOSMemory is a third one.
	runtime.GC()
	runtime.GC()
	debug.FreeOSMemory()
	p.unmap()
	_, p.kept = p.read()
}

// percentFor returns the GC percentage with which the heap grows to heapTarget, or to twice
// the live heap if that is more.
func percentFor(live uint64) int {
	if live == 0 {
		return lazyPercent
	}
	return int(min(lazyPercent, max(usualFactor, heapTarget*100/live)))
}

func (p *pacer) close() { close(p.stop) }
