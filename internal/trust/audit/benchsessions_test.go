package audit

import (
	"crypto/sha256"
	"fmt"
	"os"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
)

// BenchmarkSessions is the calls of so many sessions, with some work around their two records
// and one server that answers all. It reports the writes to the log for each call.
func BenchmarkSessions(b *testing.B) {
	for _, sessions := range []int{1, 8, 64} {
		b.Run(fmt.Sprint(sessions), func(b *testing.B) {
			l, err := Open(b.TempDir(), Options{})
			if err != nil {
				b.Fatal(err)
			}
			defer l.Close()
			server := make(chan chan struct{}, sessions)
			defer close(server)
			go func() {
				for answer := range server {
					sha256.Sum256(make([]byte, 4000))
					answer <- struct{}{}
				}
			}()
			var left atomic.Int64
			left.Store(int64(b.N))
			b.ReportAllocs()
			b.ResetTimer()
			before := writes(b)
			var wg sync.WaitGroup
			for range sessions {
				wg.Go(func() {
					answer := make(chan struct{}, 1)
					for left.Add(-1) >= 0 {
						sha256.Sum256(make([]byte, 16000))
						seq, err := l.Append(act())
						if err != nil {
							b.Error(err)
						}
						server <- answer
						<-answer
						l.Later(&Record{Kind: Outcome, Source: "gate", Action: "tools/call", Ref: seq, Result: "ok"})
						runtime.Gosched() // the next request is read
					}
				})
			}
			wg.Wait()
			b.StopTimer()
			b.ReportMetric(float64(writes(b)-before)/float64(b.N), "writes/op")
		})
	}
}

// writes returns how many times the process has called write.
func writes(b *testing.B) (n int64) {
	text, err := os.ReadFile("/proc/self/io")
	if err != nil {
		b.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(text), "syscw: ")
	if _, err := fmt.Sscan(rest, &n); err != nil {
		b.Fatal(err)
	}
	return n
}
