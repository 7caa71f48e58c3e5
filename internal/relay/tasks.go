package relay

import (
	"strings"

	"github.com/doorward/doorward/internal/base/rawjson"
	"github.com/doorward/doorward/internal/downstream/front"
	"github.com/doorward/doorward/internal/relay/failure"
	"github.com/doorward/doorward/internal/trust/wire"
)

// isTask lists the methods that name a task (SEP-2663).
func isTask(method string) bool {
	switch method {
	case "tasks/get", "tasks/update", "tasks/cancel":
		return true
	}
	return false
}

// openTask replaces a sealed task id in the params by the server's own. A server
// sees one caller and cannot tell whose a task is, so the client holds a sealed
// id.
func (tr *translation) openTask(x *front.Exchange, l *link, params []byte) ([]byte, error) {
	inner, err := tr.seal.OpenTask(wire.Get(params, "taskId"), x.Who, l.b.Name)
	if err != nil {
		return nil, failure.Invalid{E: failure.NoTask}
	}
	return rawjson.Set(params, rawjson.Edit{Key: "taskId", Value: inner}), nil
}

// sealTask protects a task's id from other principals: it seals a new id, and
// keeps the client's own words where the client named the task.
func (tr *translation) sealTask(x *front.Exchange, l *link, t target, result []byte) []byte {
	id := wire.Get(result, "taskId")
	if id == nil {
		return result
	}
	sealed := wire.Get(t.Params(), "taskId")
	if !isTask(t.Method()) {
		if kind, _ := wire.GetString(result, "resultType"); kind != "task" {
			return result
		}
		var err error
		if sealed, err = tr.seal.SealTask(id, x.Who, l.b.Name); err != nil {
			tr.log.Error("sealing a task's id", "err", err)
		}
	}
	return rawjson.Set(result, rawjson.Edit{Key: "taskId", Value: sealed})
}

// otherTasks reports a request about a task between two eras. Each has a kind of task of
// its own: one with states and methods that the other has no words for.
func otherTasks(x *front.Exchange, c *liveConn, method string) bool {
	return x.Era != c.era && strings.HasPrefix(method, "tasks/")
}

// foreignTasks reports tasks of 2025-11-25 on a shared connection. Such tasks
// belong to a connection, so on a shared one they would belong to all its
// principals.
func (l *link) foreignTasks(c *liveConn, method string) bool {
	return c.era == front.Legacy && l.who == nil && strings.HasPrefix(method, "tasks/")
}
