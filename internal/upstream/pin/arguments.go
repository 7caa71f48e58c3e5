package pin

import (
	"fmt"
	"slices"
	"strings"

	"github.com/doorward/doorward/internal/base/plaintext"
	"github.com/doorward/doorward/internal/base/rawjson"
)

// memberArguments is the member of a command that holds the digests of its arguments.
const memberArguments = "arguments"

// edited is settled once a server is started with other arguments than at its first use:
// definitions that it then offers beside the approved ones are new.
const edited = "arguments edited"

// Edit is a change of a server's arguments by the configuration, in the form that may be
// shown.
type Edit struct {
	Was []string `json:"was"`
	Is  []string `json:"is"`
}

// follow approves a command whose program was approved and whose arguments have changed. The
// arguments come from the configuration, and a user that may write it can start any program
// under another name anyway. The definitions of the server stay as they were approved. A
// change of the program, environment or directory is not followed, and no change is under
// trust: manual. A command whose server has never answered is at its first use. The caller
// holds the record's mu.
func (g *Guard) follow(def []byte) {
	r, now := g.record, digestOf(def)
	have, ok := r.approved[itemCommand]
	if r.fault != nil || !ok {
		return
	}
	if have == now {
		g.tell()
		return
	}
	if g.manual || !g.process.Follow {
		return
	}
	if len(r.settled) == 1 { // only the command: the server has never answered
		delete(r.settled, itemCommand)
		delete(r.approved, itemCommand)
		return
	}
	m := r.manifest()
	before := m.items[itemCommand]
	if before == nil || digestOf(before) != have || string(uncalled(before)) != string(uncalled(def)) {
		return
	}
	if err := r.approve(map[string][]byte{itemCommand: def}, edited); err != nil {
		r.book.o.Log.Error("changed arguments cannot be stored, and are withheld", "server", r.server, "err", err)
		return
	}
	r.edit = Edit{Was: m.shown, Is: g.process.Shown}
	r.note(Note{Item: itemCommand, What: "pin.approved", Rule: "mcpServers." + r.server + ".args",
		Reason: fmt.Sprintf("the configuration changed the arguments; before sha256:%s, after sha256:%s", have, now)})
}

// tell writes to the manifest how the arguments of an approved command may be shown, if an
// older version has not done that. The caller holds mu.
func (g *Guard) tell() {
	r := g.record
	if r.hasShown || g.process.Shown == nil {
		return
	}
	r.hasShown = true
	m := r.manifest()
	if m.shown != nil || m.items[itemCommand] == nil {
		return
	}
	if err := r.approve(map[string][]byte{itemCommand: m.items[itemCommand]}); err != nil {
		r.book.o.Log.Warn("the arguments of a server cannot be stored: a change of them will be shown as digests", "server", r.server, "err", err)
	}
}

// shown returns the arguments of the command in force, in the form that may be shown.
func (b *Book) shown(server string) []string {
	if g := b.guard(server); g != nil && g.process != nil {
		return g.process.Shown
	}
	return nil
}

// uncalled returns a command without its arguments: the program and where it runs.
func uncalled(command []byte) []byte {
	return rawjson.Canonical(rawjson.Set(command, rawjson.Edit{Key: memberArguments}))
}

// Edited returns the change of arguments by the configuration in this run of the daemon,
// until the operator approves an item; nil without one.
func (b *Book) Edited(server string) *Edit {
	r := b.known(server)
	if r == nil {
		return nil
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.edit.Is == nil && r.edit.Was == nil {
		return nil
	}
	edit := r.edit
	return &edit
}

// Change returns the difference between two lists of arguments.
func (e *Edit) Change() Change {
	c := Change{Path: memberArguments, Before: commandLine(e.Was), After: commandLine(e.Is)}
	if c.Before == c.After {
		c.Before += " (the part that is not shown differs)"
	}
	return c
}

func commandLine(args []string) string {
	if args == nil {
		return "(not known)"
	}
	words := make([]string, len(args))
	for i, a := range args {
		if words[i] = a; a == "" || strings.ContainsAny(a, " '\"\\") || plaintext.Quote(a) != `"`+a+`"` {
			words[i] = plaintext.Quote(a)
		}
	}
	return strings.Join(words, " ")
}

// Changes lists the differences between what is withheld and what was approved. The arguments
// of a command are one change, in the form that may be shown.
func (w *Withheld) Changes() []Change {
	all := Diff(w.Before, w.After)
	if w.Item != itemCommand || w.Is == nil && w.Was == nil {
		return all
	}
	ofArguments := func(c Change) bool {
		return c.Path == memberArguments || strings.HasPrefix(c.Path, memberArguments+"[")
	}
	at := slices.IndexFunc(all, ofArguments)
	if at < 0 {
		return all
	}
	edit := &Edit{Was: w.Was, Is: w.Is}
	c := edit.Change()
	if w.Before == nil {
		c.Before = ""
	}
	return slices.Insert(slices.DeleteFunc(all, ofArguments), at, c)
}
