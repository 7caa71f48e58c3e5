package console

import (
	"context"
	"fmt"
	"net/http/httptest"
	"net/url"
	"testing"

	"github.com/doorward/doorward/internal/daemon/admin"
)

// shown returns the acts that the page Activity lists, or its live part.
func shown(t *testing.T, c *Console, filter url.Values, part bool) string {
	t.Helper()
	r := httptest.NewRequest("GET", Prefix+"activity", nil)
	q := &request{c: c, r: r, in: chosen(filter), ctx: context.Background()}
	if part {
		q.in.Set("part", "1")
		r.Header.Set("HX-Request", "true")
	}
	p, err := c.activity(q)
	if err != nil {
		t.Fatal(err)
	}
	out := ""
	for _, e := range p.Data.(activityData).Entries {
		out += fmt.Sprint(" ", e.Seq)
	}
	return out
}

// TestALivePartShowsWhatItsPageShows: under every filter, however many other records are newer
// than the acts that the filter selects.
func TestALivePartShowsWhatItsPageShows(t *testing.T) {
	t.Parallel()
	log := newActLog(t, newClock())
	log.add(3, "codex", "error")
	log.add(3, "codex", "denied")
	log.add(5_000, "claude", "ok")
	c := &Console{o: Options{AuditDir: log.dir, Status: func() admin.Status { return admin.Status{} }}}
	for _, filter := range []url.Values{{}, {"outcome": {"error"}}, {"outcome": {"denied"}}, {"client": {"codex"}}, {"client": {"codex"}, "outcome": {"error"}}} {
		page := shown(t, c, filter, false)
		if page == "" {
			t.Fatalf("%v: the page shows nothing", filter)
		}
		if live := shown(t, c, filter, true); live != page {
			t.Errorf("%v: the live part shows%s, the page%s", filter, live, page)
		}
	}
}

// BenchmarkLivePart is the time of one live part whose filter selects no act.
func BenchmarkLivePart(b *testing.B) {
	c := &Console{o: Options{AuditDir: logOf(b, 15_000), Status: func() admin.Status { return admin.Status{} }}}
	for b.Loop() {
		q := &request{c: c, r: httptest.NewRequest("GET", Prefix+"activity", nil), in: url.Values{"tool": {"none"}}, ctx: context.Background()}
		if _, err := c.activity(q); err != nil {
			b.Fatal(err)
		}
	}
}
