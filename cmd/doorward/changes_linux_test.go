//go:build linux && changes

package main

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

var (
	changeSeed = flag.Uint64("changes.seed", 0, "the seed of the first run of TestEachChangeReachesEachClient; 0: the time")
	changeFor  = flag.Duration("changes.for", 0, "how long further runs begin")
	changeActs = flag.Int("changes.acts", 20, "its acts")
	changeOnly = flag.String("changes.only", "", "the numbers of the acts to do, with commas; empty: all")
)

// changeSoon is how long a change may take to reach a client when all is quiet. A server that
// ended several times is connected again after pauses that grow to some seconds.
const changeSoon = 40 * time.Second

// TestEachChangeReachesEachClient does acts at random, and then compares what each client knows
// with what the servers offer: a client asks again only for what a notification names. No client
// hears of a server that policy denies to it.
func TestEachChangeReachesEachClient(t *testing.T) {
	t.Parallel()
	seed := *changeSeed
	if seed == 0 {
		seed = uint64(time.Now().UnixNano()) % 1_000_000
	}
	for end := time.Now().Add(*changeFor); ; seed++ {
		if !t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) { runChanges(t, seed) }) || time.Now().After(end) {
			return
		}
	}
}

func runChanges(t *testing.T, seed uint64) {
	r := rand.New(rand.NewPCG(seed, 1))
	kinds := slices.Clone(changeKinds)
	r.Shuffle(len(kinds), func(i, j int) { kinds[i], kinds[j] = kinds[j], kinds[i] })
	w := newChangeWorld(t, kinds[:3+r.IntN(2)])
	w.approve()
	ctx, cancel := context.WithCancel(t.Context())
	var all []*changeClient
	defer func() {
		cancel()
		for _, c := range all {
			c.wire.hangUp()
			c.done.Wait()
			c.wire.close()
		}
	}()
	for i := range 9 {
		kind, route, modern := changeCallers[i%3], "", i%2 > 0
		if i > 5 {
			route, modern = w.names[r.IntN(len(w.names))], r.IntN(2) == 0
		}
		c := w.client(strings.TrimSpace(fmt.Sprint(i, " ", kind, " ", route)), kind, route, modern)
		all = append(all, c)
		c.begin(ctx)
	}
	x := &changeRun{w: w, ctx: ctx, clients: all}
	x.quiet("at the beginning")
	for _, c := range all {
		for _, server := range w.names {
			if (c.route == "" || c.route == server) && r.IntN(3) > 0 {
				c.subscribe(ctx, server, true)
			}
		}
	}
	acts := make([]changeAct, *changeActs)
	for i := range acts {
		acts[i] = changeAct{r.IntN(100), r.IntN(1000), r.IntN(1000), r.IntN(1000), time.Duration(r.IntN(r.IntN(400)+1)) * time.Millisecond}
	}
	for i, a := range acts {
		if *changeOnly == "" || slices.Contains(strings.Split(*changeOnly, ","), strconv.Itoa(i)) {
			x.did = append(x.did, time.Now().Format("05.000 ")+fmt.Sprint(i)+": "+x.do(a))
			time.Sleep(a.pause)
		}
	}
	x.quiet("after the acts")
	for _, c := range all {
		x.open(c, true)
	}
	x.quiet("with all streams open")
	x.silence()
	x.trustEach()
	x.all()
	x.quiet("after a change of all")
	x.tell()
}

// client returns a client that has not begun. Those on the Unix socket use doorward connect.
func (w *changeWorld) client(name, kind, route string, modern bool) *changeClient {
	w.t.Helper()
	c := &changeClient{world: w, name: name, kind: kind, route: route, modern: modern, cache: make(map[string]string)}
	if modern {
		c.name += " modern"
	}
	if kind != "uid" {
		c.wire = &changeHTTP{c: c, http: &http.Client{Transport: &http.Transport{}}}
		return c
	}
	wire, err := newChangeStdio(c)
	if err != nil {
		w.t.Fatal(err)
	}
	c.wire = wire
	return c
}
