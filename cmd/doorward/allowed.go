package main

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/doorward/doorward/internal/base/durable"
	"github.com/doorward/doorward/internal/daemon/config"
	"github.com/doorward/doorward/internal/downstream/peer"
)

// A configuration names programs to run, and the file in the working directory may
// be part of a clone or an archive. It is used only after the user has
// allowed its content in that directory.

// allowance records the content that was allowed in one directory: the digest of its
// configuration, and of the policy file that the configuration names.
type allowance struct {
	Path    string    `json:"path"`
	Config  string    `json:"sha256"`
	Policy  string    `json:"policy_sha256"` // empty: the configuration names none
	Allowed time.Time `json:"allowed"`
}

var (
	errNotAllowed = errors.New("the configuration of the working directory has not been allowed: check it and run `doorward allow` here, or name it with --config")
	errChanged    = errors.New("the configuration of the working directory has changed since it was allowed: check it and run `doorward allow` here, or name it with --config")
	errPolicy     = errors.New("the policy file differs from the one that was allowed with the configuration of the working directory: check it and run `doorward allow` here")
)

func digest(content []byte) string {
	sum := sha256.Sum256(content)
	return hex.EncodeToString(sum[:])
}

// hereOf returns the path of the configuration of the working directory, without links.
func hereOf() (string, error) {
	dir, err := os.Getwd()
	if err == nil {
		dir, err = filepath.EvalSymlinks(dir)
	}
	if err != nil {
		return "", fmt.Errorf("finding the working directory: %w", err)
	}
	return filepath.Join(dir, config.Here), nil
}

// allowances is the directory of allowances in the state directory, a file for each.
type allowances struct{ dir string }

func (v vetting) allowances() (allowances, error) {
	state, err := v.o.stateDir()
	return allowances{filepath.Join(state, "allowed")}, err
}

func nameOf(path string) string { return digest([]byte(path)) + ".json" }

// maxAllowance is an upper bound of the bytes of an allowance.
const maxAllowance = 16 << 10

// find returns the allowance of a path; nil: there is none.
func (s allowances) find(path string) (*allowance, error) {
	dir, err := durable.OpenRoot(s.dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("reading what was allowed: %w", err)
	}
	defer dir.Close()
	b, err := durable.ReadSecret(dir, nameOf(path), maxAllowance)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	var a allowance
	if err == nil {
		err = json.Unmarshal(b, &a)
	}
	if err != nil {
		return nil, fmt.Errorf("reading what was allowed: %w", err)
	}
	if a.Path != path {
		return nil, fmt.Errorf("reading what was allowed: %s is about another directory", nameOf(path))
	}
	return &a, nil
}

func (s allowances) keep(a allowance) error {
	dir, err := s.open()
	if err != nil {
		return err
	}
	defer dir.Close()
	b, err := json.MarshalIndent(a, "", " ")
	if err != nil {
		return fmt.Errorf("writing what was allowed: %w", err)
	}
	return durable.ReplaceAt(filepath.Join(s.dir, nameOf(a.Path)), append(b, '\n'))
}

// forget removes an allowance, and reports whether there was one.
func (s allowances) forget(path string) (bool, error) {
	dir, err := s.open()
	if err != nil {
		return false, err
	}
	defer dir.Close()
	err = os.Remove(filepath.Join(s.dir, nameOf(path)))
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return err == nil, err
}

// open opens the directory. It creates it and the state directory above it, or checks that
// they are private.
func (s allowances) open() (*os.File, error) {
	state, err := peer.PrivateDir(filepath.Dir(s.dir))
	if err != nil {
		return nil, fmt.Errorf("state directory: %w", err)
	}
	defer state.Close()
	return peer.PrivateDir(s.dir)
}

// vetting compares the configuration of the working directory with its allowance.
type vetting struct{ o *options }

// vet returns an error if the content of ./doorward.yaml was not allowed.
func (v vetting) vet(content []byte) error {
	return v.differs(errChanged, func(a *allowance) bool { return a.Config != digest(content) })
}

// vetPolicy returns an error if the content of the policy file that it names was not
// allowed.
func (v vetting) vetPolicy(c *config.Config) error {
	return v.differs(errPolicy, func(a *allowance) bool { return a.Policy != policyDigest(c) })
}

// differs returns changed if the allowance does not match the file, and errNotAllowed if there
// is no allowance.
func (v vetting) differs(changed error, from func(*allowance) bool) error {
	a, err := v.allowance()
	switch {
	case err != nil:
		return err
	case a == nil:
		return errNotAllowed
	case from(a):
		return changed
	}
	return nil
}

func policyDigest(c *config.Config) string {
	if c.Policy == "" {
		return ""
	}
	return digest(c.PolicyText)
}

func (v vetting) allowance() (*allowance, error) {
	if v.o.workdir == "" {
		path, err := hereOf()
		if err != nil {
			return nil, err
		}
		v.o.workdir = path
	}
	s, err := v.allowances()
	if err != nil {
		return nil, err
	}
	return s.find(v.o.workdir)
}

// here reports whether a command uses the configuration of the working
// directory. serve and check always do, and report its problems; the others use
// it only when it was allowed.
func (o *options) here() bool {
	if _, err := os.Lstat(config.Here); err != nil {
		return false
	}
	if o.takesHere {
		return true
	}
	content, err := hereContent()
	if err == nil {
		err = vetting{o}.vet(content)
	}
	if err != nil && !o.noted {
		o.noted = true
		fmt.Fprintf(stderr(), "doorward: ./%s is not used: %v\n", config.Here, err)
	}
	return err == nil
}

// hereContent reads the configuration of the working directory. It does not
// read from a pipe, which could block.
func hereContent() ([]byte, error) {
	if fi, err := os.Stat(config.Here); err != nil || !fi.Mode().IsRegular() {
		return nil, errors.Join(err, errNotAllowed)
	}
	return os.ReadFile(config.Here)
}
