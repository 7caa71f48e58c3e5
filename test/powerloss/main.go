// Powerloss tests that everything Doorward has answered for survives a power loss.
//
// The state directory is on a file system in memory that forgets unsynced data. In each round the
// daemon is killed while it works, the file system is unmounted, drops what a real disk could
// have lost, and is mounted again. At the end every answered message must be there exactly once.
// The controls run a bare SQLite in the same way to show that the file system works as described:
// with synchronous FULL nothing may be lost, with NORMAL something must be.
//
// It needs /dev/fuse and the permission to mount. Without them it prints one line and exits with
// status 0, unless -required is given. Everything happens in a separate mount namespace, so no
// mount outlives the program.
package main

import (
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"sync"
	"time"
)

// Bounds of the length of a round. The store needs a moment until writes are in progress; after
// that any moment for the kill is as good as another.
const (
	shortest = 300 * time.Millisecond
	longest  = 900 * time.Millisecond
)

// errNoFUSE reports that this machine cannot run the test.
var errNoFUSE = errors.New("not run here")

func main() {
	if len(os.Args) > 2 && os.Args[1] == "sqlite" {
		os.Exit(end(sqliteProgram(os.Args[2:])))
	}
	if len(os.Args) > 2 && os.Args[1] == "agents" {
		os.Exit(end(agentsProgram(os.Args[2:])))
	}
	bin := flag.String("doorward", "", "the doorward binary; without it the controls run alone")
	rounds := flag.Int("rounds", 8, "how often the power goes, for each scenario")
	seed := flag.Uint64("seed", uint64(time.Now().UnixNano()), "of every choice, to run the same once more")
	limit := flag.Duration("timeout", 15*time.Minute, "for all of it")
	required := flag.Bool("required", false, "fail where there is no FUSE")
	flag.Parse()
	work := os.Getenv(insideEnv)
	if work == "" {
		err := enter()
		if errors.Is(err, errNoFUSE) && !*required {
			fmt.Println("powerloss:", err)
			return
		}
		os.Exit(end(err))
	}
	time.AfterFunc(*limit, func() {
		fmt.Fprintln(os.Stderr, "powerloss: not done within", *limit)
		os.Exit(1)
	})
	os.Exit(end(inside(*bin, work, *rounds, *seed)))
}

func end(err error) int {
	var status exitStatus
	switch {
	case err == nil:
		return 0
	case errors.As(err, &status):
		return int(status)
	}
	fmt.Fprintln(os.Stderr, "powerloss:", err)
	return 1
}

// inside runs all scenarios in the mount namespace.
func inside(bin, work string, rounds int, seed uint64) error {
	if err := private(work); err != nil {
		return err
	}
	fmt.Printf("powerloss: seed %d\n", seed)
	return all(scenarios(bin), work, rounds, seed)
}

// scenario is one subject on one kind of disk.
type scenario struct {
	name     string
	subject  func(work string) subject
	chance   float64 // probability that an unsynced page is kept
	deaf     string  // prefix of the names of files that are never synced
	mustLose bool    // a control: data must be lost or found corrupt
	short    bool    // a quarter of the rounds suffices
}

func scenarios(bin string) []scenario {
	var list []scenario
	if bin != "" {
		list = append(list,
			scenario{name: "Doorward", subject: doorward(bin)},
			scenario{name: "Doorward, half of the unsynced kept", subject: doorward(bin), chance: 0.5},
			scenario{name: "Doorward, its database never synced", subject: doorward(bin), deaf: "doorward.db", mustLose: true, short: true},
			scenario{name: "Doorward, its audit never synced", subject: doorward(bin), deaf: "0000", mustLose: true, short: true})
	}
	return append(list,
		scenario{name: "SQLite, synchronous FULL", subject: sqlite("FULL")},
		scenario{name: "SQLite, synchronous FULL, half of the unsynced kept", subject: sqlite("FULL"), chance: 0.5},
		scenario{name: "SQLite, synchronous NORMAL", subject: sqlite("NORMAL"), mustLose: true},
		scenario{name: "SQLite, synchronous NORMAL, half of the unsynced kept", subject: sqlite("NORMAL"), chance: 0.5, mustLose: true})
}

// all runs the scenarios, two at a time.
func all(list []scenario, work string, rounds int, seed uint64) error {
	errs := make([]error, len(list))
	slots := make(chan struct{}, 2)
	var wg sync.WaitGroup
	for i, s := range list {
		slots <- struct{}{}
		wg.Go(func() {
			defer func() { <-slots }()
			dir := filepath.Join(work, fmt.Sprint(i))
			line, err := run(s, dir, rounds, rand.New(rand.NewPCG(seed, uint64(i))))
			if err != nil {
				errs[i] = fmt.Errorf("%s: %w", s.name, err)
				line = "FAILED"
			}
			fmt.Printf("powerloss: %s: %s\n", s.name, line)
		})
	}
	wg.Wait()
	return errors.Join(errs...)
}
