package mail_test

import (
	"testing"

	"github.com/doorward/doorward/internal/base/store"
	"github.com/doorward/doorward/internal/messaging/mail"
)

// SQLite makes at most one temporary table to insert a delivery: for the constraint on its
// state. The conditions of the indexes need none.
func TestTheIndexesOfDeliveriesNeedNoTemporaryTable(t *testing.T) {
	t.Parallel()
	db, err := store.Open(t.Context(), store.Options{Dir: t.TempDir(), Migrations: mail.Migrations()})
	must(t, err)
	defer db.Close()
	tables, all := 0, 0
	must(t, db.Write(t.Context(), func(tx *store.Tx) error {
		return tx.Each(func(scan func(...any) error) error {
			var opcode string
			var rest [7]any
			err := scan(&rest[0], &opcode, &rest[1], &rest[2], &rest[3], &rest[4], &rest[5], &rest[6])
			if all++; opcode == "OpenEphemeral" {
				tables++
			}
			return err
		}, `EXPLAIN INSERT INTO deliveries (message_id, peer_id, state) VALUES (?1, ?2, ?3)`, "m", "p", mail.Queued)
	}))
	if all == 0 || tables > 1 {
		t.Errorf("%d temporary tables in %d steps", tables, all)
	}
}
