package audit_test

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/doorward/doorward/internal/base/auditlog"
	"github.com/doorward/doorward/internal/trust/audit"
)

// back reads the records of a log backwards and returns them in their order.
func back(t *testing.T, dir string) (lines [][]byte) {
	t.Helper()
	for line, err := range auditlog.Backwards(t.Context(), dir) {
		if err != nil {
			t.Fatal(err)
		}
		lines = append(lines, bytes.Clone(line))
	}
	slices.Reverse(lines)
	return lines
}

func TestALogReadBackwardsIsTheSame(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	log, err := audit.Open(dir, audit.Options{SegmentBytes: 600 << 10})
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	if n := len(back(t, dir)); n > 1 {
		t.Errorf("%d records before the first", n)
	}
	for i := range 3000 {
		r := &audit.Record{Kind: audit.Event, Source: "test", Result: strconv.Itoa(i), Reason: strings.Repeat("x", i%500)}
		if _, err := log.Append(r); err != nil {
			t.Fatal(err)
		}
	}
	want, err := auditlog.Tail(dir, 1_000_000)
	if err != nil {
		t.Fatal(err)
	}
	if got := back(t, dir); len(want) < 3000 || !slices.EqualFunc(got, want, bytes.Equal) {
		t.Errorf("%d records, not %d", len(got), len(want))
	}
	segments, _ := filepath.Glob(filepath.Join(dir, "*.jsonl"))
	if len(segments) < 2 {
		t.Errorf("%d segments", len(segments))
	}
	n := 0
	for range auditlog.Backwards(t.Context(), dir) {
		if n++; n == 10 {
			break
		}
	}
	// An unfinished line is no record.
	f, err := os.OpenFile(segments[len(segments)-1], os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := f.WriteString(`{"seq":`); err != nil {
		t.Fatal(err)
	}
	if got := back(t, dir); !slices.EqualFunc(got, want, bytes.Equal) {
		t.Errorf("%d records beside an unfinished one", len(got))
	}
}

func TestReadingBackwardsEndsWithAnError(t *testing.T) {
	t.Parallel()
	over, cancel := context.WithCancel(t.Context())
	cancel()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "00000001.jsonl"), []byte(strings.Repeat("x", 1<<20)+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for want, all := range map[error]func(func([]byte, error) bool){
		os.ErrNotExist:   auditlog.Backwards(t.Context(), filepath.Join(dir, "nowhere")),
		audit.ErrDamaged: auditlog.Backwards(t.Context(), dir),
		context.Canceled: auditlog.Backwards(over, dir),
	} {
		var got []error
		for line, err := range all {
			if line != nil {
				t.Errorf("%v: %d bytes", want, len(line))
			}
			got = append(got, err)
		}
		if len(got) != 1 || !errors.Is(got[0], want) {
			t.Errorf("%v, not %v", got, want)
		}
	}
}
