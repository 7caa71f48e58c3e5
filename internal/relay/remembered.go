package relay

import (
	"bytes"
	"encoding/json"
	"iter"
	"maps"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/doorward/doorward/internal/base/rawjson"
	"github.com/doorward/doorward/internal/relay/era"
)

// remembered is what a session has set up with its servers, in the form kept for the next run
// of the daemon.
type remembered struct {
	Level     json.RawMessage     `json:"level,omitempty"`     // params of the last logging/setLevel
	Resources map[string][]string `json:"resources,omitempty"` // subscribed to, by server
	Tasks     []ownTask           `json:"tasks,omitempty"`
}

// sessionTasks is how many tasks of one session are kept; the oldest are forgotten.
const sessionTasks = 256

// memory is what a session has set up with its servers, for links and connections that it gets
// later. It keeps a resource until a link takes it up, policy refuses it or the client
// unsubscribes, so that none is lost between two links. The lock of usage guards it. Each change
// by the client is followed by note.
type memory struct {
	usage  *usage
	table  *atomic.Pointer[table]
	noting sync.Mutex                 // held while the state is read and stored, so that the latest is stored last
	level  []byte                     // params of the last logging/setLevel
	kept   map[string]map[string]bool // by server: the resources it was subscribed to when it gave up its links
	tasks  []ownTask                  // that its calls made, the newest last
	rested map[string]bool            // servers that it gave up, and uses again when its client listens
}

// recall restores in a new binding what its session had set up in an earlier run.
func (m *memory) recall() {
	var was remembered
	if json.Unmarshal(m.usage.session.Remembered(), &was) != nil {
		return
	}
	m.level, m.tasks = was.Level, was.Tasks
	for server, uris := range was.Resources {
		m.keep(server, slices.Values(uris))
	}
}

// note stores what the session has set up so far. A subscription at a built-in server belongs
// to more than the session and is not set up again, so a session that has one ends with the
// daemon.
func (m *memory) note() {
	m.noting.Lock()
	defer m.noting.Unlock()
	builtin := false
	m.usage.mu.Lock()
	now := remembered{Level: m.level, Resources: make(map[string][]string), Tasks: slices.Clone(m.tasks)}
	for server, uris := range m.kept {
		b := m.table.Load().byName[server]
		builtin = builtin || b != nil && b.Builtin != nil
		now.Resources[server] = slices.Sorted(maps.Keys(uris))
	}
	for _, h := range m.usage.links {
		b := h.link.b
		if uris := h.subscribed(); len(uris) > 0 {
			now.Resources[b.Name] = append(now.Resources[b.Name], slices.Sorted(maps.Keys(uris))...)
			builtin = builtin || b.Builtin != nil
		}
	}
	m.usage.mu.Unlock()
	if builtin {
		m.usage.session.Remember(nil)
		return
	}
	if text, err := json.Marshal(now); err == nil {
		m.usage.session.Remember(text)
	}
}

// setLevel keeps the level of a logging/setLevel for servers that are connected later. It
// drops the other params, because they were only checked for this request.
func (m *memory) setLevel(params []byte) {
	m.usage.mu.Lock()
	m.level = rawjson.Set(nil, rawjson.Edit{Key: "level", Value: rawjson.Get(params, "level")})
	m.usage.mu.Unlock()
	m.note()
}

// levelOf returns the log level that the session has set, as raw JSON; nil: none.
func (m *memory) levelOf() []byte {
	m.usage.mu.Lock()
	defer m.usage.mu.Unlock()
	return rawjson.Get(m.level, "level")
}

// hearsLog reports whether a message is at or above the level that the session has set.
// Without a level it hears every message.
func (m *memory) hearsLog(message []byte) bool {
	least := era.Severity(m.levelOf())
	return least < 0 || era.Severity(rawjson.Get(message, "level")) >= least
}

// dropTask forgets a task.
func (m *memory) dropTask(server string, key taskKey) {
	m.usage.mu.Lock()
	had := len(m.tasks)
	m.tasks = slices.DeleteFunc(m.tasks, func(t ownTask) bool { return t.Server == server && bytes.Equal(t.Key, key[:]) })
	dropped := len(m.tasks) < had
	m.usage.mu.Unlock()
	if dropped {
		m.note()
	}
}

// keep notes resources for the next link to their server. The caller holds usage.mu, or no other
// goroutine has the binding.
func (m *memory) keep(server string, uris iter.Seq[string]) {
	if m.kept[server] == nil {
		m.kept[server] = make(map[string]bool)
	}
	for uri := range uris {
		m.kept[server][uri] = true
	}
}

// forget drops a kept resource. The caller holds usage.mu.
func (m *memory) forget(server, uri string) {
	delete(m.kept[server], uri)
	if len(m.kept[server]) == 0 {
		delete(m.kept, server)
	}
}

// subscriptions returns how many resources the session is subscribed to, at all servers. The
// caller holds usage.mu.
func (m *memory) subscriptions() (n int) {
	for _, uris := range m.kept {
		n += len(uris)
	}
	for _, h := range m.usage.links {
		n += len(h.subscribed())
	}
	return n
}

// awaited returns the servers whose changes the session misses: those with kept resources,
// and those whose links it gave up.
func (m *memory) awaited() []string {
	m.usage.mu.Lock()
	defer m.usage.mu.Unlock()
	all := maps.Clone(m.rested)
	for server := range m.kept {
		all[server] = true
	}
	return slices.Sorted(maps.Keys(all))
}

// awaitedOf returns the resources that are kept for the next link to a server.
func (m *memory) awaitedOf(b *backend) []string {
	m.usage.mu.Lock()
	defer m.usage.mu.Unlock()
	return slices.Sorted(maps.Keys(m.kept[b.Name]))
}
