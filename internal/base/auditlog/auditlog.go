// Package auditlog reads the audit log that trust/audit writes: it shows and
// follows records, verifies them, and prunes the oldest. It needs no daemon and
// disturbs none.
//
// Invariant: what is shown as a record stands so in the log, with the caller of
// the record that it refers to. Verify calls whole only what was written and not
// changed since. What was not verified is never pruned.
package auditlog
