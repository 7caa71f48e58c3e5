package mail

import (
	"context"
	"fmt"
	"slices"
	"strings"
)

// formerSession is a row of peer_sessions. former: the session ended, was superseded, or
// released its name.
type formerSession struct {
	principal, session string
	processes          []string
	changed            int64
	former             bool
}

// ForgetSessions deletes former sessions of this node. The newest of each principal are
// kept for Limits.RowKept, so that they are answered Fenced. Of the others, a session is
// kept while it is the only one that names a process that still runs, however old it is:
// without it the process would no longer count as an agent's (Agents). So the table is
// bounded by the sessions that exist, the sessions that are kept, and the processes. gone
// reports that a process instance has ended; nil: no process is known to have ended.
func (b *Book) ForgetSessions(ctx context.Context, gone func(process string) bool) error {
	var all []formerSession
	var kept int64
	err := b.read(ctx, func(j *job) (err error) {
		kept = j.sweeping.kept()
		all, err = j.directory.sessionsHere()
		return err
	})
	if err != nil {
		return err
	}
	for batch := range slices.Chunk(upkeep{b}.superfluous(all, kept, gone), sweepBatch) {
		err := b.write(ctx, func(j *job) error {
			n, err := j.directory.forgetSessions(batch)
			switch {
			case err != nil:
				return err
			case n == 0:
				return errNothing
			}
			return noted(j, b.o.Upkeep, &Upkeep{What: UpkeepForgotten, Rows: n})
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// sessionsHere reads the sessions of this node: present ones first, then the newest.
func (j directory) sessionsHere() ([]formerSession, error) {
	var all []formerSession
	err := j.Each(func(scan func(...any) error) error {
		var s formerSession
		var processes string
		err := scan(&s.principal, &s.session, &processes, &s.changed, &s.former)
		s.processes = strings.Fields(processes)
		all = append(all, s)
		return err
	}, `SELECT principal, session, processes, changed_at, CASE WHEN superseded = 1 OR peer_id = '' THEN 1 ELSE 0 END AS former
		FROM peer_sessions WHERE node = ?1 ORDER BY former, changed_at DESC, session`, j.b.o.Node)
	return all, err
}

// superfluous returns the sessions of all that can be forgotten. since is the time in
// milliseconds from which on former sessions are kept although their processes
// have ended.
func (u upkeep) superfluous(all []formerSession, since int64, gone func(process string) bool) []formerSession {
	kept := make(map[string]int)     // former sessions, by principal
	covered := make(map[string]bool) // processes that a kept session names
	var out []formerSession
	for _, s := range all {
		needed := !s.former || s.changed > since && kept[s.principal] < u.b.o.Limits.FormerSessions
		for _, p := range s.processes {
			needed = needed || !covered[p] && (gone == nil || !gone(p))
		}
		if !needed {
			out = append(out, s)
			continue
		}
		if s.former {
			kept[s.principal]++
		}
		for _, p := range s.processes {
			covered[p] = true
		}
	}
	return out
}

// forgetSessions deletes the sessions of batch that have not changed since they were
// read.
func (j directory) forgetSessions(batch []formerSession) (int64, error) {
	slices.SortFunc(batch, func(a, b formerSession) int { return strings.Compare(a.principal+a.session, b.principal+b.session) })
	var all int64
	for _, s := range batch {
		n, err := j.Exec(`DELETE FROM peer_sessions WHERE principal = ?1 AND session = ?2 AND changed_at = ?3 AND (superseded = 1 OR peer_id = '')`,
			s.principal, s.session, s.changed)
		if err != nil {
			return all, fmt.Errorf("forgetting a session: %w", err)
		}
		all += n
	}
	return all, nil
}
