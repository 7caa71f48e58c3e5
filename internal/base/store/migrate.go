package store

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"

	"github.com/doorward/doorward/internal/base/durable"
)

// The table of the steps that were applied to the schema, in their order. Missing steps
// are found by name (pending).
const (
	appliedTable = `CREATE TABLE IF NOT EXISTS store_migrations (
		position INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE, applied_at INTEGER NOT NULL) STRICT`
	appliedNames  = `SELECT name FROM store_migrations ORDER BY position`
	appliedInsert = `INSERT INTO store_migrations (position, name, applied_at) VALUES (?1, ?2, ?3)`
)

// names returns the names of the applied steps, in their order.
func names(ctx context.Context, s session) ([]string, error) {
	var done []string
	err := s.query(ctx, appliedNames, nil, func(v []any) error {
		name, _ := v[0].(string)
		done = append(done, name)
		return nil
	})
	return done, err
}

// apply runs the statements of one step inside a transaction.
func apply(ctx context.Context, s session, m Migration, position int, now int64, run func(string) error) error {
	for i, query := range m.SQL {
		if err := run(query); err != nil {
			return fmt.Errorf("migration %s, statement %d: %w", m.Name, i+1, err)
		}
	}
	_, err := s.exec(ctx, appliedInsert, []any{int64(position), m.Name, now})
	return err
}

// migrateSQLite brings the schema up to date. The lock of claim excludes other daemons.
// Before each step it writes a backup, unless the database is new.
func migrateSQLite(ctx context.Context, c *sqliteConn, path string, o Options) error {
	var tables int64
	err := c.query(ctx, `SELECT count(*) FROM sqlite_schema`, nil, func(v []any) error {
		tables, _ = v[0].(int64)
		return nil
	})
	if err != nil {
		return fmt.Errorf("reading the schema: %w", err)
	}
	if _, err := c.exec(ctx, appliedTable, nil); err != nil {
		return fmt.Errorf("making the table of migrations: %w", err)
	}
	done, err := names(ctx, c)
	if err != nil {
		return fmt.Errorf("reading the migrations: %w", err)
	}
	steps, err := pending(o.Migrations, done)
	if err != nil {
		return err
	}
	for i, m := range steps {
		if tables > 0 {
			if err := backup(ctx, c, path+".before-"+m.Name); err != nil {
				return fmt.Errorf("backup before migration %s: %w", m.Name, err)
			}
		}
		if err := stepSQLite(ctx, c, m, len(done)+i+1, o.Now().UnixMilli()); err != nil {
			return err
		}
		o.Log.Info("store migrated", slog.String("step", m.Name))
	}
	return nil
}

func stepSQLite(ctx context.Context, c *sqliteConn, m Migration, position int, now int64) error {
	if _, err := c.exec(ctx, "BEGIN IMMEDIATE", nil); err != nil {
		return err
	}
	err := apply(ctx, c, m, position, now, func(query string) error {
		_, err := c.exec(ctx, query, nil)
		return err
	})
	if err == nil {
		_, err = c.exec(ctx, "COMMIT", nil)
	}
	if err != nil {
		_, back := c.exec(context.WithoutCancel(ctx), "ROLLBACK", nil)
		return errors.Join(err, back)
	}
	return nil
}

// backup writes a copy of the database to path. The file is complete and synced before it
// gets that name.
func backup(ctx context.Context, c *sqliteConn, path string) error {
	temp := path + ".part"
	if err := os.Remove(temp); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	f, err := os.OpenFile(temp, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	defer f.Close()
	if _, err := c.exec(ctx, `VACUUM INTO ?1`, []any{temp}); err != nil {
		return errors.Join(err, os.Remove(temp))
	}
	if err := f.Sync(); err != nil {
		return err
	}
	if err := os.Rename(temp, path); err != nil {
		return err
	}
	return durable.SyncDir(filepath.Dir(path))
}
