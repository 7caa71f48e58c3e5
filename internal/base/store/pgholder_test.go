package store

import (
	"errors"
	"regexp"
	"testing"

	"github.com/doorward/doorward/test/doortest"
)

// The refusal of a name has the statement that ends the session of a daemon that is gone, which the
// server or a connection pooler still keeps. Then the name is free.
func TestTheHolderOfANameCanBeEnded(t *testing.T) {
	t.Parallel()
	dsn := doortest.Postgres(t)
	proxy, p := newProxy(t, dsn)
	p.open(t, Options{Node: "host"})
	proxy.mode.Store("gone")
	direct := place{dsn: dsn}
	_, err := Open(t.Context(), direct.options(Options{Node: "host"}))
	if !errors.Is(err, ErrNode) {
		t.Fatalf("a second daemon of the name: %v", err)
	}
	statement := regexp.MustCompile(`pooler.* run SELECT (pg_terminate_backend\(\d+\))$`).FindStringSubmatch(err.Error())
	if statement == nil {
		t.Fatalf("the refusal says %v", err)
	}
	number(t, direct.open(t, Options{}), `SELECT count(`+statement[1]+`)`)
	must(t, direct.openFree(t).Close())
}
