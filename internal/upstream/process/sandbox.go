package process

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
)

// Modes of [Sandbox]. The empty mode is off.
const (
	Off     = "off"     // the server may do what its user may
	Contain = "contain" // namespaces and a root of its own with what is granted, no privileges, limits
	Strict  = "strict"  // contain, and what is not granted cannot be read, written, dialled or called
)

// Networks of [Sandbox]. The empty one is inherit.
const (
	NetworkInherit = "inherit" // the host's
	NetworkNone    = "none"    // one of its own, with nothing but its loopback
	NetworkPorts   = "ports"   // the host's, TCP to Sandbox.Ports alone; strict only
)

// ErrNotContained is wrapped by the errors of [Runner.Start] and [Runner.Check] when this system does not give what the
// sandbox asks for. Its text is for the operator and says what to do.
var ErrNotContained = errors.New("sandbox")

// ErrOwnGranted is wrapped when a sandbox names a path that is Doorward's own, which no server is granted.
var ErrOwnGranted = errors.New("a path of Doorward's own is granted to no server")

// Sandbox says how far a server is contained. The zero value is off. Paths are absolute.
type Sandbox struct {
	Mode    string   `json:"mode,omitempty"`
	Read    []string `json:"read,omitempty"`    // granted, to read only
	Write   []string `json:"write,omitempty"`   // granted, as writable as it is to the user
	Named   []string `json:"named,omitempty"`   // what arguments and variables name: as the user may under contain, to read under strict
	Listed  []string `json:"listed,omitempty"`  // what lists of paths in arguments and variables name, to read
	Own     []string `json:"own,omitempty"`     // of what Options.Hide hides: what this server sees all the same, to read or to connect to
	Hide    []string `json:"hide,omitempty"`    // hidden whatever is named, beside Options.Hide
	Home    string   `json:"home,omitempty"`    // below Options.Private: the private home under contain, empty for one in memory; without a sandbox, where a server without a working directory starts
	Nested  bool     `json:"nested,omitempty"`  // contain: user namespaces may be made inside
	Network string   `json:"network,omitempty"` // one of the networks above
	Ports   []uint16 `json:"ports,omitempty"`
	Limits  Limits   `json:"limits"`
}

// Limits hold for one server and everything it starts, together; Files for each of its processes. 0 is no limit.
type Limits struct {
	Memory    int64 `json:"memory,omitempty"`    // bytes
	Processes int   `json:"processes,omitempty"` // processes and threads
	Files     int   `json:"files,omitempty"`     // open descriptors
}

func (s Sandbox) off() bool { return s.Mode == "" || s.Mode == Off }

// Writable are the paths that a server may write if its user may, beside its working directory and its private home.
func (s Sandbox) Writable() []string {
	if s.Mode == Contain {
		return slices.Concat(s.Write, s.Named)
	}
	return s.Write
}

// Degrees of a [Measure].
const (
	Enforced    = "enforced"
	Partial     = "partial"
	Unavailable = "unavailable"
)

// Measure is one thing that shuts a server in, and how far it holds.
type Measure struct {
	Name   string `json:"name"`
	State  string `json:"state"` // Enforced, Partial or Unavailable
	Detail string `json:"detail,omitempty"`
}

// Summary is a mode with what of it does not hold in full: "contain", or "contain (partial: memory limit)".
func Summary(mode string, measures []Measure) string {
	var partial []string
	for _, m := range measures {
		if m.State != Enforced {
			partial = append(partial, m.Name)
		}
	}
	if len(partial) == 0 {
		return mode
	}
	return fmt.Sprintf("%s (partial: %s)", mode, strings.Join(partial, ", "))
}

// plan is what the daemon tells the stages between itself and the server. It travels by their control pipes, since arguments
// can be read by every process of the machine.
type plan struct {
	Sandbox
	Dir    string   `json:"dir,omitempty"`    // the configured working directory
	Fixed  bool     `json:"fixed,omitempty"`  // it is the one that the first stage was started in, and no other
	Hide   []string `json:"hide,omitempty"`   // Doorward's own: hidden whatever is named
	Shared []string `json:"shared,omitempty"` // what any server writes
	Homes  []string `json:"homes,omitempty"`
	Cgroup bool     `json:"cgroup,omitempty"` // memory and processes are limited by a cgroup already
	Probe  bool     `json:"probe,omitempty"`  // start nothing, only say what would hold
	UserNS bool     `json:"userns,omitempty"` // the second stage is in a user namespace of its own
}

func (p plan) String() string {
	b, err := json.Marshal(p)
	if err != nil { // strings and numbers alone
		return "{}"
	}
	return string(b)
}

// writable are the paths that some contained server writes, this one among them.
func (p plan) writable() []string {
	all := slices.Concat(p.Shared, p.Writable())
	if p.Dir != "" {
		all = append(all, p.Dir)
	}
	return all
}

func parsePlan(word string) (*plan, error) {
	var p plan
	if err := json.Unmarshal([]byte(word), &p); err != nil {
		return nil, fmt.Errorf("reading the plan of the sandbox: %w", err)
	}
	if p.Mode != Contain && p.Mode != Strict {
		return nil, fmt.Errorf("unknown sandbox %q", p.Mode)
	}
	return &p, nil
}
