package authn

import (
	"strings"
	"testing"
	"time"
)

// The operator hears of a problem that it began, and of its end that it is over: the end is no
// error.
func TestTheEndOfAProblemIsNoProblem(t *testing.T) {
	t.Parallel()
	type said struct {
		over bool
		text string
	}
	w := newWorld(t)
	g := newGuarded(t)
	heard := make(chan said, 9)
	g.oauth.issuer.problem = func(text string, over bool) { heard <- said{over, text} }
	token := g.mint(t)
	g.idp.Set("failing")
	g.present(token)
	if got := <-heard; got.over {
		t.Errorf("%+v", got)
	}
	g.idp.Set("good")
	g.later()
	if _, err := g.present(g.mint(t, "exp="+time.Until(g.clock.Now().Add(time.Hour)).String())); err != nil {
		t.Fatal(err)
	}
	if got := <-heard; !got.over || !strings.HasSuffix(got.text, "are available again") {
		t.Errorf("%+v", got)
	}
	w.problem = func(text string, over bool) { heard <- said{over, text} }
	w.ask(enforced(), "Bearer "+fileToken)
	for _, c := range []struct {
		text string
		want said
	}{{"", said{false, ": its tokens are refused"}}, {fileToken, said{true, " was read again"}}} {
		writeToken(t, w.file, c.text)
		w.clock.advance(2 * time.Second)
		w.ask(enforced(), "Bearer "+fileToken)
		if got := <-heard; got.over != c.want.over || !strings.HasSuffix(got.text, c.want.text) {
			t.Errorf("%+v; want %+v", got, c.want)
		}
	}
}
