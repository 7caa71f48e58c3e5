//go:build linux

package main

import (
	"bytes"
	"encoding/base64"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// The documents whose sentences identify a composed text: the first of the class instructions,
// which precedes everything that may be truncated, and the last, which is present when nothing is.
const (
	firstGuide = "guide-00"
	lastGuide  = "guide-07"
)

const pathFetch = "/auth/instructions"

// fetchPaths are the judged paths, whose answers are instructions.
var fetchPaths = []string{pathCold, pathColdDial, pathCached, pathWhole, pathAll}

// errands returns all paths except the calls.
func (p *instructed) errands() []errand {
	health := func() (bool, error) { return true, p.door.health() }
	all := []errand{{name: pathHealth, before: p.door.fresh, do: health}, p.cold(), p.coldDial(), p.cached(),
		p.fetched(pathWhole, pathFetch, firstGuide), p.fetched(pathAll, pathFetch+"?max_bytes=65536", firstGuide, lastGuide), p.render()}
	all = append(all, p.hello(pathHello, "", p.door), p.hello(pathGreeted, "Doorward-Session: "+p.token+"\r\n", p.door))
	for i := range all {
		all[i].clock = p.with.clock
	}
	stranger := p.hello(pathStranger, "", p.stranger)
	stranger.clock = p.without.clock
	return append(all, stranger)
}

func (p *process) clock() (time.Duration, error) { return cpuTime(p.pid()) }

// wholeText reports whether an answer is a delivered text that contains the sentence of each
// document. A 503 or an incomplete text is a degraded answer; any other answer is an error.
func wholeText(a answer, docs ...string) (bool, error) {
	if a.Status == 503 {
		return false, nil
	}
	if a.Status != 200 {
		return false, fmt.Errorf("not answered: %s", a)
	}
	for _, name := range docs {
		if !bytes.Contains(a.Body, []byte(planted(name))) {
			return false, nil
		}
	}
	return refOf(a.Body) != "", nil
}

// marks is the set of marks seen in delivered texts. Different sessions get different marks.
type marks map[string]bool

// add fails if the mark was seen before: the text was then made for another session.
func (m marks) add(a answer) error {
	ref := refOf(a.Body)
	if ref != "" && m[ref] {
		return fmt.Errorf("two sessions got the same mark: %s", a)
	}
	m[ref] = true
	return nil
}

// cold fetches with a new session each time.
func (p *instructed) cold() errand {
	return p.first(pathCold, func(token string) (answer, error) {
		return p.door.ask("GET", pathFetch, bearing(token), "")
	})
}

// coldDial fetches with a new session over a new connection, so that the daemon has to identify the
// caller first.
func (p *instructed) coldDial() errand {
	return p.first(pathColdDial, func(token string) (answer, error) {
		conn, err := dialRaw(p.with.addr, 16<<10)
		if err != nil {
			return answer{}, err
		}
		defer conn.close()
		return (&door{conn: conn}).ask("GET", pathFetch, bearing(token), "")
	})
}

// first measures the first fetch of a session. The sessions are created before the turn and ended
// after it.
func (p *instructed) first(name string, fetch func(token string) (answer, error)) errand {
	var sessions []made
	next := 0
	seen := marks{}
	return errand{name: name, base: pathHealth,
		before: func(n int) (err error) {
			next = 0
			sessions, err = p.door.newSessions(n)
			return err
		},
		do: func() (bool, error) {
			a, err := fetch(sessions[next].Token)
			next++
			if err != nil {
				return false, err
			}
			return seen.whole(a)
		},
		after: func() error { return p.door.revoke(sessions) }}
}

func (m marks) whole(a answer) (bool, error) {
	if err := m.add(a); err != nil {
		return false, err
	}
	return wholeText(a, firstGuide)
}

// fetched fetches the complete text repeatedly in one session, whose mark must not change.
func (p *instructed) fetched(name, path string, docs ...string) errand {
	mark := ""
	return errand{name: name, base: pathHealth, before: p.door.fresh, do: func() (bool, error) {
		a, err := p.door.ask("GET", path, bearing(p.token), "")
		if err != nil {
			return false, err
		}
		ref := refOf(a.Body)
		if mark == "" {
			mark = ref
		}
		if ref != "" && ref != mark {
			return false, fmt.Errorf("the mark of a session has changed: %s", a)
		}
		return wholeText(a, docs...)
	}}
}

// cached makes conditional requests. The tag is that of a complete text, fetched before the turn,
// so a 304 stands for a complete text. A 200 is an error.
func (p *instructed) cached() errand {
	tag := ""
	return errand{name: pathCached, base: pathHealth,
		before: func(n int) error {
			if err := p.door.fresh(n); err != nil {
				return err
			}
			a, err := p.door.ask("GET", pathFetch, bearing(p.token), "")
			if err != nil {
				return err
			}
			if whole, err := wholeText(a, firstGuide); err != nil || !whole || a.Tag == "" {
				return fmt.Errorf("no whole text with a tag to begin with: %w: %s", err, a)
			}
			tag = a.Tag
			return nil
		},
		do: func() (bool, error) {
			a, err := p.door.ask("GET", pathFetch, bearing(p.token)+"If-None-Match: "+tag+"\r\n", "")
			switch {
			case err != nil:
				return false, err
			case a.Status == 304:
				return true, nil
			case a.Status == 200:
				return false, fmt.Errorf("the tag %s matches no more: %s", tag, a)
			}
			return wholeText(a)
		}}
}

// render renders a template with values that no other request has.
func (p *instructed) render() errand {
	n := 0
	return errand{name: pathRender, base: pathHealth, before: p.door.fresh, do: func() (bool, error) {
		n++
		title := "the " + strconv.Itoa(n) + "th of its kind"
		a, err := p.door.ask("POST", "/auth/templates/"+rendered+"/render", bearing(p.token),
			`{"vars":{"title":"`+title+`","count":`+strconv.Itoa(n)+`}}`)
		if err != nil {
			return false, err
		}
		if a.Status == 200 && !bytes.Contains(a.Body, []byte("⟦"+title+"⟧")) {
			return false, fmt.Errorf("another title in the text: %s", a)
		}
		return wholeText(a, rendered, "template-02")
	}}
}

// hello opens MCP sessions at the aggregate endpoint and ends them after the turn. With a token the
// answer must contain the protected text, without one it must not.
func (p *instructed) hello(name, lines string, d *door) errand {
	var opened []string
	base := pathHello
	if name == pathHello {
		base = pathHealth
	}
	return errand{name: name, base: base, before: d.fresh,
		do: func() (bool, error) {
			a, err := d.greet(lines)
			if err != nil {
				return false, err
			}
			opened = append(opened, a.Session)
			if lines != "" {
				return wholeText(a, firstGuide)
			}
			if bytes.Contains(a.Body, []byte(planted(firstGuide))) {
				return false, fmt.Errorf("a greeting without a session has the protected text: %s", a)
			}
			return true, nil
		},
		after: func() error {
			defer func() { opened = opened[:0] }()
			return d.leave(opened)
		}}
}

// The paths of calls with an argument of 4 KiB to the same tools.
const (
	pathUnused    = "call, instructions not used"
	pathLooked    = "call, looked at"               // searched for some thousand refs
	pathShown     = "call, looked at, with session" // the same, and the client shows a token with each request
	pathUnused64  = "call in base64, not used"
	pathLooked64  = "call in base64, looked at" // encoded text is searched decoded too
	argumentBytes = 4096
)

// calls returns the same calls at both daemons, with an argument of text and one in base64. It
// fails if the daemon with instructions does not notice a mark in a call.
func (p *instructed) calls() ([]errand, error) {
	text := strings.ReplaceAll(" "+prose("argument", argumentBytes), "\n", " ")
	encoded := " " + base64.StdEncoding.EncodeToString([]byte(prose("encoded", argumentBytes*3/4)))
	var all []errand
	for _, c := range []struct {
		name, base string
		daemon     *process
		pad, lines string
	}{
		{pathUnused, "", p.without, text, ""}, {pathLooked, pathUnused, p.with, text, ""},
		{pathShown, pathUnused, p.with, text, "Doorward-Session: " + p.token + "\r\n"},
		{pathUnused64, "", p.without, encoded, ""}, {pathLooked64, pathUnused64, p.with, encoded, ""},
	} {
		s, err := openSession(endpoint{c.daemon.addr, "/mcp/bench"}, len(all), false)
		if err != nil {
			return nil, err
		}
		p.sessions = append(p.sessions, s)
		if c.daemon == p.with {
			if err := p.noticed(s); err != nil {
				return nil, err
			}
		}
		s.pad = c.pad[:argumentBytes-len("session 0 asks for the 0000th time")]
		s.header["echo"] = s.prepare("POST", s.sessionLines(), c.lines, "Content-Length: ")
		all = append(all, errand{name: c.name, base: c.base, clock: c.daemon.clock,
			before: func(int) error { return s.warm() }, do: func() (bool, error) { return true, s.call("echo") }})
	}
	return all, nil
}

// noticed makes a call that carries the mark of the session's text and waits for the audit record
// of it.
func (p *instructed) noticed(s *session) error {
	a, err := p.door.ask("GET", pathFetch, bearing(p.token), "")
	if err != nil {
		return err
	}
	before, err := p.finds()
	if err != nil {
		return err
	}
	s.pad = " " + refOf(a.Body)
	if err := s.warm(); err != nil {
		return err
	}
	for deadline := time.Now().Add(startPatience); ; time.Sleep(20 * time.Millisecond) {
		now, err := p.finds()
		if err != nil || now > before {
			return err
		}
		if time.Now().After(deadline) {
			return errors.New("a mark in the argument of a call was not noticed")
		}
	}
}

// finds counts the audit records of detected marks.
func (p *instructed) finds() (n int, err error) {
	err = filepath.WalkDir(p.audit, func(file string, e fs.DirEntry, err error) error {
		if err != nil || !e.Type().IsRegular() {
			return err
		}
		text, err := os.ReadFile(file)
		n += bytes.Count(text, []byte(`"instructions.canary","resource"`))
		return err
	})
	if err != nil {
		return 0, fmt.Errorf("reading the record: %w", err)
	}
	return n, nil
}

// warm makes one uncounted call on the connection of the next ones.
func (s *session) warm() error {
	if err := s.refresh(); err != nil {
		return err
	}
	s.conn.patience(callPatience)
	s.used = time.Now()
	return s.call("echo")
}
