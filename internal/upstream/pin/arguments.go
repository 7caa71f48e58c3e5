package pin

import (
	"fmt"
	"slices"
	"strings"

	"github.com/doorward/doorward/internal/base/plaintext"
	"github.com/doorward/doorward/internal/base/rawjson"
)

// memberArguments is the member of a command that holds its arguments' digests.
const memberArguments = "arguments"

// edited is what is settled once a server is called with other arguments than at its
// first use: what it offers beside what was approved is new.
const edited = "arguments edited"

// Edit is a change of a server's arguments that the configuration made, as it may be
// shown.
type Edit struct {
	Was []string `json:"was"`
	Is  []string `json:"is"`
}

// follow approves the command of a program that was approved and is called with other
// arguments now. They stand in the configuration, and whoever may write that can have
// any program started under another name. What the server offers stays as it was
// approved. Another program, environment or directory is no such change, and neither
// is any under trust: manual. The caller holds the record's mu.
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
	m := r.manifest()
	before := m.items[itemCommand]
	if before == nil || digestOf(before) != have || string(uncalled(before)) != string(uncalled(def)) {
		return
	}
	if err := r.approve(map[string][]byte{itemCommand: def}, edited); err != nil {
		r.book.o.Log.Error("changed arguments cannot be written down, and are withheld", "server", r.server, "err", err)
		return
	}
	r.edit = Edit{Was: m.shown, Is: g.process.Shown}
	r.note(Note{Item: itemCommand, What: "pin.approved", Rule: "mcpServers." + r.server + ".args",
		Reason: fmt.Sprintf("the configuration changed the arguments; before sha256:%s, after sha256:%s", have, now)})
}

// tell writes down how the arguments of an approved command are shown, where an older
// version did not. The caller holds mu.
func (g *Guard) tell() {
	r := g.record
	if r.told || g.process.Shown == nil {
		return
	}
	r.told = true
	m := r.manifest()
	if m.shown != nil || m.items[itemCommand] == nil {
		return
	}
	if err := r.approve(map[string][]byte{itemCommand: m.items[itemCommand]}); err != nil {
		r.book.o.Log.Warn("the arguments of a server cannot be written down: a change of them will show digests", "server", r.server, "err", err)
	}
}

// shown are the arguments of the command in force as they may be shown.
func (b *Book) shown(server string) []string {
	if g := b.guard(server); g != nil && g.process != nil {
		return g.process.Shown
	}
	return nil
}

// uncalled is a command without its arguments: the program and where it runs.
func uncalled(command []byte) []byte {
	return rawjson.Canonical(rawjson.Set(command, rawjson.Edit{Key: memberArguments}))
}

// Edited is the change of arguments that the configuration made in this run of the
// daemon and that the operator has not looked at; nil without one.
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

// Change is the difference between two lists of arguments.
func (e *Edit) Change() Change {
	c := Change{Path: memberArguments, Before: commandLine(e.Was), After: commandLine(e.Is)}
	if c.Before == c.After {
		c.Before += " (what is not shown differs)"
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

// Changes lists where what is withheld differs from what was approved. The arguments
// of a command are one change, readable as far as they may be shown.
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
