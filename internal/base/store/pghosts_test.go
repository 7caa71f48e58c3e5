package store

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/doorward/doorward/test/doortest"
)

// Of two servers in a connection string the store uses the one that accepts writes, in either order,
// also after they have changed their roles. It reads nothing from the other one, which may be behind.
func TestTheServerThatAcceptsWritesIsUsed(t *testing.T) {
	t.Parallel()
	servers := []string{doortest.PostgresServer(t).DSN(), doortest.PostgresServer(t).DSN()}
	for i, dsn := range servers {
		db := place{dsn: dsn}.open(t, Options{})
		must(t, db.Write(t.Context(), put([]string{"first", "second"}[i], 1)))
		must(t, db.Close())
	}
	host := func(i int) string { return strings.Fields(strings.TrimPrefix(servers[i], "host="))[0] }
	_, rest, _ := strings.Cut(servers[0], " ")
	for _, order := range [][2]int{{0, 1}, {1, 0}} {
		roles(t, servers[0], servers[1])
		db := place{dsn: "host=" + host(order[0]) + "," + host(order[1]) + " " + rest}.open(t, Options{Node: "host"})
		for i, want := range []string{"first", "second", "first"} {
			roles(t, servers[i%2], servers[1-i%2])
			await(t, "write to the "+want+" server", func() bool {
				err := db.Write(t.Context(), func(tx *Tx) error {
					_, err := tx.Exec(`UPDATE kv SET n = n + 1`)
					return err
				})
				if err != nil && !errors.Is(err, ErrUnavailable) {
					t.Fatal(err)
				}
				return err == nil
			})
			if got := keys(t, db); got != want+"," {
				t.Errorf("order %v: %s is read from, want %s", order, got, want)
			}
		}
		must(t, db.Close())
	}
}

// roles makes one server refuse writes and another one accept them, and ends all other sessions of both.
func roles(t *testing.T, writes, refuses string) {
	t.Helper()
	for dsn, set := range map[string]string{writes: "off", refuses: "on"} {
		c, err := pgconn.Connect(t.Context(), dsn+" default_transaction_read_only=off")
		must(t, err)
		_, err = c.Exec(t.Context(), `ALTER DATABASE doorward SET default_transaction_read_only = `+set).ReadAll()
		must(t, err)
		_, err = c.Exec(t.Context(), `SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity
			WHERE datname = current_database() AND pid <> pg_backend_pid()`).ReadAll()
		must(t, err)
		must(t, c.Close(context.Background()))
	}
}
