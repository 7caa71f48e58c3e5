package spawn

import (
	"errors"
	"io/fs"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/doorward/doorward/internal/messaging/mail"
	"github.com/doorward/doorward/internal/trust/principal"
	"github.com/doorward/doorward/internal/upstream/process"
)

const codeRights = mail.RightsExceedParent

// Check checks a request against its launcher, before a spawn is entered in the book. The
// error is a *mail.Error: SPAWN_DISABLED, LAUNCHER_UNKNOWN, LAUNCHER_CHANGED,
// RIGHTS_EXCEED_PARENT, CWD_OUTSIDE_ROOTS, BUDGET or INVALID_ARGUMENT. Start repeats the
// checks of the launcher, the rights and the directory, because these can change in
// between.
func (m *Manager) Check(parent *principal.Principal, r Request) (mail.SpawnDraft, error) {
	l, rights, err := m.permitted(parent, &r)
	if err != nil {
		return mail.SpawnDraft{}, err
	}
	folder, _, err := m.folder(l, parent, r.Cwd)
	if err != nil {
		return mail.SpawnDraft{}, err
	}
	folder.Close()
	if _, err := m.o.Runner.Check(l.Sandbox); err != nil {
		return mail.SpawnDraft{}, &mail.Error{Code: mail.SpawnDisabled, Err: err}
	}
	d := mail.SpawnDraft{Launcher: l.Name, Name: r.Name, Rights: rights, MaxSeconds: l.Seconds, MaxChildren: l.Children, MaxMessages: l.Messages,
		WantResult: r.Result, KeepOnExit: r.KeepOnExit, Key: r.Key, Fingerprint: r.Fingerprint}
	if err := m.budget(l, parent, &r, &d); err != nil {
		return mail.SpawnDraft{}, err
	}
	return d, nil
}

// permitted makes the checks that do not read the directory: launcher, model, approval
// and rights.
func (m *Manager) permitted(parent *principal.Principal, r *Request) (*Launcher, []string, error) {
	m.mu.Lock()
	l, any := m.launchers[r.Launcher], len(m.launchers) > 0
	m.mu.Unlock()
	switch {
	case !any:
		return nil, nil, refused(mail.SpawnDisabled, "no launcher is configured")
	case !process.CanContain:
		return nil, nil, refused(mail.SpawnDisabled, "agents can be started only on Linux")
	case m.o.Socket == "":
		return nil, nil, refused(mail.SpawnDisabled, "there is no Unix socket through which an agent could connect")
	case l == nil:
		return nil, nil, refused(mail.LauncherUnknown, "no launcher %.80q is configured", r.Launcher)
	case l.Refused != "":
		return nil, nil, refused(mail.LauncherUnknown, "launcher %s cannot be used: %s", l.Name, l.Refused)
	case !parent.Valid():
		return nil, nil, refused(mail.SpawnDisabled, "the request has no caller")
	case r.Model != "" && !slices.Contains(l.Models, r.Model):
		return nil, nil, refused(mail.InvalidArgument, "launcher %s does not have the model %.80q; it has: %s", l.Name, r.Model, strings.Join(l.Models, ", "))
	}
	if err := l.approved(); err != nil {
		return nil, nil, err
	}
	rights, err := r.rights(l, parent)
	return l, rights, err
}

// approved returns a refusal unless the program can be executed and is the approved one. A program that cannot
// be read has nothing that the operator could approve.
func (l *Launcher) approved() error {
	if _, err := process.Resolve(l.Path, ""); err != nil {
		return refused(mail.LauncherUnknown, "launcher %s cannot be used: %w", l.Name, err)
	}
	if l.Approved == nil {
		return nil
	}
	err := l.Approved()
	var unread *fs.PathError
	switch {
	case err == nil:
		return nil
	case errors.As(err, &unread):
		return refused(mail.LauncherUnknown, "launcher %s cannot be used: %w", l.Name, err)
	}
	return refused(mail.LauncherChanged, "launcher %s: %w", l.Name, err)
}

// folder opens the directory in which an agent starts. It lies inside of the launcher's
// roots, and inside of the parent's directory if the parent is a started agent itself.
func (m *Manager) folder(l *Launcher, parent *principal.Principal, cwd string) (*os.File, string, error) {
	roots, start := l.Roots, l.Cwd
	above := m.folderOf(parent)
	if above != "" {
		start = above
	}
	if cwd != "" {
		start = cwd
	}
	folder, real, err := process.OpenFolder(start, roots)
	if err != nil {
		return nil, "", &mail.Error{Code: mail.CwdOutsideRoots, Err: err}
	}
	if above != "" && real != above && !strings.HasPrefix(real, strings.TrimSuffix(above, "/")+"/") {
		folder.Close()
		return nil, "", refused(mail.CwdOutsideRoots, "%s is outside of the caller's directory", start)
	}
	return folder, real, nil
}

// folderOf returns the directory of a parent that is a running agent of this manager;
// empty for every other parent.
func (m *Manager) folderOf(parent *principal.Principal) string {
	if a := m.agentOf(parent); a != nil {
		return a.dir
	}
	return ""
}

// agentOf returns the running agent whose principal is p; nil: none.
func (m *Manager) agentOf(p *principal.Principal) *agent {
	kind, id, err := principal.Parse(p.Name())
	if err != nil || kind != principal.KindSpawn {
		return nil
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.agents[id]
}

// budget sets the requested budget, if the launcher allows it. A parent that is a started
// agent cannot give more time than it has left.
func (m *Manager) budget(l *Launcher, parent *principal.Principal, r *Request, d *mail.SpawnDraft) error {
	for _, b := range []struct {
		what  string
		asked *int
		most  int
		out   *int
	}{
		{"seconds", positive(r.MaxSeconds), l.Seconds, &d.MaxSeconds},
		{"children", r.MaxChildren, l.Children, &d.MaxChildren},
		{"messages", r.MaxMessages, l.Messages, &d.MaxMessages},
	} {
		switch {
		case b.asked == nil:
		case *b.asked > b.most || *b.asked < 0:
			return refused(mail.Budget, "launcher %s allows %d %s, not %d", l.Name, b.most, b.what, *b.asked)
		default:
			*b.out = *b.asked
		}
	}
	if a := m.agentOf(parent); a != nil {
		left := int(time.Until(a.until) / time.Second)
		if left < 1 || r.MaxSeconds > left {
			return refused(mail.Budget, "the caller has %d seconds left", left)
		}
		d.MaxSeconds = min(d.MaxSeconds, left)
	}
	return nil
}

func positive(n int) *int {
	if n == 0 {
		return nil
	}
	return &n
}
