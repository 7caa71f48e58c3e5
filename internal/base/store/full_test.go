package store

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"syscall"
	"testing"
)

// smallDisk is a process that sees a file system of 2 MiB at dir, which gets
// space when a file is removed.
func smallDisk(dir string) int {
	if err := mountSmall(dir); err != nil {
		return report(err)
	}
	ballast := filepath.Join(dir, "ballast")
	if err := os.WriteFile(ballast, make([]byte, 1<<20), 0o600); err != nil {
		return report(err)
	}
	return report(runFull(filepath.Join(dir, "db"), func() error { return nil }, func() error { return os.Remove(ballast) }))
}

// limitedFiles is a process whose files may not grow beyond 600 KiB, until it
// is allowed to.
func limitedFiles(dir string) int {
	signal.Ignore(syscall.SIGXFSZ)
	var limit syscall.Rlimit
	err := syscall.Getrlimit(syscall.RLIMIT_FSIZE, &limit)
	set := func(n uint64) error {
		limit.Cur = n
		return syscall.Setrlimit(syscall.RLIMIT_FSIZE, &limit)
	}
	return report(errors.Join(err, runFull(dir, func() error { return set(600 << 10) }, func() error { return set(limit.Max) })))
}

func report(err error) int {
	if err != nil {
		fmt.Println(err)
		return 1
	}
	return 0
}

// runFull writes until there is no space, tries further writes, gets space and
// writes again. At each stage the rows are as many as were acknowledged, and as
// were recorded and not taken back.
func runFull(dir string, fill, space func() error) error {
	ctx := context.Background()
	r := &recorder{}
	p := place{dir: dir}
	db, err := Open(ctx, p.options(r.options()))
	if err != nil {
		return err
	}
	if err := fill(); err != nil {
		return err
	}
	written := 0
	try := func(k string, size int) error {
		err := db.Write(ctx, func(tx *Tx) error {
			tx.Note(k)
			_, err := tx.Exec(`INSERT INTO kv (k, n, b) VALUES (?1, 1, ?2)`, k, make([]byte, size))
			return err
		})
		if err == nil {
			r.mu.Lock()
			written++
			r.mu.Unlock()
		}
		return err
	}
	for i := 0; ; i++ {
		if err = try(fmt.Sprint("fill", i), 20<<10); err != nil {
			break
		}
		if i == 1000 {
			return errors.New("it never ran full")
		}
	}
	if !errors.Is(err, ErrUnavailable) {
		return fmt.Errorf("on a full disk: %w", err)
	}
	var strange error
	together(16, func(i int) {
		// The last ones are more than the page cache holds: they spill.
		if err := try(fmt.Sprint("more", i), []int{20 << 10, 3 << 20}[i/12]); err != nil && !errors.Is(err, ErrUnavailable) {
			strange = err
		}
	})
	if err := errors.Join(strange, account(db, r, &written)); err != nil {
		return fmt.Errorf("while it is full: %w", err)
	}
	if err := space(); err != nil {
		return err
	}
	if err := try("after", 20<<10); err != nil {
		return fmt.Errorf("with space again: %w", err)
	}
	if err := errors.Join(account(db, r, &written), db.Close()); err != nil {
		return err
	}
	if db, err = Open(ctx, p.options(Options{})); err != nil {
		return err
	}
	return errors.Join(account(db, r, &written), db.Close())
}

func account(db *DB, r *recorder, written *int) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	var rows int
	var ok string
	err := db.Read(context.Background(), func(tx *Tx) error {
		return errors.Join(tx.Row([]any{&rows}, `SELECT count(*) FROM kv`), tx.Row([]any{&ok}, `SELECT * FROM pragma_integrity_check`))
	})
	if err != nil || ok != "ok" {
		return fmt.Errorf("reading: %s %w", ok, err)
	}
	if rows != *written || rows != len(r.notes)-len(r.undo) {
		return fmt.Errorf("%d rows, %d acknowledged, %d recorded, of these %d taken back", rows, *written, len(r.notes), len(r.undo))
	}
	if len(r.undo) == 0 {
		return errors.New("no COMMIT failed: the test shows nothing")
	}
	return nil
}

func TestAFileThatMayNotGrow(t *testing.T) {
	t.Parallel()
	out, err := exec.Command(os.Args[0], "limited-files", t.TempDir()).CombinedOutput()
	if err != nil {
		t.Errorf("%v: %s", err, out)
	}
}
