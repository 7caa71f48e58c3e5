package console

import (
	"fmt"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/doorward/doorward/internal/upstream/pin"
)

// TestWhatIsCutHasItsSize: where the page Decisions cuts a text, it says how long the whole text is,
// and where it does not, it says nothing of a size.
func TestWhatIsCutHasItsSize(t *testing.T) {
	t.Parallel()
	v, err := newViews(time.Now)
	if err != nil {
		t.Fatal(err)
	}
	shown := func(d decisionsData) string {
		w := httptest.NewRecorder()
		v.write(w, 200, "decisions", "live", page{Data: d})
		return w.Body.String()
	}
	for _, size := range []int{100, maxText, maxBrief, maxPage, 300 << 10} {
		long := strings.Repeat("x", size)
		whole := fmt.Sprintf("(%.1f KiB in all)", float64(size)/(1<<10))
		for field, h := range map[string]Held{
			"tool": {N: 1, Tool: long}, "args": {N: 1, Args: long}, "rest": {N: 1, Rest: long},
			"client": {N: 1, Client: long}, "principal": {N: 1, Principal: long}, "rule": {N: 1, Rule: long}, "reason": {N: 1, Reason: long}, "note": {N: 1, Notes: []string{long}},
		} {
			d := decisionsData{}
			d.show([]Held{h})
			text := shown(d)
			if cut, said := !strings.Contains(text, long), strings.Contains(text, whole); cut != said {
				t.Errorf("%s of %d bytes: cut %v, its size %v", field, size, cut, said)
			}
			if h.Cut() != strings.Contains(text, fmt.Sprintf("Too much to show here (%.1f KiB)", float64(size)/(1<<10))) {
				t.Errorf("%s of %d bytes: the size beside the form", field, size)
			}
		}
		changed, _ := changeOf("s", pin.Withheld{Item: "tool a", Digest: "d", Reason: pin.Changed, After: []byte(`{"description":"` + long + `"}`)}, mostBytes)
		if text := shown(decisionsData{Changes: []definitionChange{changed}}); changed.Cut != strings.Contains(text, "Too much to show here (") || changed.Cut && changed.Bytes < int64(size) {
			t.Errorf("a definition of %d bytes: cut %v, %d bytes", size, changed.Cut, changed.Bytes)
		}
	}
}

// TestMessagesWithoutANumberEndTheList: however many messages have no number, no link leads back to
// a page before, and the page says how many are not shown.
func TestMessagesWithoutANumberEndTheList(t *testing.T) {
	t.Parallel()
	v, err := newViews(time.Now)
	if err != nil {
		t.Fatal(err)
	}
	for numbered := range 3 {
		all := make([]Held, numbered+mostHeld+7)
		for i := range numbered {
			all[i].N = uint64(i) + 1
		}
		var d decisionsData
		d.show(all)
		w := httptest.NewRecorder()
		v.write(w, 200, "decisions", "live", page{Data: d})
		if text := w.Body.String(); strings.Contains(text, "after=") || !strings.Contains(text, fmt.Sprintf("And %d more without a number", numbered+7)) {
			t.Errorf("%d with a number: %s", numbered, text[strings.Index(text, "And "):])
		}
	}
}
