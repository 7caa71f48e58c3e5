package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/doorward/doorward/internal/base/store"
	"github.com/doorward/doorward/internal/daemon"
	"github.com/doorward/doorward/internal/messaging/mail"
)

// upgradeRounds is the number of kills from the begin of a start on, 25 ms apart, besides those
// at the two moments that a SQLite database shows.
const upgradeRounds = 8

// A daemon of this version brings a database of the version before up to date, also after it
// was killed while it did so, and no message is lost.
func TestAnUpgradeThatIsKilledIsCompleted(t *testing.T) {
	t.Parallel()
	for engine, postgres := range mailEngines {
		t.Run(engine, func(t *testing.T) {
			t.Parallel()
			dsn := postgres(t)
			d := startMail(t, "upgraded", mailConfig("upgraded", dsn, roomy))
			d.client("unix").mustOpen().register("reader")
			from := d.client("unix").mustOpen()
			from.register("writer")
			var want []string
			for n := range 300 {
				want = append(want, fmt.Sprint("message ", n))
				from.send("reader", want[n])
			}
			d.stop()
			u := &upgrade{t: t, d: d, o: store.Options{Dir: filepath.Join(d.dir, "s"), Postgres: dsn, Migrations: daemon.Migrations()}}
			killed := 0
			for _, moment := range u.moments() {
				if len(u.lacks()) == 0 {
					u.back()
				}
				u.start(moment)
				killed += len(u.lacks())
			}
			t.Logf("%d starts were killed before the step was complete", killed)
			if killed == 0 {
				t.Error("no start was killed before the step was complete")
			}
			d.start()
			to := d.client("unix").mustOpen()
			to.register("reader")
			var got []string
			for _, m := range to.drain() {
				got = append(got, m.Body)
			}
			if strings.Join(got, "\n") != strings.Join(want, "\n") {
				t.Errorf("%d messages of %d were read: %q", len(got), len(want), got)
			}
			d.sound()
			d.stop()
			if lacks := u.lacks(); len(lacks) > 0 {
				t.Errorf("the database still lacks %v", lacks)
			}
		})
	}
}

// upgrade takes the database of a stopped daemon to the version before the last step of mail
// and back.
type upgrade struct {
	t *testing.T
	d *mailDaemon
	o store.Options
}

// moments returns the moments at which the starts are killed.
func (u *upgrade) moments() []func() bool {
	var all []func() bool
	if u.o.Postgres == "" {
		before := filepath.Join(u.o.Dir, "doorward.db.before-"+lastOfMail().Name)
		for _, path := range []string{before + ".part", before} {
			all = append(all, func() bool { _, err := os.Stat(path); return err == nil })
		}
	}
	for i := range upgradeRounds {
		wait, begun := time.Duration(i)*25*time.Millisecond, time.Time{}
		all = append(all, func() bool {
			if begun.IsZero() {
				begun = time.Now()
			}
			return time.Since(begun) > wait
		})
	}
	return all
}

func lastOfMail() store.Migration {
	steps := mail.Migrations()
	return steps[len(steps)-1]
}

// start starts the daemon and kills it at a moment.
func (u *upgrade) start(moment func() bool) {
	u.t.Helper()
	for _, old := range []string{"", ".part"} { // of an earlier round
		_ = os.Remove(filepath.Join(u.o.Dir, "doorward.db.before-"+lastOfMail().Name+old))
	}
	cmd := exec.Command("doorward", "serve")
	cmd.Dir, cmd.Env = u.d.dir, u.d.env
	if err := cmd.Start(); err != nil {
		u.t.Fatal(err)
	}
	limit := time.Now().Add(mailSoon)
	for !moment() && time.Now().Before(limit) {
		time.Sleep(time.Millisecond / 4) // a poll that is shorter than a start
	}
	if err := cmd.Process.Kill(); err != nil {
		u.t.Error(err)
	}
	_ = cmd.Wait() // it was killed
}

// lacks returns the steps that the database lacks.
func (u *upgrade) lacks() []string {
	u.t.Helper()
	o := u.o
	o.AsIs = true
	db, err := store.Open(context.Background(), o)
	if err != nil {
		u.t.Fatal(err)
	}
	defer db.Close()
	return db.Lacks()
}

// back undoes the last step of mail, which makes indexes again.
func (u *upgrade) back() {
	u.t.Helper()
	db, err := store.Open(context.Background(), u.o)
	if err != nil {
		u.t.Fatal(err)
	}
	defer db.Close()
	err = db.Write(context.Background(), func(tx *store.Tx) error {
		for _, query := range undone() {
			if _, err := tx.Exec(query); err != nil {
				return err
			}
		}
		return forget(tx, lastOfMail().Name)
	})
	if err != nil {
		u.t.Fatal(err)
	}
}

// undone returns the statements that make the indexes of the last step as the steps before
// made them.
func undone() (all []string) {
	steps := mail.Migrations()
	for _, query := range lastOfMail().SQL {
		index, ok := strings.CutPrefix(query, "DROP INDEX ")
		if !ok {
			continue
		}
		was := ""
		for _, s := range steps[:len(steps)-1] {
			for _, q := range s.SQL {
				if strings.HasPrefix(q, "CREATE INDEX "+index+" ON ") {
					was = q
				}
			}
		}
		all = append(all, query, was)
	}
	return all
}

// forget removes a step from the list of those that a database has.
func forget(tx *store.Tx, step string) error {
	var at, last int64
	if err := tx.Row([]any{&at}, `SELECT position FROM store_migrations WHERE name = ?1`, step); err != nil {
		return err
	}
	if err := tx.Row([]any{&last}, `SELECT max(position) FROM store_migrations`); err != nil {
		return err
	}
	if _, err := tx.Exec(`DELETE FROM store_migrations WHERE name = ?1`, step); err != nil {
		return err
	}
	for ; at < last; at++ {
		if _, err := tx.Exec(`UPDATE store_migrations SET position = ?1 WHERE position = ?2`, at, at+1); err != nil {
			return err
		}
	}
	return nil
}
