package console

import (
	"fmt"
	"net/http/httptest"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
)

// TestEveryHeldCallIsReached: from the page Decisions links lead to every held call, although each
// of a hundred calls before it fills a page, or is too long for one.
func TestEveryHeldCallIsReached(t *testing.T) {
	t.Parallel()
	var all []Held
	for n := range uint64(100) {
		all = append(all, Held{N: n + 1, Tool: "t", Args: fmt.Sprintf(`{"x":%q}`, strings.Repeat("x", mostBytes-100+2*int(n)))})
	}
	all = append(all, Held{N: 101, Tool: "last", Args: "{}"})
	v, err := newViews(time.Now)
	if err != nil {
		t.Fatal(err)
	}
	next := regexp.MustCompile(`href="/ui/decisions\?after=([0-9]+)"`)
	var reached []string
	for rest := all; len(rest) > 0; {
		var d decisionsData
		d.show(rest)
		w := httptest.NewRecorder()
		v.write(w, 200, "decisions", "live", page{Data: d})
		for _, m := range regexp.MustCompile(`Deny call ([0-9]+)<`).FindAllStringSubmatch(w.Body.String(), -1) {
			reached = append(reached, m[1])
		}
		link := next.FindStringSubmatch(w.Body.String())
		if link == nil {
			break
		}
		after, err := number(link[1])
		if err != nil {
			t.Fatal(err)
		}
		rest = slices.DeleteFunc(slices.Clone(all), func(h Held) bool { return h.N <= after })
	}
	if len(reached) != len(all) || reached[100] != "101" {
		t.Errorf("%d of %d calls are reached: %v", len(reached), len(all), reached)
	}
}
