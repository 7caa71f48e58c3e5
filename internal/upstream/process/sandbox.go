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
	Off     = "off"     // the server may do everything that its user may
	Contain = "contain" // namespaces, a root with only the grants, no privileges, limits
	Strict  = "strict"  // contain, and what is not granted cannot be read, written, dialled or called
)

// Networks of [Sandbox]. The empty one is inherit.
const (
	NetworkInherit = "inherit" // the host's
	NetworkNone    = "none"    // its own, with only the loopback interface
	NetworkPorts   = "ports"   // the host's, TCP only to Sandbox.Ports; strict only
)

// ErrNotContained is wrapped by the errors of [Runner.Start] and [Runner.Check] if this system cannot provide the
// sandbox. Its text is for the operator and says what to do.
var ErrNotContained = errors.New("sandbox")

// ErrOwnGranted is wrapped if a sandbox names a path of Doorward's own, which is granted to no server.
var ErrOwnGranted = errors.New("a path of Doorward's own cannot be granted to a server")

// Sandbox configures how a server is contained. The zero value is off. Paths are absolute.
type Sandbox struct {
	Mode    string   `json:"mode,omitempty"`
	Read    []string `json:"read,omitempty"`    // granted, read-only
	Write   []string `json:"write,omitempty"`   // granted, with the user's permissions
	Named   []string `json:"named,omitempty"`   // named by arguments and variables: with the user's permissions under contain, read-only under strict
	Listed  []string `json:"listed,omitempty"`  // named in lists of paths in arguments and variables, read-only
	Own     []string `json:"own,omitempty"`     // exceptions from Options.Hide for this server, to read or to connect to
	Hide    []string `json:"hide,omitempty"`    // hidden even if it is named, in addition to Options.Hide
	Home    string   `json:"home,omitempty"`    // relative to Options.Private: the private home under contain, empty: one in memory; when off, the working directory if none is set
	Nested  bool     `json:"nested,omitempty"`  // contain: the server may make user namespaces
	Network string   `json:"network,omitempty"` // one of the networks above
	Ports   []uint16 `json:"ports,omitempty"`
	Limits  Limits   `json:"limits"`
}

// Limits apply to one server and everything that it starts, together; Files to each of its processes. 0: no limit.
type Limits struct {
	Memory    int64 `json:"memory,omitempty"`    // bytes
	Processes int   `json:"processes,omitempty"` // processes and threads
	Files     int   `json:"files,omitempty"`     // open descriptors
}

func (s Sandbox) off() bool { return s.Mode == "" || s.Mode == Off }

// Writable returns the paths that a server may write if its user may, except its working directory and its private
// home.
func (s Sandbox) Writable() []string {
	if s.Mode == Contain {
		return slices.Concat(s.Write, s.Named)
	}
	return s.Write
}

// States of a [Measure].
const (
	Enforced    = "enforced"
	Partial     = "partial"
	Unavailable = "unavailable"
)

// Measure is one measure of a sandbox, and how far it holds.
type Measure struct {
	Name   string `json:"name"`
	State  string `json:"state"` // Enforced, Partial or Unavailable
	Detail string `json:"detail,omitempty"`
}

// Summary returns a mode with the measures that do not hold in full: "contain", or "contain (partial: memory limit)".
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

// plan is what the daemon sends to the stages between itself and the server. It is sent over their control pipes,
// because arguments can be read by every process of the machine.
type plan struct {
	Sandbox
	Dir    string   `json:"dir,omitempty"`    // the configured working directory
	Fixed  bool     `json:"fixed,omitempty"`  // the server must start in the directory of the first stage itself
	Hide   []string `json:"hide,omitempty"`   // hidden even if it is named: Doorward's own paths, and Sandbox.Hide
	Shared []string `json:"shared,omitempty"` // the paths that any server writes
	Homes  []string `json:"homes,omitempty"`
	Cgroup bool     `json:"cgroup,omitempty"` // a cgroup limits memory and processes
	Probe  bool     `json:"probe,omitempty"`  // only report the measures, start nothing
	UserNS bool     `json:"userns,omitempty"` // the second stage is in a user namespace of its own
}

func (p plan) String() string {
	b, err := json.Marshal(p)
	if err != nil { // impossible: the fields are texts and numbers
		return "{}"
	}
	return string(b)
}

// writable returns the paths that contained servers write, including this one.
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
