// Package auditlog reads the audit log that trust/audit writes: it shows and
// follows records, verifies them, and prunes the oldest. Reading works with and without
// a running daemon, and does not block one.
//
// Invariant: a record is shown as it is in the log, with the caller of the record
// that it refers to. Verify accepts only a log that was not changed since it was
// written. A segment that was not verified is never pruned.
package auditlog
