package library

import "github.com/doorward/doorward/internal/base/store"

// Migrations returns the schema of the library.
//
// No column is NULL. Times are milliseconds; 0 means "never". variant is
// document.Document.Variant: it distinguishes the documents of one name for different
// audiences.
func Migrations() []store.Migration {
	return []store.Migration{{Name: "library-1", SQL: []string{
		// Every content that was ever stored, sealed. number counts within a name.
		`CREATE TABLE instruct_versions (
			installation TEXT NOT NULL,
			name TEXT NOT NULL,
			version TEXT NOT NULL,
			variant TEXT NOT NULL,
			number INTEGER NOT NULL,
			bytes INTEGER NOT NULL,
			seen_at INTEGER NOT NULL,
			labelled_at INTEGER NOT NULL,
			revoked_at INTEGER NOT NULL,
			content BLOB NOT NULL,
			PRIMARY KEY (installation, name, version)
		) STRICT`,
		// open: a changed file becomes production. held: its production version was
		// revoked. withdrawn: its whole name was revoked. held and withdrawn end with a
		// promotion. seen is the version that the directory held last, file the file of
		// it.
		`CREATE TABLE instruct_variants (
			installation TEXT NOT NULL,
			name TEXT NOT NULL,
			variant TEXT NOT NULL,
			state TEXT NOT NULL CHECK (state IN ('open', 'held', 'withdrawn')),
			seen TEXT NOT NULL,
			file TEXT NOT NULL,
			PRIMARY KEY (installation, name, variant)
		) STRICT`,
		`CREATE TABLE instruct_labels (
			installation TEXT NOT NULL,
			name TEXT NOT NULL,
			variant TEXT NOT NULL,
			label TEXT NOT NULL,
			version TEXT NOT NULL,
			moved_at INTEGER NOT NULL,
			PRIMARY KEY (installation, name, variant, label)
		) STRICT`,
		// The stack of production versions for rollback, the present one last. Variants
		// that one act moved together have its number, which rises within a name.
		`CREATE TABLE instruct_productions (
			installation TEXT NOT NULL,
			name TEXT NOT NULL,
			variant TEXT NOT NULL,
			act INTEGER NOT NULL,
			version TEXT NOT NULL,
			moved_at INTEGER NOT NULL,
			PRIMARY KEY (installation, name, variant, act)
		) STRICT`,
		`CREATE TABLE instruct_deliveries (
			installation TEXT NOT NULL,
			session TEXT NOT NULL,
			template TEXT NOT NULL,
			revision TEXT NOT NULL,
			ref TEXT NOT NULL,
			principal TEXT NOT NULL,
			bytes INTEGER NOT NULL,
			times INTEGER NOT NULL,
			first_at INTEGER NOT NULL,
			last_at INTEGER NOT NULL,
			PRIMARY KEY (installation, session, template, revision)
		) STRICT`,
		`CREATE INDEX instruct_deliveries_last ON instruct_deliveries (installation, last_at)`,
	}}, {Name: "library-2", SQL: []string{
		`CREATE INDEX instruct_deliveries_ref ON instruct_deliveries (installation, ref, last_at)`,
	}}}
}

// topicLabels is signalled when versions or labels have changed.
const topicLabels = "instructions"

// The states of a variant.
const (
	stateOpen      = "open"
	stateHeld      = "held"
	stateWithdrawn = "withdrawn"
)
