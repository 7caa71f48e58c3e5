package pin

import (
	"encoding/json"
	"strings"
	"testing"
	"unicode"

	"github.com/doorward/doorward/internal/trust/visible"
)

// TestNothingHiddenInAnOfferIsShown puts every hidden character there is into
// every text of a definition, as itself and as an escape.
func TestNothingHiddenInAnOfferIsShown(t *testing.T) {
	t.Parallel()
	for r := rune(0); r <= unicode.MaxRune; r++ {
		if !visible.Hidden(r) {
			continue
		}
		quoted, err := json.Marshal("x" + string(r) + "y")
		if err != nil {
			t.Fatal(err)
		}
		for _, text := range []string{string(quoted), string(visible.AppendEscape([]byte(`"x`), r)) + `y"`} {
			tool := `{"name":` + text + `,"title":` + text + `,"description":` + text + `,"inputSchema":{"type":"object","title":` + text +
				`,"properties":{"a":{"description":` + text + `,"enum":[` + text + `],"default":` + text + `}}},"annotations":{"title":` + text + `}}`
			s := look(Tools, []byte(tool))
			if s.cleaned != 8 {
				t.Errorf("%U: %d were taken out: %s", r, s.cleaned, s.clean)
			}
			mustBeSeen(t, r, "tool", s.clean)
			key := look(Tools, []byte(`{"name":"a","inputSchema":{"properties":{`+text+`:{}}}}`))
			if key.refusal == "" {
				t.Errorf("%U: a member's name may hold it", r)
			}
			if at := look(Resources, []byte(`{"name":"a","uri":`+text+`}`)); at.refusal == "" {
				t.Errorf("%U: an address may hold it", r)
			}
			greeting, n := CleanText([]byte(`{"instructions":`+text+`,"serverInfo":{"name":`+text+`,"version":`+text+`}}`), 0)
			if n != 3 {
				t.Errorf("%U: %d of a greeting were taken out", r, n)
			}
			mustBeSeen(t, r, "greeting", greeting)
		}
	}
}

func mustBeSeen(t *testing.T, r rune, what string, raw []byte) {
	t.Helper()
	var v any
	if err := json.Unmarshal(raw, &v); err != nil {
		t.Fatalf("%U: %s: %v", r, what, err)
	}
	plain, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	if strings.ContainsFunc(string(plain), visible.Hidden) || strings.Contains(string(plain), `\u`) {
		t.Errorf("%U: %s shows %q", r, what, plain)
	}
}
