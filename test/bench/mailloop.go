//go:build linux

package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"path/filepath"
	"strconv"

	_ "github.com/ncruces/go-sqlite3/driver" // the driver of the store

	"github.com/doorward/doorward/internal/base/store"
)

// bareLoop is the minimum cost of a message on this disk: a row with a unique id and an incremented
// counter, in one transaction that is on disk before it returns. It checks and signs nothing, and
// shares no commits.
//
// All workers use one connection. With separate connections they would sleep while they wait for
// each other's locks, which would halve the speed of this baseline.
type bareLoop struct {
	db             *sql.DB
	insert, update *sql.Stmt
}

var loopSchema = []string{
	"CREATE TABLE messages(id TEXT PRIMARY KEY, mailbox INTEGER NOT NULL, seq INTEGER NOT NULL, body TEXT NOT NULL) STRICT",
	"CREATE TABLE mailboxes(id INTEGER PRIMARY KEY, next_seq INTEGER NOT NULL) STRICT",
}

func openBareLoop(dir string) (*bareLoop, error) {
	db, err := sql.Open("sqlite3", "file:"+filepath.Join(dir, "bare.db")+
		"?_pragma=busy_timeout(10000)&_pragma=journal_mode(WAL)&_pragma=synchronous(FULL)&_pragma=temp_store(MEMORY)&_txlock=immediate")
	if err != nil {
		return nil, fmt.Errorf("opening the bare loop: %w", err)
	}
	db.SetMaxOpenConns(1)
	l := &bareLoop{db: db}
	for _, statement := range loopSchema {
		_, execErr := db.Exec(statement)
		err = errors.Join(err, execErr)
	}
	for i := range maxSenders {
		_, execErr := db.Exec("INSERT INTO mailboxes VALUES(?1,0)", i)
		err = errors.Join(err, execErr)
	}
	if err == nil {
		l.update, err = db.Prepare("UPDATE mailboxes SET next_seq=next_seq+1 WHERE id=?1 RETURNING next_seq")
	}
	if err == nil {
		l.insert, err = db.Prepare("INSERT INTO messages VALUES(?1,?2,?3,?4)")
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("preparing the bare loop: %w", err), db.Close())
	}
	return l, nil
}

// send stores one message of a worker in the worker's own mailbox.
func (l *bareLoop) send(worker, _ int, n int64) error {
	tx, err := l.db.Begin()
	if err != nil {
		return err
	}
	defer tx.Rollback()
	var seq int64
	if err := tx.Stmt(l.update).QueryRow(worker).Scan(&seq); err != nil {
		return err
	}
	id := strconv.Itoa(worker) + "-" + strconv.FormatInt(n, 10)
	if _, err := tx.Stmt(l.insert).Exec(id, worker, seq, textOf(worker, n)); err != nil {
		return err
	}
	return tx.Commit()
}

func (l *bareLoop) close() error { return l.db.Close() }

// storeLoop runs the same two statements through the store. It shows the effect of group commit
// without any messaging rules.
type storeLoop struct{ db *store.DB }

func openStoreLoop(dir string) (*storeLoop, error) {
	db, err := store.Open(context.Background(), store.Options{Dir: dir, Migrations: []store.Migration{{Name: "bench-1", SQL: loopSchema}}})
	if err != nil {
		return nil, err
	}
	l := &storeLoop{db}
	err = db.Write(context.Background(), func(tx *store.Tx) error {
		for i := range maxSenders {
			if _, err := tx.Exec("INSERT INTO mailboxes VALUES(?1,0)", i); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return nil, errors.Join(err, db.Close())
	}
	return l, nil
}

func (l *storeLoop) send(worker, _ int, n int64) error {
	id := strconv.Itoa(worker) + "-" + strconv.FormatInt(n, 10)
	return l.db.Write(context.Background(), func(tx *store.Tx) error {
		var seq int64
		if err := tx.Row([]any{&seq}, "UPDATE mailboxes SET next_seq=next_seq+1 WHERE id=?1 RETURNING next_seq", worker); err != nil {
			return err
		}
		_, err := tx.Exec("INSERT INTO messages VALUES(?1,?2,?3,?4)", id, worker, seq, textOf(worker, n))
		return err
	})
}

func (l *storeLoop) close() error { return l.db.Close() }
