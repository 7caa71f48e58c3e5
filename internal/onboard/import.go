package onboard

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/doorward/doorward/internal/base/plaintext"
)

// Import copies servers of clients into Doorward's configuration.
type Import struct {
	Places Places
	Self   string // the path of this program
	// Judge returns the first problem of a configuration with one server; empty: none.
	Judge func(text []byte) string
	// Refer returns the reference for a secret. nil: secrets stay in the configuration.
	Refer func(server, key string) string
	// Resolve returns a text with the references of Refer resolved. nil: the text is
	// returned.
	Resolve func(text string) string
	// Lenient makes a file that cannot be read a note instead of an error.
	Lenient bool
}

// Plan is the result of planning an import.
type Plan struct {
	Change  Change   // of the configuration
	Secrets []Secret // must be stored before the change is written
	Notes   []string // for the person who imports, one line each
}

// importing is the state of one import.
type importing struct {
	Import
	plan    Plan
	text    []byte
	have    map[string]server   // by the name in lower case, as the configuration compares names
	open    map[string][]string // by the same name, the values in the configuration that look like secrets
	clients []string
}

// configuration returns the place of the servers in Doorward's own file.
func configuration() document { return document{format: YAML, keys: mcpServers} }

// Plan reads the sources and plans their servers as entries of conf.
func (im Import) Plan(sources []Source, conf File) (Plan, error) {
	w := &importing{Import: im, text: conf.Text, have: map[string]server{}, open: map[string][]string{}}
	tree, err := decode(YAML, conf.Text)
	if err != nil {
		return Plan{}, fmt.Errorf("%s: %w", conf.Path, err)
	}
	w.known(tree)
	var elsewhere []entry
	for _, s := range sources {
		all, err := im.Places.entries(s)
		if err != nil && im.Lenient {
			w.note("%s is left out: %v", s.Client.Name, err)
			continue
		} else if err != nil {
			return Plan{}, err
		}
		for _, e := range all {
			if err := w.take(e); err != nil {
				return Plan{}, fmt.Errorf("%s: %w", conf.Path, err)
			}
		}
		elsewhere = append(elsewhere, im.Places.elsewhere(s)...)
	}
	w.noteElsewhere(elsewhere)
	if !im.Lenient {
		w.noteAbsent(sources)
	}
	w.plan.Change = Change{Client: strings.Join(w.clients, ","), File: conf, After: w.text}
	return w.plan, w.plan.Change.possible()
}

func (w *importing) note(format string, a ...any) {
	w.plan.Notes = append(w.plan.Notes, fmt.Sprintf(format, a...))
}

// known reads the servers of the configuration.
func (w *importing) known(tree any) {
	own := &Client{Name: Name, expands: braces}
	for _, e := range listed(Source{Client: own}, "", configuration().servers(tree), nil) {
		s := server{}
		if read := (&conversion{entry: e}).server(); read != nil {
			s = *read
		}
		w.open[strings.ToLower(e.name)] = keysOf(s.secrets(e.name, nil))
		w.have[strings.ToLower(e.name)] = s.with(w.Resolve)
	}
}

// with returns the server with its values resolved.
func (s server) with(resolve func(string) string) server {
	if resolve == nil {
		return s
	}
	s.env, s.headers = maps.Clone(s.env), maps.Clone(s.headers)
	for _, values := range []map[string]string{s.env, s.headers} {
		for key, value := range values {
			values[key] = resolve(value)
		}
	}
	return s
}

// equal reports whether two servers have the same command or address. Handling and disabled
// are not compared, so those of the existing server remain.
func (s server) equal(other server) bool { return flow(s.core()) == flow(other.core()) }

func (s server) core() object {
	s.disabled, s.allow, s.deny, s.allowPrivate = false, nil, nil, false
	return s.object()
}

// take adds one entry of a client.
func (w *importing) take(e entry) error {
	c := &conversion{entry: e, home: w.Places.home()}
	label := fmt.Sprintf("%s of %s", e.name, e.from.Client.Name)
	s := c.server()
	if s != nil && s.leadsBack(w.Self) {
		w.note("%s is left out: it is Doorward itself", label)
		return nil
	}
	name, is := "", false
	if s != nil {
		name, is = w.name(e, *s)
	}
	if is {
		w.noteKept(name)
		return nil // it was imported before, with these notes
	}
	for _, note := range c.notes {
		w.note("%s: %s", label, note)
	}
	if s == nil {
		return nil
	}
	if name != e.name {
		w.note("%s is imported under the name %s", label, name)
	}
	if problem := w.settle(name, s, label); problem != "" {
		w.note("%s is left out: %s", label, problem)
		return nil
	}
	if e.from.Dir != "" {
		w.note("%s comes from a file of this project, %s; check what it starts", label, e.from.Path)
	}
	w.have[strings.ToLower(name)] = *s
	return w.write(name, *s, e.from.Client.Name)
}

// write adds a server to the text of the configuration.
func (w *importing) write(name string, s server, client string) (err error) {
	s.env, s.headers = maps.Clone(s.env), maps.Clone(s.headers)
	secrets := s.secrets(name, w.Refer)
	if w.Refer == nil && len(secrets) > 0 {
		w.note("%s: values that look like secrets stay in the configuration: %s; --secrets file moves them out", name, strings.Join(keysOf(secrets), ", "))
		secrets = nil
	}
	if args := s.secretArgs(); len(args) > 0 {
		w.note("%s: values that look like secrets stay in its arguments, which every user of the machine can read: %s; if the server can read them from its environment, move them to env", name, strings.Join(args, ", "))
	}
	w.plan.Secrets = append(w.plan.Secrets, secrets...)
	if !slices.Contains(w.clients, client) {
		w.clients = append(w.clients, client)
	}
	w.text, err = configuration().put(w.text, name, s.object())
	return err
}

// name returns the name of a server in the configuration, and whether it already exists
// there.
func (w *importing) name(e entry, s server) (name string, is bool) {
	plain := plaintext.ServerName(e.name)
	client := plain + "-" + e.from.Client.Name
	for n := 0; ; n++ {
		name := fmt.Sprintf("%s-%d", client, n)
		if n < 2 {
			name = []string{plain, client}[n]
		}
		if builtIn(name) {
			continue
		}
		have, taken := w.have[strings.ToLower(name)]
		if !taken || have.equal(s) {
			return name, taken
		}
	}
}

func builtIn(name string) bool {
	return strings.EqualFold(name, "agent") || strings.EqualFold(name, "instructions")
}

// settle changes a server until the configuration accepts it: an address of this machine
// or network gets allow_private, and a server that cannot be used now is disabled. It
// returns the problem of a server that is not accepted even then.
func (w *importing) settle(name string, s *server, label string) string {
	if s.disabled {
		return w.judge(name, *s)
	}
	problem := w.judge(name, *s)
	if problem == "" {
		return ""
	}
	near := *s
	near.allowPrivate = true
	if s.url != "" && w.judge(name, near) == "" {
		*s = near
		w.note("%s: allow_private is set, since its address is on this machine or network", label)
		return ""
	}
	s.disabled = true
	if left := w.judge(name, *s); left != "" {
		return left
	}
	w.note("%s is disabled: %s", label, problem)
	return ""
}

func (w *importing) judge(name string, s server) string {
	text, err := configuration().put(nil, name, s.object())
	if err != nil {
		return err.Error()
	}
	return w.Judge(text)
}
