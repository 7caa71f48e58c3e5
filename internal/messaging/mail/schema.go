package mail

import (
	"slices"

	"github.com/doorward/doorward/internal/base/store"
)

// The conditions below are spelled identically in the partial indexes and in the
// statements that use them: SQLite uses such an index for no other spelling. They have no
// IN with more than two values, for which SQLite makes a table each time that it inserts a
// row: it took half of the time of the insert of a delivery.
// A change of them keeps the present text for the migration mail-4, as wasOpen is kept.
const (
	isOpen  = `(state = 'held' OR state = 'queued' OR state = 'leased')`
	isOwned = `kind = 'agent' AND session <> ''`
	isFinal = `NOT ` + isOpen
)

// Earlier spellings, of released migrations.
const (
	wasOpen  = `state IN ('held', 'queued', 'leased')`
	wasFinal = `state IN ('acked', 'rejected', 'expired', 'dead', 'refused', 'purged', 'evicted')`
)

// Migrations returns the schema of the book.
//
// No column is NULL. Times are milliseconds; 0 means "not yet" or "never". A row of
// mailboxes is the lock of its mailbox: a transaction updates it before it changes a
// delivery of the mailbox.
func Migrations() []store.Migration {
	return []store.Migration{
		{Name: "mail-1", SQL: slices.Concat(directoryTables(), peerTables(), boxTables(), messageTables(),
			deliveryTables(), memoryTables(), spawnTables())},
		{Name: "mail-2", SQL: dueIndexes()},
		{Name: "mail-3", SQL: readTables()},
		{Name: "mail-4", SQL: stateIndexes()},
	}
}

// stateIndexes makes the indexes of open and final deliveries again, with isOpen and isFinal.
func stateIndexes() []string {
	return []string{
		`DROP INDEX deliveries_open`,
		`CREATE INDEX deliveries_open ON deliveries (peer_id, seq, due, sender_id) WHERE ` + isOpen,
		`DROP INDEX deliveries_due_open`,
		`CREATE INDEX deliveries_due_open ON deliveries (due) WHERE ` + isOpen,
		`DROP INDEX deliveries_due_final`,
		`CREATE INDEX deliveries_due_final ON deliveries (due) WHERE ` + isFinal,
	}
}

// isRead selects the deliveries that their recipient can read again.
const isRead = `state IN ('acked', 'rejected')`

// readTables adds the indexes and the column for Read. read_since is the time at which a
// peer came to its present principal: earlier messages belong to another principal.
func readTables() []string {
	return []string{
		`CREATE INDEX deliveries_read ON deliveries (peer_id, message_id) WHERE ` + isRead,
		`CREATE INDEX messages_sender ON messages (sender_id, message_id)`,
		`ALTER TABLE peers ADD COLUMN read_since INTEGER NOT NULL DEFAULT 0`,
	}
}

// dueIndexes adds the indexes for the sweep, which handles open deliveries before final
// ones, and for the bound on keys.
func dueIndexes() []string {
	return []string{
		`CREATE INDEX deliveries_due_open ON deliveries (due) WHERE ` + wasOpen,
		`CREATE INDEX deliveries_due_final ON deliveries (due) WHERE ` + wasFinal,
		`DROP INDEX deliveries_due`,
		`CREATE INDEX idempotency_keys_peer ON idempotency_keys (peer_id, expires_at)`,
	}
}

// directoryTables creates the tables of nodes, namespaces, names and sessions.
func directoryTables() []string {
	return []string{
		// One row for each node: the ids of its operator and broker, and its number of
		// open spawns. slot keeps the change numbers of two nodes distinct.
		`CREATE TABLE mail_nodes (
			node TEXT PRIMARY KEY,
			slot INTEGER NOT NULL UNIQUE,
			operator_id TEXT NOT NULL,
			broker_id TEXT NOT NULL,
			spawns_open INTEGER NOT NULL CHECK (spawns_open >= 0)
		) STRICT`,
		`CREATE TABLE peer_spaces (
			namespace TEXT PRIMARY KEY,
			peers INTEGER NOT NULL CHECK (peers >= 0)
		) STRICT`,
		// Names, aliases and tombstones. The shared key makes a name one of the three.
		// parent is the parent of the peer that has the name.
		`CREATE TABLE peer_names (
			namespace TEXT NOT NULL,
			name TEXT NOT NULL,
			kind TEXT NOT NULL CHECK (kind IN ('peer', 'alias', 'tombstone')),
			peer_id TEXT NOT NULL,
			principal TEXT NOT NULL,
			parent TEXT NOT NULL,
			expires_at INTEGER NOT NULL,
			PRIMARY KEY (namespace, name)
		) STRICT`,
		`CREATE INDEX peer_names_peer ON peer_names (peer_id)`,
		`CREATE INDEX peer_names_due ON peer_names (expires_at) WHERE kind <> 'peer'`,
		// Every session that ever registered here. It distinguishes a superseded session
		// from an unknown one, and keeps the processes of agents that released their
		// name.
		`CREATE TABLE peer_sessions (
			principal TEXT NOT NULL,
			session TEXT NOT NULL,
			node TEXT NOT NULL,
			peer_id TEXT NOT NULL,
			superseded INTEGER NOT NULL,
			processes TEXT NOT NULL,
			changed_at INTEGER NOT NULL,
			PRIMARY KEY (principal, session)
		) STRICT`,
		`CREATE INDEX peer_sessions_node ON peer_sessions (node)`,
		`CREATE INDEX peer_sessions_due ON peer_sessions (changed_at)`,
	}
}

