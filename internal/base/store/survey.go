package store

import (
	"context"
	"fmt"
)

// hasApplied counts the tables of the applied steps: one, or none in a new database.
var hasApplied = map[string]string{
	SQLite:   `SELECT count(*) FROM sqlite_schema WHERE name = 'store_migrations'`,
	Postgres: `SELECT count(*) FROM pg_catalog.pg_class WHERE oid = to_regclass('store_migrations')`,
}

// survey finds the steps that the schema lacks, without changing it.
func (db *DB) survey(ctx context.Context, all []Migration) error {
	return db.Read(ctx, func(tx *Tx) error {
		var done []string
		var tables int64
		err := tx.Row([]any{&tables}, hasApplied[db.Engine()])
		if err == nil && tables > 0 {
			done, err = names(ctx, tx.s)
		}
		if err != nil {
			return fmt.Errorf("reading the migrations: %w", err)
		}
		steps, err := pending(all, done)
		db.lacks = stepNames(steps)
		return err
	})
}

// Lacks returns the steps that the schema of a database lacks that was opened as it is. It is
// one of an older version, or new.
func (db *DB) Lacks() []string { return db.lacks }
