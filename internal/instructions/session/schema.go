package session

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/doorward/doorward/internal/base/store"
)

// Migrations returns the schema of the sessions. Times are milliseconds; 0 means "not
// yet". until is the time from which a token is refused whatever it states: it was
// replaced, or its time and the tolerance are over. scope holds words: the tiers, then
// makerMark with the id of the maker, if there is one.
func Migrations() []store.Migration {
	return []store.Migration{{Name: "instruct-sessions-1", SQL: []string{
		`CREATE TABLE instruct_sessions (
			installation TEXT NOT NULL,
			id TEXT NOT NULL,
			subject TEXT NOT NULL,
			scope TEXT NOT NULL,
			project TEXT NOT NULL,
			client TEXT NOT NULL,
			ci INTEGER NOT NULL,
			bind TEXT NOT NULL,
			ttl INTEGER NOT NULL,
			issued_at INTEGER NOT NULL,
			expires_at INTEGER NOT NULL,
			ended_at INTEGER NOT NULL,
			reason TEXT NOT NULL CHECK (reason IN ('', 'ended', 'revoked', 'expired', 'process')),
			PRIMARY KEY (installation, id)
		) STRICT`,
		`CREATE INDEX instruct_sessions_ended ON instruct_sessions (installation, ended_at)`,
		// digest is that of the token's id. The token itself is not stored.
		`CREATE TABLE instruct_tokens (
			installation TEXT NOT NULL,
			digest BLOB NOT NULL,
			session TEXT NOT NULL,
			issued_at INTEGER NOT NULL,
			expires_at INTEGER NOT NULL,
			until INTEGER NOT NULL,
			PRIMARY KEY (installation, digest)
		) STRICT`,
		`CREATE INDEX instruct_tokens_session ON instruct_tokens (installation, session)`,
		`CREATE INDEX instruct_tokens_until ON instruct_tokens (installation, until)`,
	}}}
}

// makerMark is the prefix of the word with the maker. No tier begins with it.
const makerMark = "maker:"

func scopeColumn(s *Session) string {
	words := strings.Join(s.Scope, " ")
	if s.Maker != "" {
		words += " " + makerMark + s.Maker
	}
	return words
}

func fromScope(column string) (scope []string, maker string) {
	for _, word := range strings.Fields(column) {
		if id, ok := strings.CutPrefix(word, makerMark); ok {
			maker = id
		} else {
			scope = append(scope, word)
		}
	}
	return scope, maker
}

// insert inserts a new session with its token.
func (k *rows) insert(tx *store.Tx, e *entry, g *grant) error {
	_, err := tx.Exec(`INSERT INTO instruct_sessions (installation, id, subject, scope, project, client, ci, bind, ttl, issued_at, expires_at, ended_at, reason)
		VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, 0, '')`,
		k.o.Installation, e.ID, e.Subject, scopeColumn(&e.Session), e.Project, e.Client, e.CI, e.Bind,
		e.ttl.Milliseconds(), e.Issued.UnixMilli(), e.Expires.UnixMilli())
	if err != nil {
		return fmt.Errorf("entering a session: %w", err)
	}
	return k.insertToken(tx, e.ID, g)
}

func (k *rows) insertToken(tx *store.Tx, session string, g *grant) error {
	_, err := tx.Exec(`INSERT INTO instruct_tokens (installation, digest, session, issued_at, expires_at, until) VALUES (?1, ?2, ?3, ?4, ?5, ?6)`,
		k.o.Installation, g.id[:], session, g.iat*1000, g.exp*1000, g.until.UnixMilli())
	if err != nil {
		return fmt.Errorf("entering a token: %w", err)
	}
	return nil
}

// replace inserts the next token of a live session, and makes the earlier ones end by
// last.
func (k *rows) replace(tx *store.Tx, s *Session, g *grant, last time.Time) error {
	n, err := tx.Exec(`UPDATE instruct_sessions SET expires_at = ?3 WHERE installation = ?1 AND id = ?2 AND ended_at = 0`,
		k.o.Installation, s.ID, s.Expires.UnixMilli())
	if err != nil {
		return fmt.Errorf("entering the end of the new token: %w", err)
	}
	if n == 0 {
		return errOver
	}
	_, err = tx.Exec(`UPDATE instruct_tokens SET until = ?3 WHERE installation = ?1 AND session = ?2 AND until > ?3`,
		k.o.Installation, s.ID, last.UnixMilli())
	if err != nil {
		return fmt.Errorf("ending the token before: %w", err)
	}
	return k.insertToken(tx, s.ID, g)
}

