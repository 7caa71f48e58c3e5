package daemon

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"reflect"
	"sync"

	"github.com/doorward/doorward/internal/base/secret"
	"github.com/doorward/doorward/internal/daemon/config"
	"github.com/doorward/doorward/internal/relay"
	"github.com/doorward/doorward/internal/upstream"
	"github.com/doorward/doorward/internal/upstream/process"
	"github.com/doorward/doorward/internal/upstream/signin"
)

// serverSet holds the configured servers for the relay.
type serverSet struct {
	config *config.Config
	relay  []relay.Server
	open   map[string]opened
}

// opened is an upstream and the settings that it was made from.
type opened struct {
	def  upstream.Definition
	sign signin.Settings // zero: no sign-in
	out  string          // the proxy
	up   *upstream.Server
	tok  *tokens // nil: no token is sent
	shut bool    // because the store of sign-ins could not be opened
}

// newServers makes the set of c. It takes over an upstream of before if its definition is the
// same.
func newServers(c *config.Config, runner *process.Runner, log *slog.Logger, version string, out *outward, before *serverSet,
	stderr func(server, line string)) (*serverSet, error) {
	info, err := json.Marshal(map[string]string{"name": "doorward", "version": version})
	if err != nil {
		return nil, fmt.Errorf("encoding the name and version of this program: %w", err)
	}
	runner.Share(written(c))
	set := &serverSet{config: c, open: make(map[string]opened)}
	deps := upstream.Deps{Runner: runner, Log: log, ClientInfo: info, Proxy: c.Egress.Proxy, Notice: out.circuit, Await: out.await, Stderr: stderr}
	for name, s := range c.Servers {
		if s.Disabled {
			continue
		}
		set.add(name, s, deps, out, before)
	}
	return set, nil
}

// add adds one server. If its definition is not valid, only that server is refused.
func (set *serverSet) add(name string, s *config.Server, deps upstream.Deps, out *outward, before *serverSet) {
	h := s.Doorward
	r := relay.Server{Name: name, Kind: s.Kind, Instances: h.Instances, PerSession: s.Kind == upstream.KindStdio && upstream.Stateful(s.Command, revealed(s.Args)), Protocol: h.Protocol,
		MaxInstances: h.MaxInstances, MaxConcurrency: h.MaxConcurrency, SparesOwn: !h.CountsOwn, MaxStreams: h.MaxStreams, Timeout: h.Timeout, Refused: s.Refused}
	if r.Refused == "" {
		def := definition(set.config, name, s)
		def.Sandbox.Hide = deps.Runner.Further(def.Sandbox.Hide)
		o, err := before.same(name, set.opening(def, s)), error(nil)
		if o.up == nil || o.shut && out.open() != nil {
			o, err = set.opening(def, s).start(deps, out)
		}
		if err == nil {
			err = checkSandbox(deps, def)
		}
		if err != nil {
			r.Refused = err.Error()
		} else {
			r.Upstream = o.up
			if o.tok != nil {
				r.SignIn = o.tok
			}
			set.open[name] = o
		}
	}
	set.relay = append(set.relay, r)
}

func definition(c *config.Config, name string, s *config.Server) upstream.Definition {
	def := upstream.Definition{Name: name, Kind: s.Kind, Path: s.Path, Dir: s.Cwd, URL: s.URL.Reveal(),
		AllowPrivate: s.Doorward.AllowPrivate, Timeout: s.Doorward.Timeout, Connect: s.Doorward.Connect,
		FirstByte: s.Doorward.FirstByte, Idle: s.Doorward.Idle, MaxStreams: s.Doorward.MaxStreams, MaxMessage: c.Limits.AnswerBytes, KeepStderr: c.Log.Level == "debug",
		Sandbox: sandboxOf(c, serverHome(name), s)}
	def.Args = revealed(s.Args)
	env := make(map[string]string, len(s.Env))
	for k, v := range s.Env {
		env[k] = v.Reveal()
	}
	def.Env = process.Environment(env)
	def.Headers = make(http.Header, len(s.Headers))
	for k, v := range s.Headers {
		def.Headers.Set(k, v.Reveal())
	}
	return def
}

// revealed returns the values of secrets in clear text.
func revealed(args []secret.Value) (out []string) {
	for _, a := range args {
		out = append(out, a.Reveal())
	}
	return out
}

// opening returns the settings from which a server is made.
func (set *serverSet) opening(def upstream.Definition, s *config.Server) opened {
	sign, _ := SignIn(s, set.config)
	return opened{def: def, sign: sign, out: set.config.Egress.Proxy}
}

// start makes the upstream, and the source of its tokens.
func (o opened) start(deps upstream.Deps, out *outward) (opened, error) {
	if o.sign.Server != "" {
		o.tok = out.tokens(o.sign)
		o.shut = o.tok == nil && out.open() == nil
	}
	if o.tok != nil {
		deps.Credential = o.tok
	}
	up, err := upstream.New(o.def, deps)
	o.up = up
	return o, err
}

// same returns the upstream that was made from the same settings; zero: there is none.
func (set *serverSet) same(name string, o opened) opened {
	if set == nil {
		return opened{}
	}
	was := set.open[name]
	if was.up == nil || was.out != o.out || !reflect.DeepEqual(was.def, o.def) || !reflect.DeepEqual(was.sign, o.sign) {
		return opened{}
	}
	return was
}

// close ends all servers that next has not taken over, at once: a renewal that is under way at
// one of them delays no other. next is nil when the daemon ends.
func (set *serverSet) close(next *serverSet) {
	var all sync.WaitGroup
	for name, o := range set.open {
		if next == nil || next.open[name].up != o.up {
			all.Go(o.close)
		}
	}
	all.Wait()
}

func (o opened) close() {
	if o.tok != nil {
		o.tok.Close()
	}
	o.up.Close()
}
