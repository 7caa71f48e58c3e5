package agent

import (
	"fmt"
	"sync/atomic"
	"testing"

	"github.com/doorward/doorward/internal/messaging/mail"
)

// BenchmarkSend measures one send with its checks, its record and its commit.
func BenchmarkSend(b *testing.B) {
	h := build(b, plan{limits: Limits{SendsPerMinute: 1 << 30, Burst: 1 << 30}, mail: mail.Limits{MailboxMessages: 1 << 30, MailboxBytes: 1 << 40, SenderMessages: 1 << 30}})
	var n atomic.Int64
	b.SetParallelism(8)
	b.RunParallel(func(p *testing.PB) {
		i := n.Add(1)
		name := fmt.Sprint("p", i)
		c := h.legacy(name).registered(name)
		c.quick = true
		for k := 0; p.Next(); k++ {
			if r := c.call("send", m{"to": name, "body": fmt.Sprint("message ", k)}); r.failed {
				b.Error(r.text)
			}
		}
	})
}