// peerTables creates the table of peers.
func peerTables() []string {
	return []string{
		`CREATE TABLE peers (
			peer_id TEXT PRIMARY KEY,
			kind TEXT NOT NULL CHECK (kind IN ('agent', 'operator', 'broker', 'gone')),
			namespace TEXT NOT NULL,
			name TEXT NOT NULL,
			principal TEXT NOT NULL,
			session TEXT NOT NULL,
			node TEXT NOT NULL,
			grade TEXT NOT NULL,
			epoch INTEGER NOT NULL,
			lease_until INTEGER NOT NULL,
			last_seen INTEGER NOT NULL,
			display TEXT NOT NULL,
			summary TEXT NOT NULL,
			labels TEXT NOT NULL,
			spawn_id TEXT NOT NULL,
			ancestors TEXT NOT NULL
		) STRICT`,
		`CREATE UNIQUE INDEX peers_owner ON peers (principal, session) WHERE ` + isOwned,
		`CREATE INDEX peers_session ON peers (session)`,
		`CREATE INDEX peers_space ON peers (namespace, peer_id)`,
		`CREATE INDEX peers_agents ON peers (peer_id) WHERE kind = 'agent' AND spawn_id = ''`,
		`CREATE INDEX peers_gone ON peers (peer_id) WHERE kind = 'gone'`,
	}
}

// boxTables creates the mailboxes, whose rows are locks, and the outboxes.
func boxTables() []string {
	return []string{
		`CREATE TABLE mailboxes (
			peer_id TEXT PRIMARY KEY,
			active INTEGER NOT NULL,
			principal TEXT NOT NULL,
			inbound TEXT NOT NULL,
			paused INTEGER NOT NULL,
			ancestors TEXT NOT NULL,
			last_seq INTEGER NOT NULL,
			bytes INTEGER NOT NULL,
			accepted INTEGER NOT NULL,
			held INTEGER NOT NULL,
			queued INTEGER NOT NULL,
			leased INTEGER NOT NULL,
			acked INTEGER NOT NULL,
			rejected INTEGER NOT NULL,
			expired INTEGER NOT NULL,
			dead INTEGER NOT NULL,
			refused INTEGER NOT NULL,
			purged INTEGER NOT NULL,
			evicted INTEGER NOT NULL
		) STRICT`,
		// The notices of a sender, numbered in the order of commit; covered is the last
		// one that a receipt covers.
		`CREATE TABLE outboxes (
			peer_id TEXT PRIMARY KEY,
			last_notice INTEGER NOT NULL,
			covered INTEGER NOT NULL
		) STRICT`,
	}
}

// messageTables creates the table of messages.
func messageTables() []string {
	return []string{
		`CREATE TABLE messages (
			message_id TEXT PRIMARY KEY,
			thread_id TEXT NOT NULL,
			reply_to TEXT NOT NULL,
			depth INTEGER NOT NULL,
			kind TEXT NOT NULL,
			priority TEXT NOT NULL,
			subject TEXT NOT NULL,
			body TEXT NOT NULL,
			bytes INTEGER NOT NULL,
			sha256 BLOB NOT NULL,
			repeats INTEGER NOT NULL,
			refs TEXT NOT NULL,
			sent_at INTEGER NOT NULL,
			ttl INTEGER NOT NULL,
			ack_deadline INTEGER NOT NULL,
			sender_id TEXT NOT NULL,
			from_name TEXT NOT NULL,
			from_namespace TEXT NOT NULL,
			from_principal TEXT NOT NULL,
			from_grade TEXT NOT NULL,
			from_epoch INTEGER NOT NULL
		) STRICT`,
		`CREATE INDEX messages_repeats ON messages (sender_id, repeats)`,
		`CREATE INDEX messages_thread ON messages (thread_id, sent_at) WHERE thread_id <> message_id`,
	}
}

