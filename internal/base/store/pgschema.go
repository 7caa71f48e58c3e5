package store

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"strings"
)

// migrate creates the schema if it does not exist and brings it up to date.
// Several daemons may do so concurrently: each step is a transaction that first
// takes a lock of the whole database, and then determines which steps are missing.
func (p *postgres) migrate(ctx context.Context) error {
	c, err := p.pool.get(ctx)
	if err != nil {
		return err
	}
	defer p.release(c)
	for {
		more, err := p.step(ctx, c)
		if err != nil || !more {
			return err
		}
	}
}

// step applies the first missing step and reports whether there are more.
func (p *postgres) step(ctx context.Context, c *pgConn) (more bool, err error) {
	now, err := c.begin(ctx, p.beginLimit, "BEGIN ISOLATION LEVEL READ COMMITTED")
	if err != nil {
		return false, unavailable(err)
	}
	c.unlimited() // a step of this or another daemon may take long; ctx ends it
	if err := p.alone(ctx, c); err != nil {
		return false, err
	}
	done, err := names(ctx, c)
	if err != nil {
		return false, fmt.Errorf("reading the migrations: %w", err)
	}
	steps, err := pending(p.o.Migrations, done)
	if err != nil {
		return false, err
	}
	if len(steps) > 0 {
		err := apply(ctx, c, steps[0], len(done)+1, now, func(query string) error { return runDDL(ctx, c, query) })
		if err != nil {
			return false, err
		}
	}
	if err := c.commit(); err != nil {
		return false, unavailable(err)
	}
	if len(steps) > 0 {
		p.o.Log.Info("store migrated", slog.String("step", steps[0].Name))
	}
	return len(steps) > 1, nil
}

// alone takes the lock, creates the schema and the store's own tables if they do not
// exist, and sets the channel.
func (p *postgres) alone(ctx context.Context, c *pgConn) error {
	if _, err := c.exec(ctx, `SELECT pg_advisory_xact_lock(hashtext('doorward store'))`, nil); err != nil {
		return fmt.Errorf("waiting for other daemons: %w", err)
	}
	if p.o.Schema != "" {
		var there bool
		err := c.query(ctx, `SELECT count(*) FROM pg_catalog.pg_namespace WHERE nspname = ?1`, []any{p.o.Schema}, func(v []any) error {
			there = v[0] == int64(1)
			return nil
		})
		if err == nil && !there {
			err = runDDL(ctx, c, `CREATE SCHEMA `+quote(p.o.Schema))
		}
		if err != nil {
			return fmt.Errorf("making the schema: %w", err)
		}
	}
	schema := ""
	err := c.query(ctx, `SELECT current_schema()`, nil, func(v []any) error {
		schema, _ = v[0].(string)
		return nil
	})
	if err != nil || schema == "" {
		return errors.Join(errors.New("the connection has no current schema; create it, or name another one in search_path"), err)
	}
	// A channel belongs to the whole database, so its name is derived from the schema.
	sum := sha256.Sum256([]byte(schema))
	p.channel = "doorward_" + hex.EncodeToString(sum[:8])
	if err := runDDL(ctx, c, appliedTable); err != nil {
		return fmt.Errorf("making the table of migrations: %w", err)
	}
	if err := runDDL(ctx, c, commitsTable); err != nil {
		return fmt.Errorf("making the table of commits: %w", err)
	}
	return nil
}

// runDDL translates and runs a statement without keeping it compiled.
func runDDL(ctx context.Context, c *pgConn, query string) error {
	query, err := postgresDDL(query)
	if err != nil {
		return err
	}
	if strings.TrimSpace(query) == "" {
		return nil
	}
	_, err = c.c.Exec(ctx, query).ReadAll()
	return pgError(err)
}
