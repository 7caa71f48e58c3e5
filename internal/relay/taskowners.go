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
	mu sync.Mutex
	of map[string][]taskKey // by the name of the principal, the newest last
}

type taskKey = [sha256.Size]byte

// tasksKept is how many tasks of one principal are known; the oldest are forgotten.
const tasksKept = 1024

// keyOf returns the key of a task's id, or that of no task if raw is not a string.
func keyOf(raw []byte) taskKey {
	id, ok := wire.Text(raw)
	if !ok {
		return taskKey{}
	}
	return sha256.Sum256([]byte(id))
}

func (o *taskOwners) add(who *principal.Principal, raw []byte) {
	if o.has(who, raw) {
		return
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.of == nil {
		o.of = make(map[string][]taskKey)
	}
	mine := append(o.of[who.Name()], keyOf(raw))
	o.of[who.Name()] = mine[max(len(mine)-tasksKept, 0):]
}

func (o *taskOwners) has(who *principal.Principal, raw []byte) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	key := keyOf(raw)
	return key != taskKey{} && slices.Contains(o.of[who.Name()], key)
}

// result notes the task that a result made for a caller, and removes the tasks of others from a
// list.
func (o *taskOwners) result(who *principal.Principal, method string, result []byte) []byte {
	if id := rawjson.GetPath(result, "task", "taskId"); id != nil {
		o.add(who, id)
	}
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
