package relay

import (
	"flag"
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"

	"github.com/doorward/doorward/internal/relay/failure"
	"github.com/doorward/doorward/internal/trust/wire"
)

var update = flag.Bool("update", false, "write the tables of docs/protocol.md")

const protocolPage = "../../docs/protocol.md"

// gap is why a cell does not work, and the one error that a client gets there.
type gap struct {
	reason string
	says   *wire.Error
}

var (
	newKind   = gap{"the legacy era has one kind of result", failure.NewKind}
	taskKinds = gap{"the two kinds of task have different states, and one has no words for the other's", failure.OtherTasks}
)

// gaps are the cells that do not work.
var gaps = map[string]gap{
	"results of a kind that Doorward does not know / legacy > modern": newKind,
	"tasks of 2025-11-25 / legacy > modern":                           taskKinds,
	"tasks of 2025-11-25 / modern > legacy":                           taskKinds,
	"tasks of SEP-2663 / legacy > modern":                             taskKinds,
	"tasks of SEP-2663 / modern > legacy":                             taskKinds,
}

// answer is the error as the feature reports it; empty where there is no gap.
func (g gap) answer() string {
	if g.says == nil {
		return ""
	}
	return fmt.Sprintf("%d %s", g.says.Code, g.says.Message)
}

// why is the reason in the table; empty where there is no gap.
func (g gap) why() string {
	if g.says == nil {
		return ""
	}
	return fmt.Sprintf("%s; the client gets %d", g.reason, g.says.Code)
}

// matrixServers starts a server of each kind.
var matrixServers = map[string]func(*testing.T, string, string) *script{"stdio": stdio, "http": web, "sse": events}

// TestMatrix runs every feature between clients and servers of all eras, over all
// transports at both ends and on both routes. The tables in docs/protocol.md are what it
// found.
func TestMatrix(t *testing.T) {
	t.Parallel()
	f := &verdicts{cells: make(map[string]string), ways: make(map[string]*tally)}
	t.Run("pairs", func(t *testing.T) {
		for _, c := range cells {
			for _, kind := range kinds {
				for _, door := range doors {
					if !carries(kind.name, c.server) || !carries(door.name, c.client) {
						continue
					}
					t.Run(c.name+"/"+kind.name+"/"+door.name, func(t *testing.T) { f.all(t, c.name, c.client, c.server, kind.name, door.name) })
				}
			}
		}
	})
	if t.Failed() {
		return
	}
	page, err := os.ReadFile(protocolPage)
	if err != nil {
		t.Fatal(err)
	}
	got := withTable(t, withTable(t, string(page), "table", matrixTable(f.cells)), "transports", waysTable(f.ways))
	if *update {
		if err := os.WriteFile(protocolPage, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	} else if got != string(page) {
		t.Errorf("docs/protocol.md has other tables; run `go test ./internal/relay -run TestMatrix -update`")
	}
}

// verdicts are what the matrix found.
type verdicts struct {
	mu    sync.Mutex
	cells map[string]string // by feature and cell: yes, - or "" for a gap
	ways  map[string]*tally // by transports of client and server
}

// tally counts the cases between two transports.
type tally struct{ yes, gaps, none int }

// all runs every feature in one cell between two transports, on both routes.
func (v *verdicts) all(t *testing.T, cell, client, server, kind, door string) {
	t.Parallel()
	for _, f := range matrix {
		for _, path := range []string{"/mcp/s", "/mcp"} {
			t.Run(f.what+path, func(t *testing.T) {
				t.Parallel()
				bad := f.run(newPair(t, matrixServers[kind], client, server, door, path))
				key := f.what + " / " + cell
				if want := gaps[key].answer(); want != bad && (want != "" || bad != "-") {
					t.Errorf("got %q, want %q", bad, want)
				}
				v.add(key, door+" "+kind, bad)
			})
		}
	}
}

func (v *verdicts) add(key, way, bad string) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.cells[key] = map[string]string{"": "yes", "-": "-"}[bad]
	if v.ways[way] == nil {
		v.ways[way] = new(tally)
	}
	switch bad {
	case "":
		v.ways[way].yes++
	case "-":
		v.ways[way].none++
	default:
		v.ways[way].gaps++
	}
}

// waysTable writes how many cases there are between transports.
func waysTable(found map[string]*tally) string {
	var b strings.Builder
	b.WriteString("| client \\ server |")
	for _, k := range kinds {
		b.WriteString(" " + k.words + " |")
	}
	b.WriteString("\n|---|---|---|---|\n")
	for _, d := range doors {
		b.WriteString("| " + d.words + " |")
		for _, k := range kinds {
			n := found[d.name+" "+k.name]
			fmt.Fprintf(&b, " %d yes, %d no |", n.yes, n.gaps)
		}
		b.WriteString("\n")
	}
	return b.String()
}

// matrixTable writes the rows; "" in found is a gap.
func matrixTable(found map[string]string) string {
	var b strings.Builder
	b.WriteString("| feature |")
	for _, c := range cells {
		b.WriteString(" " + c.name + " |")
	}
	b.WriteString(" reason |\n|---|---|---|---|---|---|\n")
	for _, f := range matrix {
		b.WriteString("| " + f.what + " |")
		reason := ""
		for _, c := range cells {
			word := found[f.what+" / "+c.name]
			if word == "" {
				word = "no"
				reason = gaps[f.what+" / "+c.name].why()
			}
			b.WriteString(" " + word + " |")
		}
		b.WriteString(" " + reason + " |\n")
	}
	return b.String()
}

// withTable puts a table between its marks on a page.
func withTable(t *testing.T, page, mark, table string) string {
	from, to := "<!-- "+mark+": begin -->\n", "<!-- "+mark+": end -->"
	head, rest, ok := strings.Cut(page, from)
	_, tail, ok2 := strings.Cut(rest, to)
	if !ok || !ok2 {
		t.Fatal("docs/protocol.md has no place for the table " + mark)
	}
	return head + from + table + to + tail
}
