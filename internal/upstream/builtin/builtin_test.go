package builtin_test

import (
	"context"
	"errors"
	"maps"
	"sync"
	"testing"

	"github.com/doorward/doorward/internal/upstream"
	"github.com/doorward/doorward/internal/upstream/builtin"
)

func TestHello(t *testing.T) {
	t.Parallel()
	a := builtin.About{Name: "doorward-x", Title: "Doorward \"x\"", Version: "1", Capabilities: `{"tools":{}}`, TTL: "60000"}
	told := a
	told.Instructions = "Do\nthis."
	for _, tt := range []struct {
		name   string
		a      builtin.About
		modern bool
		want   string
	}{
		{"legacy", a, false, `{"capabilities":{"tools":{}},"protocolVersion":"2025-11-25",` +
			`"serverInfo":{"name":"doorward-x","title":"Doorward \"x\"","version":"1"}}`},
		{"legacy, with instructions", told, false, `{"capabilities":{"tools":{}},"instructions":"Do\nthis.","protocolVersion":"2025-11-25",` +
			`"serverInfo":{"name":"doorward-x","title":"Doorward \"x\"","version":"1"}}`},
		{"modern", a, true, `{"capabilities":{"tools":{}},"supportedVersions":["2026-07-28"],` +
			`"_meta":{"io.modelcontextprotocol/serverInfo":{"name":"doorward-x","title":"Doorward \"x\"","version":"1"}},` +
			`"resultType":"complete","ttlMs":60000,"cacheScope":"private"}`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			if got := string(tt.a.Hello(tt.modern)); got != tt.want {
				t.Errorf("got  %s\nwant %s", got, tt.want)
			}
		})
	}
}

func TestListTellsModernClientsHowLongItIsGood(t *testing.T) {
	t.Parallel()
	if got := string(builtin.List(false, "tools", []byte("[1]"), "5").Result); got != `{"tools":[1]}` {
		t.Error(got)
	}
	want := `{"tools":[1],"resultType":"complete","ttlMs":5,"cacheScope":"private"}`
	if got := string(builtin.List(true, "tools", []byte("[1]"), "5").Result); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}

func TestLifeEndsWithTheServerOrByItself(t *testing.T) {
	t.Parallel()
	server, stop := context.WithCancel(t.Context())
	defer stop()
	one, two := builtin.NewLife(server), builtin.NewLife(server)
	ctx, cancel := one.With(t.Context())
	defer cancel()
	one.End()
	<-one.Done()
	<-ctx.Done()
	if !errors.Is(one.Err(), upstream.ErrLost) || two.Err() != nil {
		t.Errorf("ended: %v; the other: %v", one.Err(), two.Err())
	}
	stop()
	<-two.Done()
	if !errors.Is(two.Err(), upstream.ErrLost) {
		t.Errorf("after the server's end: %v", two.Err())
	}
}

func TestTally(t *testing.T) {
	t.Parallel()
	var tally builtin.Tally
	if all := tally.All(); all == nil || len(all) != 0 {
		t.Errorf("nothing counted: %v", all)
	}
	var wg sync.WaitGroup
	for range 50 {
		wg.Go(func() { tally.Add("a"); tally.Add("b"); tally.Add("a") })
	}
	wg.Wait()
	tally.All()["a"] = 7 // a copy
	if want := map[string]uint64{"a": 100, "b": 50}; !maps.Equal(tally.All(), want) {
		t.Errorf("got %v, want %v", tally.All(), want)
	}
}
