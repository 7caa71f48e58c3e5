package process

import (
	"errors"
	"os"
	"sync"
	"time"
)

// CanContain reports whether servers can be contained on this system.
const CanContain = false

// ErrOutside is wrapped by the error of OpenFolder for a path in none of the roots.
var ErrOutside = errors.New("outside of the directories that are allowed")

// errUnsupported is the error of every start: on Windows only the client side exists.
var errUnsupported = errors.New("stdio servers are not supported on Windows")

// supervise fails, because there is no supervisor on Windows.
func supervise([]string) int { return 1 }

// OpenFolder is not available on this system.
func OpenFolder(string, []string) (*os.File, string, error) { return nil, "", errUnsupported }

// Process is a running server. There is none on this system.
type Process struct {
	Stdin, Stdout *os.File
	server        string
	report        *reportReader
}

func (*Runner) probe(*plan) ([]Measure, error) { return nil, ErrNotContained }

func launch(*Runner, Spec, *plan) (*Process, error) { return nil, errUnsupported }

// PID returns the supervisor's process id.
func (p *Process) PID() int { return 0 }

// Done is closed when the process has ended.
func (p *Process) Done() <-chan struct{} { return nil }

// Err returns how the process ended.
func (p *Process) Err() error { return errUnsupported }

// Sandbox returns the mode of the sandbox and its measures.
func (p *Process) Sandbox() (mode string, measures []Measure) { return Off, nil }

// StderrCount returns how much the server has written to standard error.
func (p *Process) StderrCount() (bytes, withheld int64) { return 0, 0 }

// Stop, Kill and End end the process.
func (p *Process) Stop()             {}
func (p *Process) Kill()             {}
func (p *Process) End(time.Duration) {}

// Contains reports whether a process is a descendant of this one.
func (p *Process) Contains(int) bool { return false }

func (p *Process) watch()         {}
func (p *Process) shrinkControl() {}

type reportReader struct{}

func (*reportReader) first() error            { return errUnsupported }
func (*reportReader) share(string, *sync.Map) {}

type cgroups struct{}

type sealedImage struct{}

func openCgroups() *cgroups { return nil }

func ownBinary() (string, error) { return os.Executable() }

func mayExecute(string) bool { return true }
