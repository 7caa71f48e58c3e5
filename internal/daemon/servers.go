package daemon

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"reflect"

	"github.com/doorward/doorward/internal/child"
	"github.com/doorward/doorward/internal/config"
	"github.com/doorward/doorward/internal/policy"
	"github.com/doorward/doorward/internal/relay"
	"github.com/doorward/doorward/internal/upstream"
)

// serverSet is the configured servers, ready for the relay.
type serverSet struct {
	config *config.Config
	relay  []relay.Server
	open   map[string]opened
}

// opened is an upstream and what it was made of.
type opened struct {
	def upstream.Definition
	up  *upstream.Server
}

// newServers makes the set of c. An upstream of before whose definition is
// the same goes over into it.
func newServers(c *config.Config, runner *child.Runner, log *slog.Logger, version string, before *serverSet) (*serverSet, error) {
	info, err := json.Marshal(map[string]string{"name": "doorward", "version": version})
	if err != nil {
		return nil, fmt.Errorf("naming ourselves: %w", err)
	}
	set := &serverSet{config: c, open: make(map[string]opened)}
	deps := upstream.Deps{Runner: runner, Log: log, ClientInfo: info}
	for name, s := range c.Servers {
		if s.Disabled {
			continue
		}
		set.add(name, s, deps, before)
	}
	return set, nil
}

// add takes one server in. A definition that upstream refuses costs that
// server alone.
func (set *serverSet) add(name string, s *config.Server, deps upstream.Deps, before *serverSet) {
	h := s.Doorward
	r := relay.Server{Name: name, Kind: s.Kind, Instances: h.Instances, Protocol: h.Protocol,
		MaxInstances: h.MaxInstances, MaxConcurrency: h.MaxConcurrency, Timeout: h.Timeout, Refused: s.Refused}
	if r.Refused == "" {
		def := definition(name, s, set.config.Log.Level == "debug")
		up, err := before.same(name, def), error(nil)
		if up == nil {
			up, err = upstream.New(def, deps)
		}
		if err != nil {
			r.Refused = err.Error()
		} else {
			r.Upstream = up
			set.open[name] = opened{def, up}
		}
	}
	set.relay = append(set.relay, r)
}

func definition(name string, s *config.Server, keepStderr bool) upstream.Definition {
	def := upstream.Definition{Name: name, Kind: s.Kind, Path: s.Path, Dir: s.Cwd, URL: s.URL.Reveal(),
		AllowPrivate: s.Doorward.AllowPrivate, Timeout: s.Doorward.Timeout, KeepStderr: keepStderr}
	for _, a := range s.Args {
		def.Args = append(def.Args, a.Reveal())
	}
	env := make(map[string]string, len(s.Env))
	for k, v := range s.Env {
		env[k] = v.Reveal()
	}
	def.Env = child.Environment(env)
	def.Headers = make(http.Header, len(s.Headers))
	for k, v := range s.Headers {
		def.Headers.Set(k, v.Reveal())
	}
	return def
}

// policy is the default policy with every server's own lists.
func (set *serverSet) policy(uid uint32) *policy.Set {
	rules := make(map[string]policy.ServerRules, len(set.relay))
	for _, r := range set.relay {
		h := set.config.Servers[r.Name].Doorward
		rules[r.Name] = policy.ServerRules{
			Tools: policy.List{Allow: h.Tools.Allow, Deny: h.Tools.Deny},
			Ask:   policy.List{Allow: h.Ask.Allow, Deny: h.Ask.Deny},
		}
	}
	return policy.New(uid, rules)
}

// same is the upstream of an equal definition, or nil.
func (set *serverSet) same(name string, def upstream.Definition) *upstream.Server {
	if set == nil || !reflect.DeepEqual(set.open[name].def, def) {
		return nil
	}
	return set.open[name].up
}

func (set *serverSet) close() {
	for _, o := range set.open {
		o.up.Close()
	}
}