// deliveryTables creates the deliveries: one row for each message and recipient.
func deliveryTables() []string {
	return []string{
		// due is the time at which the sweep has to handle the row.
		`CREATE TABLE deliveries (
			message_id TEXT NOT NULL,
			peer_id TEXT NOT NULL,
			sender_id TEXT NOT NULL,
			seq INTEGER NOT NULL,
			state TEXT NOT NULL CHECK (state IN ('held', 'queued', 'leased', 'acked', 'rejected', 'expired', 'dead', 'refused', 'purged', 'evicted')),
			due INTEGER NOT NULL,
			address TEXT NOT NULL,
			from_name TEXT NOT NULL,
			thread_id TEXT NOT NULL,
			lineage TEXT NOT NULL,
			authority TEXT NOT NULL,
			sig TEXT NOT NULL,
			bytes INTEGER NOT NULL,
			attempts INTEGER NOT NULL,
			given_epoch INTEGER NOT NULL,
			cut INTEGER NOT NULL,
			expires_at INTEGER NOT NULL,
			lease_until INTEGER NOT NULL,
			changed_at INTEGER NOT NULL,
			given_at INTEGER NOT NULL,
			acked_at INTEGER NOT NULL,
			reason TEXT NOT NULL,
			note TEXT NOT NULL,
			notice_seq INTEGER NOT NULL,
			notice_state TEXT NOT NULL,
			notice_at INTEGER NOT NULL,
			again_as TEXT NOT NULL,
			PRIMARY KEY (message_id, peer_id)
		) STRICT`,
		`CREATE INDEX deliveries_open ON deliveries (peer_id, seq, due, sender_id) WHERE ` + wasOpen,
		`CREATE INDEX deliveries_due ON deliveries (due)`,
		`CREATE INDEX deliveries_notice ON deliveries (sender_id, notice_seq) WHERE notice_seq > 0`,
	}
}

// memoryTables creates the counts of deleted rows, the idempotency keys, and the change
// log.
func memoryTables() []string {
	return []string{
		// The number of deliveries that retention deleted.
		`CREATE TABLE mail_forgotten (
			peer_id TEXT NOT NULL,
			state TEXT NOT NULL,
			rows_gone INTEGER NOT NULL,
			seqs_gone INTEGER NOT NULL,
			PRIMARY KEY (peer_id, state)
		) STRICT`,
		`CREATE TABLE idempotency_keys (
			principal TEXT NOT NULL,
			peer_id TEXT NOT NULL,
			tool TEXT NOT NULL,
			idempotency_key TEXT NOT NULL,
			fingerprint BLOB NOT NULL,
			result TEXT NOT NULL,
			expires_at INTEGER NOT NULL,
			PRIMARY KEY (principal, peer_id, tool, idempotency_key)
		) STRICT`,
		`CREATE INDEX idempotency_keys_due ON idempotency_keys (expires_at)`,
		// The log for tail and trace. id is a position for a reader; it does not prove an
		// order between nodes.
		`CREATE TABLE mail_changes (
			id INTEGER PRIMARY KEY,
			at INTEGER NOT NULL,
			message_id TEXT NOT NULL,
			peer_id TEXT NOT NULL,
			to_name TEXT NOT NULL,
			from_name TEXT NOT NULL,
			state_before TEXT NOT NULL,
			state_after TEXT NOT NULL,
			epoch INTEGER NOT NULL,
			reason TEXT NOT NULL
		) STRICT`,
		`CREATE INDEX mail_changes_message ON mail_changes (message_id)`,
	}
}

// spawnTables creates the table of spawns.
func spawnTables() []string {
	return []string{
		`CREATE TABLE spawns (
			spawn_id TEXT PRIMARY KEY,
			launcher TEXT NOT NULL,
			node TEXT NOT NULL,
			parent_id TEXT NOT NULL,
			parent_principal TEXT NOT NULL,
			parent_session TEXT NOT NULL,
			parent_spawn TEXT NOT NULL,
			peer_id TEXT NOT NULL,
			name TEXT NOT NULL,
			namespace TEXT NOT NULL,
			state TEXT NOT NULL CHECK (state IN ('starting', 'running', 'exited', 'killed', 'timeout', 'over_budget', 'failed')),
			rights TEXT NOT NULL,
			max_seconds INTEGER NOT NULL,
			max_children INTEGER NOT NULL,
			max_messages INTEGER NOT NULL,
			messages INTEGER NOT NULL,
			children INTEGER NOT NULL,
			depth INTEGER NOT NULL,
			want_result INTEGER NOT NULL,
			keep_on_exit INTEGER NOT NULL,
			created_at INTEGER NOT NULL,
			started_at INTEGER NOT NULL,
			ended_at INTEGER NOT NULL,
			expires_at INTEGER NOT NULL,
			exit_known INTEGER NOT NULL,
			exit_code INTEGER NOT NULL,
			result_message TEXT NOT NULL
		) STRICT`,
		`CREATE INDEX spawns_parent ON spawns (parent_id)`,
		`CREATE INDEX spawns_peer ON spawns (peer_id)`,
		`CREATE INDEX spawns_running ON spawns (node) WHERE ended_at = 0`,
		`CREATE INDEX spawns_ended ON spawns (ended_at) WHERE ended_at > 0`,
	}
}
