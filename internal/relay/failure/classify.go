package failure

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/doorward/doorward/internal/trust/gate"
	"github.com/doorward/doorward/internal/upstream"
)

// ErrUnanswered says that a question was put to a client and no answer came: the client is
// gone, or the time is over.
var ErrUnanswered = errors.New("the client did not answer the question")

// ErrStarting says that the time for a request was over before a connection to its server was
// open, such as while npx installs the server. It is also a context.DeadlineExceeded.
var ErrStarting error = starting{}

type starting struct{}

func (starting) Error() string { return "no answer in time: the server is still starting" }

func (starting) Is(target error) bool { return target == context.DeadlineExceeded }

// Reasons why a call does not reach its server.
var (
	ErrInstances     = errors.New("max_instances reached")
	ErrConcurrency   = errors.New("max_concurrency reached")
	ErrRefusedServer = errors.New("the server's configuration was refused at start")
	ErrGone          = fmt.Errorf("the server is no longer configured: %w", upstream.ErrNotSent)
)

// Failed describes a forwarded request that its server did not answer.
type Failed struct {
	Code   int64
	Text   string
	Word   string // for the outcome record
	Cap    string // key of the limit that was reached; empty: none
	Retry  int    // seconds, for Retry-After; 0: unknown
	Cancel bool   // the client waits for no answer
}

// Classify maps the error of a forwarded request to the caller's answer and the outcome.
func Classify(ctx context.Context, server string, err error) Failed {
	f := Failed{Code: CodeUpstream, Text: Upstream, Word: "failed"}
	switch {
	case errors.Is(err, ErrStarting):
		f.Code, f.Text, f.Word = CodeTimeout, "Upstream timed out", "starting"
	case errors.Is(err, upstream.ErrTimeout), errors.Is(err, context.DeadlineExceeded):
		f.Code, f.Text, f.Word = CodeTimeout, "Upstream timed out", "timeout"
	case ctx.Err() != nil:
		f.Cancel, f.Word = true, "cancelled"
	case errors.Is(err, ErrInstances):
		f.Word, f.Cap = "busy", CapOf(server, "max_instances")
	case errors.Is(err, ErrConcurrency):
		f.Word, f.Cap = "busy", CapOf(server, "max_concurrency")
	case errors.Is(err, upstream.ErrBusy):
		f.Word, f.Cap = "busy", "limits.children"
	case errors.Is(err, upstream.ErrStreams):
		f.Word, f.Cap = "busy", CapOf(server, "max_streams")
	case errors.Is(err, upstream.ErrSignIn):
		f.Text, f.Word = SignIn, "sign-in"
	}
	f.Retry = int((upstream.RetryAfter(err) + time.Second - 1) / time.Second)
	return f
}

// CapOf names a limit of one server.
func CapOf(server, key string) string { return "mcpServers." + server + ".doorward." + key }

// OwnLimit reports whether an act was refused by a limit of its caller, which applies to the
// whole request and not only to one server's part.
func OwnLimit(err error) bool {
	var ref *gate.Refusal
	return errors.As(err, &ref) && (ref.Rule == gate.RuleRate || ref.Rule == gate.RuleCalls || ref.Rule == gate.RuleStreams)
}

// ErrAsksTooMuch is an upstream failure: the server asked this client for
// something that it did not declare or that policy forbids.
var ErrAsksTooMuch = fmt.Errorf("the server asked for a capability that the client does not declare: %w", upstream.ErrProtocol)

// MaxRounds bounds how often a modern server may ask for input within one call of
// a legacy client.
const MaxRounds = 10

// Errors of a call in rounds that its server caused.
var (
	ErrRounds      = fmt.Errorf("the server asked in more than %d rounds: %w", MaxRounds, upstream.ErrProtocol)
	ErrOtherTool   = fmt.Errorf("the server has changed between two rounds of a call: %w", upstream.ErrProtocol)
	ErrNoQuestions = fmt.Errorf("the server requires input and asks for none: %w", upstream.ErrProtocol)
)

// NotRun reports whether a request certainly did not reach its server.
func NotRun(err error) bool {
	return errors.Is(err, upstream.ErrSession) || errors.Is(err, upstream.ErrNotSent)
}

// LaterRound is the error of a round after the first. It hides that this round was not run,
// so that the call is not begun again.
type LaterRound struct{ Err error }

// Error implements error.
func (e LaterRound) Error() string { return e.Err.Error() }

// Is implements errors.Is.
func (e LaterRound) Is(target error) bool {
	return target != upstream.ErrSession && target != upstream.ErrNotSent && errors.Is(e.Err, target)
}

// As implements errors.As.
func (e LaterRound) As(target any) bool { return errors.As(e.Err, target) }

// ErrNotGiven says that a call in rounds ends because the client gave no usable answer to a
// question of sampling or roots. An elicitation is cancelled in this case, and the call goes
// on.
var ErrNotGiven = errors.New("the call needs an answer that the client did not give")
