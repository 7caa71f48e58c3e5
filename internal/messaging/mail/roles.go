package mail

// roles groups what a job can do by area. Each role works in the transaction of its job
// and reaches the other roles through it.
type roles struct {
	directory   directory
	registering registering
	releasing   releasing
	sending     sending
	placing     placing
	mailboxes   mailboxes
	receiving   receiving
	holding     holding
	idempotency idempotency
	spawning    spawning
	sweeping    sweeping
	history     history
	repairing   repairing
}

// directory finds peers: by address, by session, and the sender of a request.
type directory struct{ *job }

// registering enters peers, their names, sessions and leases, and decides takeovers.
type registering struct{ *job }

// releasing ends peers: it closes their mailboxes and frees their names.
type releasing struct{ *job }

// sending composes a message, and acknowledges the message that it answers.
type sending struct{ *job }

// placing puts a message into the mailboxes of its recipients, within their
// limits.
type placing struct{ *job }

// mailboxes keeps the counters and deliveries of each recipient, and ends deliveries.
type mailboxes struct{ *job }

// receiving gives messages to their recipients, and applies receipts.
type receiving struct{ *job }

// holding lets held messages in, and sends failed messages again.
type holding struct{ *job }

// idempotency recognises a repeated request by its key.
type idempotency struct{ *job }

// spawning keeps the spawns: their bounds, reports and ends.
type spawning struct{ *job }

// sweeping ends due leases, holds and messages, and deletes old rows.
type sweeping struct{ *job }

// history reads deliveries and their changes, and changes nothing.
type history struct{ *job }

// repairing corrects the problems that Fsck found.
type repairing struct{ *job }

func rolesOf(j *job) roles {
	return roles{
		directory:   directory{j},
		registering: registering{j},
		releasing:   releasing{j},
		sending:     sending{j},
		placing:     placing{j},
		mailboxes:   mailboxes{j},
		receiving:   receiving{j},
		holding:     holding{j},
		idempotency: idempotency{j},
		spawning:    spawning{j},
		sweeping:    sweeping{j},
		history:     history{j},
		repairing:   repairing{j},
	}
}
