package main

import (
	"os"
	"strings"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/doorward/doorward/test/doortest"
)

// cmdPostgres is `postgres start|kill|freeze|thaw`: a PostgreSQL of the script's
// own, which is gone when the script ends. `start` writes its connection string
// into the configurations named after it, in the place of POSTGRES. Where
// PostgreSQL is not installed the script is skipped.
func cmdPostgres(ts *testscript.TestScript, neg bool, args []string) {
	need(ts, neg, len(args) > 0 && (len(args) == 1 || args[0] == "start"), "postgres start [FILE...] | kill | freeze | thaw")
	s := stageOf(ts)
	if args[0] != "start" && s.postgres == nil {
		ts.Fatalf("there is no PostgreSQL")
	}
	switch args[0] {
	case "start":
		if s.postgres == nil {
			s.postgres = doortest.PostgresServer(s.t)
		} else {
			s.postgres.Start(s.t)
		}
		for _, name := range args[1:] {
			replaceIn(ts, name, "POSTGRES", s.postgres.DSN())
		}
	case "kill":
		s.postgres.Kill(s.t)
	case "freeze":
		s.postgres.Freeze(s.t)
	case "thaw":
		s.postgres.Thaw(s.t)
	default:
		ts.Fatalf("postgres: no such word: %s", args[0])
	}
}

func replaceIn(ts *testscript.TestScript, name, old, text string) {
	was := ts.ReadFile(name)
	if !strings.Contains(was, old) {
		ts.Fatalf("%s has no %s", name, old)
	}
	ts.Check(os.WriteFile(ts.MkAbs(name), []byte(strings.ReplaceAll(was, old, text)), 0o600))
}
