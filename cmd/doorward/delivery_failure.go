package main

import (
	"errors"
	"fmt"
	"net/http"
	"strings"

	"github.com/doorward/doorward/client"
	"github.com/doorward/doorward/internal/base/plaintext"
)

// deliveryFailure turns a failure of instruction delivery into an error that explains it.
func deliveryFailure(err error) error {
	var p *client.Problem
	if !errors.As(err, &p) {
		return err
	}
	switch {
	case strings.EqualFold(p.Code, "agent_shell"):
		return shellFailure(p.Why)
	case p.Status == http.StatusForbidden:
		return fail(exitRefused, "refused: policy does not permit it%s", refOf(p))
	case p.Status == http.StatusUnauthorized:
		return fail(exitRefused, "refused: the daemon could not authenticate this caller%s", refOf(p))
	case p.Status == http.StatusNotFound && p.Code == "":
		return fail(exitFailed, "this daemon delivers no instructions: it is older than this command")
	}
	if text := deliveryFailures()[p.Code]; text != "" {
		if p.Detail != "" {
			text += ": " + plaintext.Line(p.Detail)
		}
		for _, m := range p.Problems {
			text += "\n  " + plaintext.Line(fmt.Sprintf("%s:%d: %s", m.File, m.Line, m.Text))
		}
		return fail(exitFailed, "%s (%s)", text, p.Code)
	}
	return fail(exitFailed, "%w", err)
}

func refOf(p *client.Problem) string {
	if p.Ref == 0 {
		return ""
	}
	return fmt.Sprintf(" (audit record %d)", p.Ref)
}

// deliveryFailures returns the explanations of the codes of instruction delivery.
func deliveryFailures() map[string]string {
	return map[string]string{
		"not_found":         "there is no such document, version, label, session or ref; doorward instructions list shows the documents",
		"invalid_document":  "the document is not valid",
		"remote_store":      "the documents come from another Doorward: make the change there",
		"conflict":          "nothing was done",
		"malformed":         "the daemon does not accept that argument",
		"store_unreachable": "the store does not answer: nothing was done; `doorward status` says why",
		"unavailable":       "the audit log cannot be written: nothing was done",
		"rate_limited":      "too many at once: try again in a minute",
		"too_large":         "the document exceeds the maximum size",
	}
}
