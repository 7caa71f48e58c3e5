package pin

import (
	"bytes"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"slices"

	"github.com/doorward/doorward/internal/base/durable"
	"github.com/doorward/doorward/internal/base/rawjson"
	"github.com/doorward/doorward/internal/trust/wire"
)

type raw = json.RawMessage

// manifest holds what was approved of one server.
type manifest struct {
	settled map[string]bool   // words for first uses that are over: lists, command, instructions
	items   map[string][]byte // canonical definitions
	shown   []string          // the command's arguments in the form that may be shown; nil: not known
}

func newManifest() *manifest {
	return &manifest{settled: make(map[string]bool), items: make(map[string][]byte)}
}

// maxManifest bounds a manifest. It is read as a whole.
const maxManifest = 64 << 20

var (
	errDamaged = errors.New("the manifest is damaged")
	errGrown   = errors.New("the manifest would grow too large")
)

// sumMember begins the last line, which is a digest of all bytes before it: a file that was
// truncated or half written does not pass for an approved one.
const sumMember = `"sum":"`

// encode writes one item a line, so that people can compare two manifests.
func (m *manifest) encode(server string) []byte {
	b := append([]byte(`{"format":1,"server":`), rawjson.AppendQuote(nil, server)...)
	b = append(b, `,"settled":[`...)
	for i, s := range slices.Sorted(maps.Keys(m.settled)) {
		b = rawjson.AppendQuote(separate(b, i), s)
	}
	if m.shown != nil {
		b = append(b, `],"shown":[`...)
		for i, s := range m.shown {
			b = rawjson.AppendQuote(separate(b, i), s)
		}
	}
	b = append(b, "],\"items\":[\n"...)
	for i, item := range slices.Sorted(maps.Keys(m.items)) {
		b = append(separate(b, i), "{\"item\":"...)
		b = append(rawjson.AppendQuote(b, item), `,"definition":`...)
		b = append(append(b, m.items[item]...), "}\n"...)
	}
	b = append(b, "],\n"...)
	sum := sha256.Sum256(b)
	b = append(b, sumMember...)
	return append(hex.AppendEncode(b, sum[:]), "\"}\n"...)
}

func separate(b []byte, i int) []byte {
	if i > 0 {
		return append(b, ',')
	}
	return b
}

// decode accepts only what encode wrote for this server.
func decode(b []byte, server string) (*manifest, error) {
	at := bytes.LastIndex(b, []byte("\n"+sumMember)) + 1
	if at == 0 || wire.ValidateValue(b) != nil {
		return nil, errDamaged
	}
	sum := sha256.Sum256(b[:at])
	if string(b[at:]) != sumMember+hex.EncodeToString(sum[:])+"\"}\n" {
		return nil, errDamaged
	}
	name, _ := rawjson.GetString(b, "server")
	if string(rawjson.Get(b, "format")) != "1" || name != server {
		return nil, fmt.Errorf("it is of another format or server: %w", errDamaged)
	}
	m := newManifest()
	for s := range rawjson.Elements(rawjson.Get(b, "settled")) {
		word, _ := wire.Text(s)
		m.settled[word] = true
	}
	if shown := rawjson.Get(b, "shown"); shown != nil {
		m.shown = []string{}
		for s := range rawjson.Elements(shown) {
			text, _ := wire.Text(s)
			m.shown = append(m.shown, text)
		}
	}
	for e := range rawjson.Elements(rawjson.Get(b, "items")) {
		item, ok := rawjson.GetString(e, "item")
		def := rawjson.Get(e, "definition")
		if !ok || def == nil {
			return nil, errDamaged
		}
		m.items[item] = bytes.Clone(def)
	}
	return m, nil
}

// readManifest returns an empty manifest for a server of which nothing was approved.
func readManifest(place *durable.Pinned, name, server string) (*manifest, error) {
	dir, err := place.Root()
	if err != nil {
		return nil, fmt.Errorf("reading the manifest: %w", err)
	}
	f, err := dir.Open(name)
	if errors.Is(err, fs.ErrNotExist) {
		return newManifest(), nil
	}
	if err != nil {
		return nil, fmt.Errorf("reading the manifest: %w", err)
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, maxManifest+1))
	if err != nil {
		return nil, fmt.Errorf("reading the manifest: %w", err)
	}
	if len(b) > maxManifest {
		return nil, errDamaged
	}
	return decode(b, server)
}

// writeManifest replaces the manifest, or leaves the old one unchanged.
func writeManifest(place *durable.Pinned, name string, b []byte) error {
	if len(b) > maxManifest {
		return errGrown
	}
	dir, err := place.Root()
	if err == nil {
		err = durable.Replace(dir, durable.Draft+rand.Text(), name, b)
	}
	if err != nil {
		return fmt.Errorf("writing the manifest: %w", err)
	}
	return nil
}
