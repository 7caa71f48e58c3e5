package mail

// roles are what a job can do, by area. Each role works in the transaction of its
// job and asks the others through it.
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

// registering enters peers, their names, sessions and leases, and settles who
// takes over from whom.
type registering struct{ *job }

// releasing lets peers go: it closes their mailboxes and frees their names.
type releasing struct{ *job }

// sending composes a message and answers what it replies to.
type sending struct{ *job }

// placing puts a message into the mailboxes of its recipients, within their
// limits.
type placing struct{ *job }

// mailboxes keep the counters and deliveries of each recipient, and end them.
type mailboxes struct{ *job }

// receiving gives messages out, and takes their receipts.
type receiving struct{ *job }

// holding lets held messages in, and sends failed ones again.
type holding struct{ *job }

// idempotency recognises a repeated request by its key.
type idempotency struct{ *job }

// spawning keeps the agents that agents start: their bounds and their ends.
type spawning struct{ *job }

// sweeping ends what is due, and forgets what is old.
type sweeping struct{ *job }

// history reads what happened and what there is, without changing it.
type history struct{ *job }

// repairing corrects what fsck has found.
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
