package mail

import (
	"strconv"
	"strings"
	"testing"

	"github.com/doorward/doorward/internal/base/store"
)

// The frequent statements about open and final deliveries find them in the partial index that is
// made for them, and read no other delivery. SQLite uses such an index only for a condition that
// is spelled as in the index.
func TestFrequentStatementsUseThePartialIndexes(t *testing.T) {
	t.Parallel()
	db, err := store.Open(t.Context(), store.Options{Dir: t.TempDir(), Migrations: Migrations()})
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	for index, queries := range map[string][]string{
		"deliveries_open (peer_id=?": {takeSeat, `SELECT ` + rowColumns + ` FROM deliveries WHERE ` + oldest,
			`SELECT d.seq FROM deliveries d JOIN messages m ON m.message_id = d.message_id WHERE d.peer_id = ?1 AND ` + isOpen + ` AND d.seq > 0`},
		"deliveries_due_open (due": {`SELECT peer_id FROM deliveries WHERE ` + isOpen + ` AND due <= ?1` + hasBox + ` ORDER BY due`,
			`SELECT due FROM deliveries WHERE ` + isOpen + ` AND due > ?1 ORDER BY due LIMIT 1`},
		"deliveries_due_final (due": {`SELECT peer_id FROM deliveries WHERE ` + isFinal + ` AND due <= ?1` + hasBox + ` ORDER BY due`,
			`SELECT due FROM deliveries WHERE ` + isFinal + ` AND due > ?1 ORDER BY due LIMIT 1`},
	} {
		for _, query := range queries {
			if plan := planOf(t, db, query); !strings.Contains(plan, "USING INDEX "+index) && !strings.Contains(plan, "USING COVERING INDEX "+index) ||
				strings.Contains(plan, "SCAN") || strings.Contains(plan, "TEMP") {
				t.Errorf("%s\n%s", query, plan)
			}
		}
	}
}

// planOf returns SQLite's plan of a query whose placeholders are numbered without a gap.
func planOf(t *testing.T, db *store.DB, query string) (plan string) {
	t.Helper()
	n := 0
	for strings.Contains(query, "?"+strconv.Itoa(n+1)) {
		n++
	}
	err := db.Read(t.Context(), func(tx *store.Tx) error {
		return tx.Each(func(scan func(...any) error) error {
			var rest [3]int64
			var step string
			err := scan(&rest[0], &rest[1], &rest[2], &step)
			plan += step + "\n"
			return err
		}, `EXPLAIN QUERY PLAN `+query, make([]any, n)...)
	})
	if err != nil {
		t.Fatal(err)
	}
	return plan
}
