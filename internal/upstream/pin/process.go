package pin

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/doorward/doorward/internal/base/rawjson"
	"github.com/doorward/doorward/internal/downstream/peer"
)

// Process is the program of a server. Arguments may hold secrets, so the manifest has only
// their digests and what may be shown of them; of the environment it has the names.
type Process struct {
	Path  string // absolute
	Args  []string
	Shown []string // Args in the form that may be shown, by position; nil: none
	Env   []string // names of the declared variables
	Dir   string
	// Follow approves a change of only Args: they come from the configuration, and the
	// program's definitions are compared after its start.
	Follow bool
}

func (p *Process) equal(o *Process) bool {
	if p == nil || o == nil {
		return p == o
	}
	return p.Path == o.Path && p.Dir == o.Dir && p.Follow == o.Follow && slices.Equal(p.Args, o.Args) && slices.Equal(p.Shown, o.Shown) && slices.Equal(p.Env, o.Env)
}

// definition returns the item for a process: canonical JSON, like every other item. It reads
// the program's content now.
func (p *Process) definition(f *files) ([]byte, error) {
	real, sum, err := f.digest(p.Path)
	if err != nil {
		return nil, err
	}
	var args, env []byte
	for i, a := range p.Args {
		d := sha256.Sum256([]byte(a))
		args = rawjson.AppendQuote(separate(args, i), "sha256:"+hex.EncodeToString(d[:]))
	}
	for i, name := range slices.Sorted(slices.Values(p.Env)) {
		env = rawjson.AppendQuote(separate(env, i), name)
	}
	edits := []rawjson.Edit{
		{Key: "path", Value: rawjson.AppendQuote(nil, p.Path)},
		{Key: "sha256", Value: rawjson.AppendQuote(nil, sum)},
		{Key: memberArguments, Value: list(args)},
		{Key: "environment", Value: list(env)},
	}
	if real != p.Path {
		edits = append(edits, rawjson.Edit{Key: "target", Value: rawjson.AppendQuote(nil, real)})
	}
	if p.Dir != "" {
		edits = append(edits, rawjson.Edit{Key: "directory", Value: rawjson.AppendQuote(nil, p.Dir)})
	}
	return rawjson.Canonical(rawjson.Set(nil, edits...)), nil
}

func list(elements []byte) []byte { return append(append([]byte{'['}, elements...), ']') }

// files caches the digests of programs by the stamps of their files, so that a start need not
// read the whole program.
type files struct {
	mu   sync.Mutex
	byOf map[string]fileDigest
}

type fileDigest struct {
	stamp peer.Stamp
	sum   string
}

// unreadable stands for the content of a program that may be executed and not read.
const unreadable = "unreadable"

var errUnsteady = errors.New("the program changes while it is read")

// digest resolves symbolic links and returns the SHA-256 of the program. A program that is
// replaced between this check and the start is not noticed.
func (f *files) digest(path string) (real, sum string, err error) {
	if real, err = filepath.EvalSymlinks(path); err != nil {
		return "", "", fmt.Errorf("looking at the program: %w", err)
	}
	stamp, err := peer.StampOf(real)
	if err != nil {
		return "", "", fmt.Errorf("looking at the program: %w", err)
	}
	f.mu.Lock()
	known, ok := f.byOf[real]
	f.mu.Unlock()
	if ok && known.stamp == stamp {
		return real, known.sum, nil
	}
	sum, stamp, err = hashSteady(real)
	if errors.Is(err, fs.ErrPermission) {
		return real, unreadable, nil
	}
	if err != nil {
		return "", "", fmt.Errorf("looking at the program: %w", err)
	}
	if stamp.Settled(time.Now()) {
		f.mu.Lock()
		if f.byOf == nil {
			f.byOf = make(map[string]fileDigest)
		}
		f.byOf[real] = fileDigest{stamp, sum}
		f.mu.Unlock()
	}
	return real, sum, nil
}

// readings bounds how often a program that changes meanwhile is read. A new hard link to it,
// as a package manager makes, counts as a change.
const readings = 5

func hashSteady(path string) (sum string, stamp peer.Stamp, err error) {
	for range readings {
		if sum, stamp, err = hashFile(path); !errors.Is(err, errUnsteady) {
			break
		}
	}
	return sum, stamp, err
}

func hashFile(path string) (string, peer.Stamp, error) {
	file, err := os.Open(path)
	if err != nil {
		return "", peer.Stamp{}, err
	}
	defer file.Close()
	before, err := peer.StampOfFile(file)
	if err != nil {
		return "", peer.Stamp{}, err
	}
	if !before.Regular {
		return "", peer.Stamp{}, fmt.Errorf("%s is not a regular file", path)
	}
	h := sha256.New()
	if _, err := io.Copy(h, file); err != nil {
		return "", peer.Stamp{}, err
	}
	after, err := peer.StampOfFile(file)
	if err != nil {
		return "", peer.Stamp{}, err
	}
	if after != before {
		return "", peer.Stamp{}, errUnsteady
	}
	return hex.EncodeToString(h.Sum(nil)), after, nil
}
