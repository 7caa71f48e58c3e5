package audit_test

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/doorward/doorward/internal/base/auditlog"
	"github.com/doorward/doorward/internal/trust/audit"
	"github.com/doorward/doorward/internal/trust/principal"
)

func benchRecord() *audit.Record {
	return &audit.Record{
		Kind: audit.Decision, Source: "gate", Session: "5f1c2ab94e3d7708",
		Who: principal.New("uid:1000", principal.Fact{Name: "uid", Value: "1000", Grade: principal.Attested},
			principal.Fact{Name: "exe", Value: "/usr/bin/node", Grade: principal.Observed}),
		Action: "tools/call", Resource: "everything/echo", Decision: audit.Allow, Rule: "default:own-user", Bytes: 128,
	}
}

// cpu reports the processor time of the whole process for each operation, from the
// call on. On a shared machine it is steadier than elapsed time.
func cpu(b *testing.B) {
	used := func() int64 {
		var u syscall.Rusage
		if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
			b.Fatal(err)
		}
		return u.Utime.Nano() + u.Stime.Nano()
	}
	start := used()
	b.Cleanup(func() { b.ReportMetric(float64(used()-start)/float64(b.N), "cpu-ns/op") })
}

func benchLog(b *testing.B, o audit.Options) *audit.Log {
	l, err := audit.Open(b.TempDir(), o)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { l.Close() })
	b.ReportAllocs()
	cpu(b)
	return l
}

// BenchmarkFileWrite is the floor: one write(2) of a line's length, nothing else.
func BenchmarkFileWrite(b *testing.B) {
	f, err := os.OpenFile(filepath.Join(b.TempDir(), "f"), os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o600)
	if err != nil {
		b.Fatal(err)
	}
	defer f.Close()
	line := make([]byte, 580)
	b.ReportAllocs()
	cpu(b)
	for b.Loop() {
		if _, err := f.Write(line); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkAppend(b *testing.B) {
	l, r := benchLog(b, audit.Options{}), benchRecord()
	for b.Loop() {
		if _, err := l.Append(r); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkLater(b *testing.B) {
	l, r := benchLog(b, audit.Options{}), benchRecord()
	for b.Loop() {
		l.Later(r)
	}
}

// BenchmarkAct is what one call costs: its decision and its outcome.
func BenchmarkAct(b *testing.B) {
	l, r := benchLog(b, audit.Options{}), benchRecord()
	out := *r
	out.Kind, out.Decision, out.Rule, out.Result = audit.Outcome, "", "", "ok"
	for b.Loop() {
		seq, err := l.Append(r)
		if err != nil {
			b.Fatal(err)
		}
		out.Ref = seq
		l.Later(&out)
	}
}

// BenchmarkActOfAProgram is BenchmarkAct with as many facts as a local program has.
func BenchmarkActOfAProgram(b *testing.B) {
	l, r := benchLog(b, audit.Options{}), benchRecord()
	var facts []principal.Fact
	for _, name := range []string{"uid", "gid", "groups", "pid", "exe", "exe_sha256", "parent_exe", "parents", "start", "cgroup", "unit", "label", "instance"} {
		facts = append(facts, principal.Fact{Name: name, Value: strings.Repeat("v", 40), Grade: principal.Attested})
	}
	r.Who = principal.New("uid:1000", facts...)
	for b.Loop() {
		seq, err := l.Append(r)
		if err != nil {
			b.Fatal(err)
		}
		l.Later(&audit.Record{Kind: audit.Outcome, Source: "gate", Who: r.Who, Session: r.Session, Action: r.Action, Resource: r.Resource, Ref: seq, Result: "ok"})
	}
}

func BenchmarkAppendParallel(b *testing.B) {
	l, r := benchLog(b, audit.Options{}), benchRecord()
	b.SetParallelism(8)
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			if _, err := l.Append(r); err != nil {
				b.Error(err)
				return
			}
		}
	})
}

func BenchmarkAppendAlways(b *testing.B) {
	l, r := benchLog(b, audit.Options{Always: true}), benchRecord()
	for b.Loop() {
		if _, err := l.Append(r); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkAppendAlwaysParallel(b *testing.B) {
	l, r := benchLog(b, audit.Options{Always: true}), benchRecord()
	b.SetParallelism(32)
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			if _, err := l.Append(r); err != nil {
				b.Error(err)
				return
			}
		}
	})
}

// bigLog is a closed log of records records in segments of 4 MiB.
func bigLog(b *testing.B, key *audit.Key, records int) string {
	dir := b.TempDir()
	l, err := audit.Open(dir, audit.Options{Key: key, SegmentBytes: 4 << 20})
	if err != nil {
		b.Fatal(err)
	}
	for r := benchRecord(); records > 0; records-- {
		l.Later(r)
	}
	if err := l.Close(); err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	return dir
}

// BenchmarkVerify is for a log of 50,000 records.
func BenchmarkVerify(b *testing.B) {
	const records = 50_000
	key := newKey(b)
	dir := bigLog(b, key, records)
	cpu(b)
	for b.Loop() {
		if r, err := auditlog.Verify(dir, key.Verifier); err != nil || !r.OK {
			b.Fatalf("%+v %v", r, err)
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/records, "ns/record")
}

// BenchmarkOpen is for opening and closing a log of 50,000 records; it should
// not depend on that number.
func BenchmarkOpen(b *testing.B) {
	key := newKey(b)
	dir := bigLog(b, key, 50_000)
	for b.Loop() {
		l, err := audit.Open(dir, audit.Options{Key: key})
		if err != nil {
			b.Fatal(err)
		}
		if err := l.Close(); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkTail(b *testing.B) {
	dir := bigLog(b, newKey(b), 50_000)
	for b.Loop() {
		if lines, err := auditlog.Tail(dir, 100); err != nil || len(lines) != 100 {
			b.Fatal(len(lines), err)
		}
	}
}
