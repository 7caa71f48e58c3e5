package listen

import (
	"context"
	"strings"

	"github.com/doorward/doorward/internal/base/plaintext"
)

// Credential describes the credentials by which the daemon can check callers on TCP.
type Credential struct {
	// Set reports whether DOORWARD_TOKEN, --token-file or an oauth section is set and
	// usable.
	Set bool
	// Made reports whether tokens made with `doorward token new` exist.
	Made bool
	// Unusable is the reason why a configured DOORWARD_TOKEN or --token-file cannot be
	// used, for instance "DOORWARD_TOKEN is shorter than 16 characters". An operator who
	// set one wants authentication, so no listener opens without it. It never contains
	// the token.
	Unusable string
	// Problem describes the problems of all tokens, including Unusable.
	Problem string
}

// Decision is a row of the bind table.
type Decision struct {
	Listen   bool
	Enforce  bool   // every request needs a credential
	Loopback bool   // by classification
	Warning  string // if Listen; may be empty
	Reason   string // if not Listen: one line, with the remedies
}

// Plan decides about one listener before any port is bound. It changes nothing, and reads
// nothing except to resolve `localhost`.
func Plan(s Spec, c Credential) Decision {
	if s.Network == "unix" {
		return Decision{Listen: true}
	}
	ctx, cancel := context.WithTimeout(context.Background(), openTimeout)
	defer cancel()
	return decide(s, classify(ctx, s.Addr, systemResolver), c)
}

// decide implements the bind table.
//
//	address      credential  behaviour
//	any          unusable    refuse, port not bound
//	loopback     none        serve without authentication
//	loopback     set         serve, token enforced
//	else         none        refuse, port not bound
//	else         set         serve, token enforced, warn without TLS
//
// `required` enforces on loopback too, and accepts tokens made with `token new` as a
// credential. On loopback the listener then opens even without any credential: every
// request gets 401 until the first token is made. `none` is allowed on loopback only,
// regardless of the credentials.
func decide(s Spec, a address, c Credential) Decision {
	d := Decision{Loopback: a.loopback && a.problem == ""}
	if d.Reason = unfit(s, a); d.Reason != "" {
		return d
	}
	if c.Unusable != "" {
		d.Reason = unusable(a, c)
		return d
	}
	if !a.loopback && !c.Set && (s.Auth != AuthRequired || !c.Made) {
		d.Reason = refusal(s, c)
		return d
	}
	d.Listen = true
	d.Enforce = !a.loopback || s.Auth == AuthRequired || c.Set && s.Auth != AuthNone
	d.Warning = warning(s, c, d)
	return d
}

// unfit returns the reason for a refusal that no credential can change; empty: none.
func unfit(s Spec, a address) string {
	hasTLS := s.CertFile != "" || s.KeyFile != ""
	switch {
	case s.Network != "tcp":
		return "unknown network " + plaintext.Name(s.Network) + ": write unix or tcp"
	case a.problem != "":
		return a.problem
	case s.Auth != "" && s.Auth != AuthAuto && s.Auth != AuthRequired && s.Auth != AuthNone:
		return "unknown auth " + plaintext.Name(s.Auth) + ": write auto, required or none"
	case s.Auth == AuthNone && !a.loopback:
		return "auth: none is for loopback addresses only: remove it and set a token, or bind 127.0.0.1"
	case hasTLS && (s.CertFile == "" || s.KeyFile == ""):
		return "tls needs both cert and key"
	case s.RequireTLS && !hasTLS:
		return "require_tls is set and there is no certificate: set tls.cert and tls.key"
	}
	return ""
}

// refusal returns the reason why a listener is not opened, with both remedies.
func refusal(s Spec, c Credential) string {
	why := "not a loopback address, and no token is set"
	if c.Problem != "" {
		why += " (" + c.Problem + ")"
	}
	remedy := ": set DOORWARD_TOKEN or --token-file to a token of at least 16 characters, or oauth in the configuration, or bind a loopback address such as 127.0.0.1"
	if c.Made && s.Auth != AuthRequired {
		remedy += "; tokens made with `doorward token new` count where the listener says auth: required"
	}
	return why + remedy
}

// unusable returns the reason for a refusal because of a token that is set and cannot be
// used.
func unusable(a address, c Credential) string {
	why, or := "the token is not usable (", "remove it to serve loopback without authentication"
	if !a.loopback {
		why, or = "not a loopback address, and the token is not usable (", "bind a loopback address such as 127.0.0.1 without a token"
	}
	return why + c.Unusable + "): set DOORWARD_TOKEN, or --token-file to a file that you alone can read, to a token of at least 16 characters, or " + or
}

// Warning returns what the operator has to know about an open listener, with the
// credentials that there are now; empty: nothing.
func Warning(l *Listener, now Credential) string {
	if l.Network == "unix" {
		return ""
	}
	return warning(l.Spec, now, Decision{Loopback: l.Loopback, Enforce: l.AuthEnforced})
}

func warning(s Spec, c Credential, d Decision) string {
	var w []string
	if !d.Loopback && s.CertFile == "" {
		w = append(w, "no TLS on an address that is not loopback: the token and all data cross the network in the clear; set tls.cert and tls.key, or require_tls: true to refuse")
	}
	if c.Problem != "" {
		w = append(w, "not all tokens are usable ("+c.Problem+")")
	}
	switch {
	case s.Auth == AuthNone && c.Set:
		w = append(w, "auth: none: a token or oauth is set but not required")
	}
	if d.Enforce && !c.Set && !c.Made {
		w = append(w, "auth: required and no token exists: every request is refused until one is made with `doorward token new`")
	}
	if odd := neverMatch(s); odd != "" {
		w = append(w, odd)
	}
	return strings.Join(w, "; ")
}
