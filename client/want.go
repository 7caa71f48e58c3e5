package client

import (
	"context"
	"errors"
	"slices"

	"github.com/doorward/doorward/internal/base/rawjson"
)

// codeDenied is the JSON-RPC code of a denial.
const codeDenied = 1403

// help reports whether to repeat a request that failed with err. If the request was
// refused because guidance is missing, and there was no token, help gets one.
func (g *guide) help(ctx context.Context, err error) bool {
	var rpc *RPCError
	if g == nil || g.o.Ask || !errors.As(err, &rpc) || rpc.Code != codeDenied {
		return false
	}
	reason, _ := rawjson.GetString(rpc.Data, "reason")
	if !slices.Contains([]string{"no_token", "expired", "store_unreachable", "not_permitted"}, reason) {
		return false
	}
	g.mu.Lock()
	had := g.variable != "" || g.held.token != ""
	g.wanted = true
	g.mu.Unlock()
	if had {
		return false
	}
	token, err := g.token(ctx)
	return err == nil && token != ""
}
