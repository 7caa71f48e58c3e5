package daemon

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"reflect"
	"slices"
	"sync/atomic"
	"testing"

	"github.com/doorward/doorward/internal/base/secret"
	"github.com/doorward/doorward/internal/daemon/config"
	"github.com/doorward/doorward/internal/upstream"
	"github.com/doorward/doorward/internal/upstream/signin"
)

// TestASectionThatNeedsARestartIsNotHalfApplied: of two configurations that differ in every
// section, a reload names a section or takes it over, and never both. The exceptions are the
// launchers in agent and the proxy in egress.
func TestASectionThatNeedsARestartIsNotHalfApplied(t *testing.T) {
	t.Parallel()
	start, next := new(config.Config), new(config.Config)
	change(reflect.ValueOf(next).Elem())
	got := atStart(start, next)
	named := needRestart(start, next)
	for _, f := range reflect.VisibleFields(reflect.TypeFor[config.Config]()) {
		key := f.Tag.Get("yaml")
		of := func(c *config.Config) any { return reflect.ValueOf(c).Elem().FieldByIndex(f.Index).Interface() }
		want := next
		if slices.Contains(named, key) && key != "agent" && key != "egress" {
			want = start
		}
		if key != "agent" && !reflect.DeepEqual(of(got), of(want)) {
			t.Errorf("%s, named: %v: %v", f.Name, slices.Contains(named, key), of(got))
		}
	}
	if !reflect.DeepEqual(got.Agent.Launchers, next.Agent.Launchers) {
		t.Error("the launchers are those of the start")
	}
	got.Agent.Launchers = start.Agent.Launchers
	if !reflect.DeepEqual(got.Agent, start.Agent) {
		t.Error("another member of agent is taken over")
	}
	for _, key := range []string{"listen", "oauth", "agent", "instructions", "audit", "approvals", "store", "limits", "telemetry", "log"} {
		if !slices.Contains(named, key) {
			t.Errorf("%s is not named", key)
		}
	}
}

// change gives every text, number, list and map below v another value.
func change(v reflect.Value) {
	switch v.Kind() {
	case reflect.String:
		v.SetString("x")
	case reflect.Int, reflect.Int64:
		v.SetInt(7)
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 1, 1))
	case reflect.Map:
		v.Set(reflect.MakeMap(v.Type()))
	case reflect.Struct:
		for i := range v.NumField() {
			if v.Type().Field(i).IsExported() {
				change(v.Field(i))
			}
		}
	}
}

// TestAPolicyThatDidNotChangeIsTheSame: a reload with an equal policy keeps the one in force,
// so that approvals under it remain valid. Each difference makes another.
func TestAPolicyThatDidNotChangeIsTheSame(t *testing.T) {
	t.Parallel()
	made := func() *config.Config {
		s := &config.Server{Name: "s", Doorward: config.Handling{Tools: config.Tools{Allow: []string{"*"}, Ask: []string{"a"}, Deny: []string{"d"}}}}
		return &config.Config{Servers: map[string]*config.Server{"s": s}, Policy: "p.cedar", PolicyText: []byte("// none\n")}
	}
	d := new(Daemon)
	first, err := d.compilePolicy(made())
	if err != nil {
		t.Fatal(err)
	}
	d.policy.Store(first)
	for name, c := range map[string]struct {
		change func(*config.Config)
		same   bool
	}{
		"nothing":            {func(*config.Config) {}, true},
		"a section":          {func(c *config.Config) { c.Limits.Sessions = 5 }, true},
		"a server's command": {func(c *config.Config) { c.Servers["s"].Command = "x" }, true},
		"another server":     {func(c *config.Config) { c.Servers["t"] = &config.Server{} }, false},
		"allow":              {func(c *config.Config) { c.Servers["s"].Doorward.Tools.Allow = []string{"b"} }, false},
		"deny":               {func(c *config.Config) { c.Servers["s"].Doorward.Tools.Deny = nil }, false},
		"ask":                {func(c *config.Config) { c.Servers["s"].Doorward.Tools.Ask = nil }, false},
		"questions":          {func(c *config.Config) { c.Servers["s"].Doorward.Ask.Deny = []string{"roots"} }, false},
		"messaging":          {func(c *config.Config) { c.Agent.Enabled = true }, false},
		"the file":           {func(c *config.Config) { c.PolicyText = []byte("// other\n") }, false},
		"its name":           {func(c *config.Config) { c.Policy = "q.cedar" }, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			next := made()
			c.change(next)
			got, err := d.compilePolicy(next)
			if err != nil {
				t.Fatal(err)
			}
			if same := got.set == first.set; same != c.same {
				t.Errorf("the same: %v", same)
			}
		})
	}
}

// TestAServerThatIsTakenOutIsClosed: when another set of servers replaces one, the servers that
// it does not take over are closed: they renew no sign-in from then on.
func TestAServerThatIsTakenOutIsClosed(t *testing.T) {
	t.Parallel()
	var asked atomic.Int32
	web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { asked.Add(1); w.WriteHeader(http.StatusNotFound) }))
	t.Cleanup(web.Close)
	dir := t.TempDir()
	if err := os.Chmod(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	out := &outward{dir: dir, log: slog.New(slog.DiscardHandler), record: func(string, string) {}}
	made := func(name string) opened {
		s := signin.Settings{Server: name, URL: web.URL + "/mcp", AllowPrivate: true, Grant: signin.GrantMachine, ClientID: "robot", ClientSecret: secret.New("of the robot"), Issuer: web.URL}
		o, err := opened{def: upstream.Definition{Name: name, Kind: "http", URL: s.URL, AllowPrivate: true}, sign: s}.start(upstream.Deps{Log: out.log}, out)
		if err != nil {
			t.Fatal(err)
		}
		return o
	}
	before := &serverSet{open: map[string]opened{"kept": made("kept"), "gone": made("gone"), "changed": made("changed")}}
	next := &serverSet{open: map[string]opened{"kept": before.open["kept"], "changed": made("changed")}}
	before.close(next)
	for name, want := range map[string]bool{"gone": false, "changed": false, "kept": true} {
		asked.Store(0)
		_, err := before.open[name].tok.Refused(context.WithoutCancel(t.Context()), "", &http.Response{StatusCode: http.StatusUnauthorized, Header: http.Header{}})
		if renews := asked.Load() > 0; renews != want {
			t.Errorf("%s renews: %v (%v)", name, renews, fmt.Sprint(err))
		}
	}
}
