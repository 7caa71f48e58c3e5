package resolve

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/doorward/doorward/internal/base/rawjson"
	"github.com/doorward/doorward/internal/trust/wire"
)

// hidden are characters that some parsers drop, or at which they end a text.
var hidden = []string{"\x00", "\x00x", "\x01", "\x1f", "\x7f", "\u0085", "\u00ad", "\u200b", "\u2060", "\ufeff", "\u202e", "\U000e0061"}

// respelt calls f with each text that has one of the hidden characters in front of it, inside
// of it or after it.
func respelt(text string, f func(string)) {
	for _, h := range hidden {
		for _, at := range []int{0, len(text) / 2, len(text)} {
			f(text[:at] + h + text[at:])
		}
	}
}

// A method of the protocol with a hidden character is refused, on both routes, whether policy
// would find an object in its params or not.
func TestAMethodWithAHiddenCharacterIsNone(t *testing.T) {
	for _, method := range append(requests, "future/method", "future/things/list") {
		respelt(method, func(spelt string) {
			for route, params := range map[string]string{"text": `{"name":"x"}`, "": `{"name":"text__x"}`} {
				if got, err := Request(route, spelt, wire.IntID(1), []byte(params)); !errors.Is(err, ErrMethod) || got.Method() != "" {
					t.Errorf("%q on %q: %+v, %v", spelt, route, got, err)
				}
			}
		})
	}
}

// The ref of a completion has no second member that some parser takes for the one that was
// decided.
func TestARefHasNoHiddenMember(t *testing.T) {
	for kind, member := range map[string]string{"ref/prompt": "name", "ref/resource": "uri"} {
		for _, key := range []string{"type", "name", "uri"} {
			respelt(key, func(spelt string) {
				params := fmt.Sprintf(`{"ref":{"type":%q,%q:"text__ok",%s:"secret"}}`, kind, member, rawjson.AppendQuote(nil, spelt))
				if got, err := Request("text", "completion/complete", wire.IntID(1), []byte(params)); !errors.Is(err, ErrName) {
					t.Errorf("%s: %+v, %v", params, got, err)
				}
			})
		}
	}
}

// A notification of the protocol in another spelling is refused, on both routes. Doorward itself
// handles the ones that end or answer a call, and a server that takes another spelling for one
// would apply it to the calls of all clients. The protocol's own spelling and one that looks like
// none are as before.
func TestARespeltNotificationIsNone(t *testing.T) {
	t.Parallel()
	refused := func(spelt string) {
		for route, params := range map[string]string{"text": `{"requestId":1}`, "": `{"name":"text__x","requestId":1}`} {
			if got, err := Notice(route, spelt, []byte(params)); !errors.Is(err, ErrMethod) || got.Method() != "" {
				t.Errorf("%q on %q: %+v, %v", spelt, route, got, err)
			}
		}
	}
	for _, method := range notifications {
		respelt(method, refused)
		for _, space := range []string{" ", "\t", "\n", "\u00a0", "\u3000"} {
			refused(method + space)
			refused(space + method)
		}
		for i, c := range method[len("notifications/"):] {
			at := len("notifications/") + i
			for _, other := range []string{strings.ToUpper(string(c)), map[rune]string{'s': "\u017f", 'k': "\u212a"}[c]} {
				if other != "" && other != string(c) {
					refused(method[:at] + other + method[at+1:])
				}
			}
		}
		if got, err := Notice("text", method, nil); err != nil || got.Method() != method {
			t.Errorf("%s: %+v, %v", method, got, err)
		}
	}
	respelt("notifications/future", refused)
	for _, method := range []string{"notifications/future", "notifications/cancelled/more", "notifications/Future thing"} {
		if got, err := Notice("text", method, nil); err != nil || got.Method() != method {
			t.Errorf("%s: %+v, %v", method, got, err)
		}
	}
}
