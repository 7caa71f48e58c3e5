// mutate changes the code of packages, one expression at a time, and runs their tests each time:
// a change that no test notices is a property that no test checks.
//
// All mutants are compiled into one test binary, and an environment variable selects the active
// one, so that a mutant costs a run of the tests and no build. Only mutants in constant
// declarations have a build each.
package main

import (
	"flag"
	"fmt"
	"os"
)

func main() {
	o := options{}
	flag.StringVar(&o.run, "run", "", "run only these tests")
	flag.StringVar(&o.skip, "skip", "", "leave these tests out")
	flag.IntVar(&o.cpu, "cpu", 60, "seconds of processor time that a run may take at most")
	flag.StringVar(&o.match, "match", "", "try only the mutants whose lines match, as keys.go:24:")
	flag.BoolVar(&o.short, "short", true, "run the short tests")
	least := flag.Float64("killed", 0, "fail below this percentage")
	flag.Parse()
	good := true
	for _, path := range flag.Args() {
		killed, err := measure(path, o, os.Stdout)
		if err != nil {
			fmt.Fprintf(os.Stderr, "%s: %v\n", path, err)
			os.Exit(2)
		}
		good = good && killed >= *least
	}
	if !good {
		os.Exit(1)
	}
}