// markEnded stores the end of a session; errOver: its row is not live.
func (k *rows) markEnded(tx *store.Tx, s *Session) error {
	n, err := tx.Exec(`UPDATE instruct_sessions SET ended_at = ?3, reason = ?4 WHERE installation = ?1 AND id = ?2 AND ended_at = 0`,
		k.o.Installation, s.ID, s.Ended.UnixMilli(), s.Reason)
	if err != nil {
		return fmt.Errorf("entering the end of a session: %w", err)
	}
	if n == 0 {
		return errOver
	}
	_, err = tx.Exec(`DELETE FROM instruct_tokens WHERE installation = ?1 AND session = ?2`, k.o.Installation, s.ID)
	if err != nil {
		return fmt.Errorf("forgetting the tokens of a session: %w", err)
	}
	return nil
}

// load reads the sessions and tokens for Open.
func (k *Keeper) load(ctx context.Context) error {
	return k.o.DB.Read(ctx, func(tx *store.Tx) error {
		if err := k.loadSessions(tx, `ended_at = 0 ORDER BY issued_at`, k.o.Installation); err != nil {
			return err
		}
		err := k.loadSessions(tx, `ended_at > ?2 ORDER BY ended_at DESC LIMIT ?3`, k.o.Installation, k.o.Now().Add(-Kept).UnixMilli(), k.limits.ended)
		if err != nil {
			return err
		}
		return k.loadTokens(tx)
	})
}

func (k *Keeper) loadSessions(tx *store.Tx, which string, args ...any) error {
	err := tx.Each(func(scan func(dest ...any) error) error {
		var s Session
		var scope string
		var ttl, issued, expires, ended int64
		if err := scan(&s.ID, &s.Subject, &scope, &s.Project, &s.Client, &s.CI, &s.Bind, &ttl, &issued, &expires, &ended, &s.Reason); err != nil {
			return err
		}
		s.Scope, s.Maker = fromScope(scope)
		s.Issued, s.Expires = time.UnixMilli(issued).UTC(), time.UnixMilli(expires).UTC()
		s.RefreshAfter = s.Expires // loadTokens sets it from the newest token
		if ended > 0 {
			s.Ended = time.UnixMilli(ended).UTC()
		}
		k.add(newEntry(s, time.Duration(ttl)*time.Millisecond))
		return nil
	}, `SELECT id, subject, scope, project, client, ci, bind, ttl, issued_at, expires_at, ended_at, reason
		FROM instruct_sessions WHERE installation = ?1 AND `+which, args...)
	if err != nil {
		return fmt.Errorf("reading the sessions: %w", err)
	}
	return nil
}

// loadTokens reads the tokens of live sessions, the newest last. Ended sessions have
// none.
func (k *Keeper) loadTokens(tx *store.Tx) error {
	err := tx.Each(func(scan func(dest ...any) error) error {
		var id []byte
		var session string
		var iat, exp, until int64
		if err := scan(&id, &session, &iat, &exp, &until); err != nil {
			return err
		}
		e := k.sessions[session]
		if e == nil || len(id) != len(digest{}) {
			return nil
		}
		g := &grant{id: digest(id), of: e, iat: iat / 1000, exp: exp / 1000, until: time.UnixMilli(until)}
		e.grants = append(e.grants, g)
		k.grants[g.id] = g
		e.Expires, e.RefreshAfter = e.times(g)
		return nil
	}, `SELECT digest, session, issued_at, expires_at, until FROM instruct_tokens WHERE installation = ?1 ORDER BY until`, k.o.Installation)
	if err != nil {
		return fmt.Errorf("reading the tokens: %w", err)
	}
	return nil
}

// forget deletes expired tokens, the sessions with the given ids, and those that ended
// before a time.
func (k *rows) forget(tx *store.Tx, now, before time.Time, ids []string) error {
	_, err := tx.Exec(`DELETE FROM instruct_tokens WHERE installation = ?1 AND until <= ?2`, k.o.Installation, now.UnixMilli())
	if err != nil {
		return fmt.Errorf("forgetting tokens: %w", err)
	}
	_, err = tx.Exec(`DELETE FROM instruct_sessions WHERE installation = ?1 AND ended_at > 0 AND ended_at <= ?2`, k.o.Installation, before.UnixMilli())
	if err != nil {
		return fmt.Errorf("forgetting sessions: %w", err)
	}
	for _, id := range slices.Sorted(slices.Values(ids)) {
		if _, err := tx.Exec(`DELETE FROM instruct_sessions WHERE installation = ?1 AND id = ?2 AND ended_at > 0`, k.o.Installation, id); err != nil {
			return fmt.Errorf("forgetting a session: %w", err)
		}
	}
	return nil
}
