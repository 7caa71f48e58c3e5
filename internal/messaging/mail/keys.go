package mail

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/doorward/doorward/internal/base/store"
)

// key claims an idempotency key for a principal's peer and a tool: two agents of one
// principal have separate keys, and a takeover keeps them. The insert locks the key, so
// that of concurrent calls one acts and the others wait for its outcome. replay reports
// that the key was used before with the same arguments, and that before holds the
// outcome. A key that was used with other arguments is an IdempotencyConflict. A failed
// call rolls its key back.
func (j idempotency) key(from sender, tool, key string, fingerprint []byte, before any) (replay bool, err error) {
	if fingerprint == nil {
		fingerprint = []byte{}
	}
	var taken string
	err = j.Row([]any{&taken}, `INSERT INTO idempotency_keys (principal, tool, idempotency_key, fingerprint, result, expires_at, peer_id)
		VALUES (?1, ?2, ?3, ?4, '', ?5, ?7)
		ON CONFLICT (principal, peer_id, tool, idempotency_key) DO UPDATE SET fingerprint = excluded.fingerprint, result = '', expires_at = excluded.expires_at
		WHERE idempotency_keys.expires_at <= ?6 RETURNING tool`,
		from.principal, tool, key, fingerprint, j.now+j.b.o.Limits.Key.Milliseconds(), j.now, from.id)
	if err == nil {
		return false, nil
	}
	if !errors.Is(err, store.ErrNoRow) {
		return false, fmt.Errorf("taking an idempotency key: %w", err)
	}
	var result string
	var other []byte
	err = j.Row([]any{&other, &result}, `SELECT fingerprint, result FROM idempotency_keys
		WHERE principal = ?1 AND peer_id = ?4 AND tool = ?2 AND idempotency_key = ?3`, from.principal, tool, key, from.id)
	if err != nil {
		return false, fmt.Errorf("reading an idempotency key: %w", err)
	}
	if !bytes.Equal(other, fingerprint) {
		return false, refuse(IdempotencyConflict)
	}
	if err := json.Unmarshal([]byte(result), before); err != nil {
		return false, fmt.Errorf("reading the outcome of an idempotency key: %w", err)
	}
	return true, nil
}

// keep stores the outcome of a call under its key, for a replay.
func (j idempotency) keep(from sender, tool, key string, outcome any) error {
	text, err := json.Marshal(outcome)
	if err != nil {
		return fmt.Errorf("keeping an outcome: %w", err)
	}
	_, err = j.Exec(`UPDATE idempotency_keys SET result = ?4 WHERE principal = ?1 AND peer_id = ?5 AND tool = ?2 AND idempotency_key = ?3`,
		from.principal, tool, key, string(text), from.id)
	return err
}
