package mail

import (
	"slices"

	"github.com/doorward/doorward/internal/base/store"
)

// The conditions below stand word for word in the partial indexes and in the
// statements that use them: SQLite takes such an index for no other spelling.
const (
	isOpen  = `state IN ('held', 'queued', 'leased')`
	isOwned = `kind = 'agent' AND session <> ''`
	isFinal = `state IN ('acked', 'rejected', 'expired', 'dead', 'refused', 'purged', 'evicted')`
)

// Migrations are the schema of the book.
//
// Nothing is NULL. Times are milliseconds; 0 is "not yet" or "never". A row of
// mailboxes is the lock of its mailbox: a transaction that changes one of its
// deliveries has updated the row before.
func Migrations() []store.Migration {
	return []store.Migration{
		{Name: "mail-1", SQL: slices.Concat(directoryTables(), peerTables(), boxTables(), messageTables(),
			deliveryTables(), memoryTables(), spawnTables())},
		{Name: "mail-2", SQL: dueIndexes()},
		{Name: "mail-3", SQL: readTables()},
	}
}

// isRead are the deliveries that their recipient can read again.
const isRead = `state IN ('acked', 'rejected')`

// readTables are for what is read again. read_since is when a peer came to its
// present principal: what was said before belongs to another one.
func readTables() []string {
	return []string{
		`CREATE INDEX deliveries_read ON deliveries (peer_id, message_id) WHERE ` + isRead,
		`CREATE INDEX messages_sender ON messages (sender_id, message_id)`,
		`ALTER TABLE peers ADD COLUMN read_since INTEGER NOT NULL DEFAULT 0`,
	}
}

// dueIndexes are for the sweep, which looks at open deliveries before final
// ones, and for the bound on keys.
func dueIndexes() []string {
	return []string{
		`CREATE INDEX deliveries_due_open ON deliveries (due) WHERE ` + isOpen,
		`CREATE INDEX deliveries_due_final ON deliveries (due) WHERE ` + isFinal,
		`DROP INDEX deliveries_due`,
		`CREATE INDEX idempotency_keys_peer ON idempotency_keys (peer_id, expires_at)`,
	}
}

// directoryTables are who has a name: nodes, namespaces, names and sessions.
func directoryTables() []string {
	return []string{
		// One row for each node: the peers that are no agents, and how many
		// spawns run there. slot tells apart what two nodes number by the clock.
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
		// Names, aliases and tombstones: one key keeps all three apart. parent
		// is the peer whose child bears the name.
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
		// Every session that ever registered here. It distinguishes a superseded
		// session from a stranger, and keeps the processes of agents that released
		// their name.
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

// peerTables are the peers.
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

// boxTables are the mailboxes, each the lock of what is in it.
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
		// The notices of a sender: numbered in the order of commit, covered up
		// to one of them.
		`CREATE TABLE outboxes (
			peer_id TEXT PRIMARY KEY,
			last_notice INTEGER NOT NULL,
			covered INTEGER NOT NULL
		) STRICT`,
	}
}

// messageTables are the messages.
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

// deliveryTables are what became of a message for each of its recipients.
func deliveryTables() []string {
	return []string{
		// due is when the sweep has to look at the row again.
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
		`CREATE INDEX deliveries_open ON deliveries (peer_id, seq, due, sender_id) WHERE ` + isOpen,
		`CREATE INDEX deliveries_due ON deliveries (due)`,
		`CREATE INDEX deliveries_notice ON deliveries (sender_id, notice_seq) WHERE notice_seq > 0`,
	}
}

// memoryTables are what is kept of what is over: what was forgotten, keys, and the changes that tail shows.
func memoryTables() []string {
	return []string{
		// Rows removed by retention: their count stays.
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
		// For tail and trace. The number is for one reader's place, and no
		// proof of order between nodes.
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

// spawnTables are the agents that were started.
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
