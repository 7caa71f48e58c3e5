package agent

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/doorward/doorward/internal/base/store"
	"github.com/doorward/doorward/internal/messaging/mail"
)

// Codes of this package; those of the book are in package mail. They are stable, because
// callers act on them.
const (
	Unauthenticated = "UNAUTHENTICATED"
	NotAllowed      = "NOT_ALLOWED"
	RateLimited     = "RATE_LIMITED"
	TooLarge        = "TOO_LARGE"
	InvalidBody     = "INVALID_BODY"

	unexpected = "INTERNAL"
	cancelled  = "CANCELLED" // the client has left: recorded, and not answered
)

// Times after which to retry, where the refusal states none.
const (
	shortRetry       = time.Second
	unavailableRetry = 5 * time.Second
	mailboxRetry     = 30 * time.Second
)

// maxRecipientDetails is how many recipients an error names.
const maxRecipientDetails = 16

// kind holds the fixed properties of a code.
type kind struct {
	text      string
	retryable bool
	retry     time.Duration // the default
}

var kinds = map[string]kind{
	Unauthenticated:          {text: "this caller has no messaging right"},
	NotAllowed:               {text: "policy does not allow this"},
	mail.NotRegistered:       {text: "this session has no peer: call register first"},
	mail.Fenced:              {text: "another session has taken this peer over: call register again"},
	mail.NameOwned:           {text: "the name belongs to another principal: choose another one"},
	mail.NameInUse:           {text: "the name is in use by another session of yours that is alive: choose another one, or try again when that session has ended", retryable: true, retry: shortRetry},
	mail.NameInvalid:         {text: "not a name: lower-case letters, digits, dot, underscore and dash, at most 63, beginning with a letter or digit"},
	mail.NameReserved:        {text: "the name is reserved: choose another one"},
	mail.PeerLimit:           {text: "the namespace has no room for another peer"},
	mail.UnknownRecipient:    {text: "no such peer: see list_peers"},
	mail.RecipientRefuses:    {text: "the recipient accepts no messages"},
	mail.MailboxFull:         {text: "the recipient's mailbox is full; nothing was stored", retryable: true, retry: mailboxRetry},
	mail.SenderQuota:         {text: "too many of your messages wait for this recipient; nothing was stored", retryable: true, retry: mailboxRetry},
	RateLimited:              {text: "too many calls", retryable: true, retry: shortRetry},
	TooLarge:                 {text: "the message is too large"},
	InvalidBody:              {text: "the text is not UTF-8, holds a NUL, or is empty after cleaning"},
	mail.InvalidArgument:     {text: "the arguments do not fit the schema"},
	mail.CursorInvalid:       {text: "the cursor was not made for this peer in this session: leave it out, or use the one of the last inbox"},
	mail.DuplicateSuppressed: {text: "the same text was sent to the same recipient a moment ago; nothing was stored. The first message was accepted: see message_status"},
	mail.LoopSuspected:       {text: "this thread looks like a loop between two agents: too many replies in a row, or too many messages in ten minutes; nothing was stored. Stop answering. If you have something new to say, send it without reply_to and thread_id, or ask operator"},
	mail.IdempotencyConflict: {text: "the idempotency key was used for something else"},
	mail.UnknownMessage:      {text: "no such message of yours"},
	mail.PasskeyRequired:     {text: "a held message can be released only with a passkey"},
	mail.UnknownSpawn:        {text: "no such agent of yours"},
	mail.SpawnDisabled:       {text: "starting agents is not configured"},
	mail.LauncherUnknown:     {text: "no launcher of this name can be used"},
	mail.LauncherChanged:     {text: "the launcher has changed since it was approved: the operator has to approve it again"},
	mail.RightsExceedParent:  {text: "more rights than you have yourself"},
	mail.CwdOutsideRoots:     {text: "the directory is outside of what you may use"},
	mail.DepthLimit:          {text: "started agents may not start agents this deep"},
	mail.ChildLimit:          {text: "too many agents that you started are running", retryable: true, retry: mailboxRetry},
	mail.Budget:              {text: "the budget of this started agent is used up"},
	mail.StoreUnavailable:    {text: "the store is unavailable; nothing was done", retryable: true, retry: unavailableRetry},
	mail.AuditUnavailable:    {text: "the act cannot be recorded; nothing was done", retryable: true, retry: unavailableRetry},
	unexpected:               {text: "nothing was done", retryable: true, retry: unavailableRetry},
}

// problem is the reason for which a call is refused.
type problem struct {
	code    string
	text    string // empty: the text of the code
	retry   time.Duration
	details map[string]any // for the caller
	rule    string         // the policy rule, for the record
	to      []string       // peer ids of the recipients, for the record
	err     error          // for the operator

	uncertain bool // the act may have been done
}

func (p *problem) Error() string {
	if p.err != nil {
		return p.code + ": " + p.err.Error()
	}
	return p.code
}

func (p *problem) Unwrap() error { return p.err }

func refuse(code string) *problem { return &problem{code: code} }

func refusef(code, format string, args ...any) *problem {
	return &problem{code: code, text: fmt.Sprintf(format, args...)}
}

// denied returns the refusal for a denial of policy.
func denied(rule string) *problem {
	return &problem{code: NotAllowed, rule: rule, details: map[string]any{"rule": rule}}
}

// problemOf turns an error of a handler into the error for the caller. A refusal keeps
// its code. The error of a context means that the client has left; an uncertain commit
// becomes STORE_UNAVAILABLE, and any other error INTERNAL.
func problemOf(err error) *problem {
	var p *problem
	var refused *mail.Error
	switch {
	case errors.As(err, &p):
		return p
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded): // the caller has left
		return &problem{code: cancelled, err: err}
	case errors.Is(err, store.ErrUncertain):
		return &problem{code: mail.StoreUnavailable, text: uncertainText, uncertain: true, err: err}
	case errors.As(err, &refused):
		p = &problem{code: refused.Code, retry: refused.Retry, err: refused.Err, details: make(map[string]any)}
		if len(refused.Recipients) > 0 {
			p.details["recipients"] = refused.Recipients[:min(len(refused.Recipients), maxRecipientDetails)]
		}
		if refused.First != "" {
			p.text = kinds[p.code].text + " with message_id " + refused.First
			p.details["message_id"] = refused.First
		}
		return p
	}
	return &problem{code: unexpected, err: err}
}

// uncertainText is for an act whose commit was not confirmed.
const uncertainText = "the store was lost during the commit: whether it was done is unknown. Call again; send and spawn with the same idempotency_key and arguments, else it may be done twice"

// failure is the structured content of an error.
type failure struct {
	Error struct {
		Code      string         `json:"code"`
		Message   string         `json:"message"`
		Retryable bool           `json:"retryable"`
		RetryMS   int64          `json:"retry_after_ms,omitempty"`
		Details   map[string]any `json:"details,omitempty"`
	} `json:"error"`
}

func (p *problem) failure() failure {
	k := kinds[p.code]
	var f failure
	f.Error.Code, f.Error.Message, f.Error.Retryable, f.Error.Details = p.code, k.text, k.retryable, p.details
	if p.text != "" {
		f.Error.Message = p.text
	}
	if k.retryable {
		f.Error.RetryMS = cmp.Or(p.retry, k.retry).Milliseconds()
	}
	return f
}

// rulePrefix is the prefix of the code in the rule of a refusal.
const rulePrefix = "agent."
