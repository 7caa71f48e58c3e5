package relay

import (
	"crypto/sha256"
	"slices"
	"sync"

	"github.com/doorward/doorward/internal/base/rawjson"
	"github.com/doorward/doorward/internal/trust/principal"
	"github.com/doorward/doorward/internal/trust/wire"
)

// taskOwners holds whose the tasks of 2025-11-25 at a server over the network are. Such a task
// belongs to the authorization context of its requestor and outlives the session (2025-11-25 Tasks,
// "Task Isolation and Access Control"). The server sees one context, Doorward's, and would answer
// each principal about the tasks of all.
type taskOwners struct {
	at    string // address of the server: an id of one server is no id of another
	mu    sync.Mutex
	owner map[taskKey]string
	of    map[string][]taskKey // by the name of the principal, the newest last
}

type taskKey = [sha256.Size]byte

// ownTask is a task of 2025-11-25 that a session's call made, in the form kept for the next run of the daemon.
type ownTask struct {
	Server string `json:"server"`
	Key    []byte `json:"key"` // a taskKey
}

const (
	tasksKept  = 1024    // known tasks of one principal; the oldest are forgotten
	tasksKnown = 1 << 16 // of all; then half of those of the principal with the most are forgotten
)

// keyOf returns the key of a task's id, or that of no task if raw is not a string.
func (o *taskOwners) keyOf(raw []byte) taskKey {
	id, ok := wire.Text(raw)
	if !ok {
		return taskKey{}
	}
	return sha256.Sum256([]byte(o.at + "\x00" + id))
}

// add makes a principal the owner of a task. An id that a server uses again belongs to the
// principal that got it last. A task that is not fresh, of an earlier run, takes no id from its owner.
func (o *taskOwners) add(name string, key taskKey, fresh bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if was, known := o.owner[key]; known {
		if was == name || !fresh {
			return
		}
		o.drop(was, slices.Index(o.of[was], key), 1)
	}
	if o.of == nil {
		o.of, o.owner = make(map[string][]taskKey), make(map[taskKey]string)
	}
	o.owner[key], o.of[name] = name, append(o.of[name], key)
	if len(o.of[name]) > tasksKept {
		o.drop(name, 0, 1)
	}
	if len(o.owner) > tasksKnown {
		most := o.greediest()
		o.drop(most, 0, (len(o.of[most])+1)/2)
	}
}

// restore makes a principal the owner of tasks that a session made earlier at the server.
func (o *taskOwners) restore(name, server string, tasks []ownTask) {
	for _, task := range tasks {
		if task.Server == server && len(task.Key) == len(taskKey{}) {
			o.add(name, taskKey(task.Key), false)
		}
	}
}

// greediest returns the principal with the most tasks. The caller holds mu.
func (o *taskOwners) greediest() (most string) {
	for name, tasks := range o.of {
		if len(tasks) > len(o.of[most]) {
			most = name
		}
	}
	return most
}

// drop forgets n tasks of a principal. The caller holds mu.
func (o *taskOwners) drop(name string, from, n int) {
	for _, key := range o.of[name][from : from+n] {
		delete(o.owner, key)
	}
	if o.of[name] = slices.Delete(o.of[name], from, from+n); len(o.of[name]) == 0 {
		delete(o.of, name)
	}
}

func (o *taskOwners) has(who *principal.Principal, raw []byte) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	name, known := o.owner[o.keyOf(raw)]
	return known && name == who.Name()
}

// made notes the task that a result made for a caller. ok is false if there is none.
func (o *taskOwners) made(who *principal.Principal, result []byte) (key taskKey, ok bool) {
	key = o.keyOf(rawjson.GetPath(result, "task", "taskId"))
	if key == (taskKey{}) {
		return key, false
	}
	o.add(who.Name(), key, true)
	return key, true
}

// own removes the tasks of others from a list.
func (o *taskOwners) own(who *principal.Principal, method string, result []byte) []byte {
	if method != "tasks/list" {
		return result
	}
	own := []byte{'['}
	for task := range rawjson.Elements(rawjson.Get(result, "tasks")) {
		if o.has(who, rawjson.Get(task, "taskId")) {
			own = append(rawjson.AppendComma(own), task...)
		}
	}
	return rawjson.Set(result, rawjson.Edit{Key: "tasks", Value: append(own, ']')})
}
