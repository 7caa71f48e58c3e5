package era

import (
	"slices"

	"github.com/doorward/doorward/internal/base/rawjson"
	"github.com/doorward/doorward/internal/downstream/front"
	"github.com/doorward/doorward/internal/trust/wire"
)

// Levels are the severities of log messages, least first (RFC 5424).
var Levels = []string{`"debug"`, `"info"`, `"notice"`, `"warning"`, `"error"`, `"critical"`, `"alert"`, `"emergency"`}

// Severity returns the rank of a raw log level, -1 for an invalid one.
func Severity(raw []byte) int { return slices.Index(Levels, string(raw)) }

// LevelOf returns the log level that a modern request names, raw; nil: none.
func LevelOf(x *front.Exchange) []byte {
	return rawjson.GetPath(x.Params, "_meta", wire.MetaLogLevel)
}

// HearsLog reports whether a modern client gets a log message with its call: only if that
// request named a level, and the message is at or above it (Logging).
func HearsLog(x *front.Exchange, message []byte) bool {
	least := Severity(LevelOf(x))
	return least >= 0 && Severity(rawjson.Get(message, "level")) >= least
}

// Hearer returns the key under which a request receives a legacy server's log messages: each
// client receives them once for each level that it names. Empty: the request receives none.
func Hearer(x *front.Exchange) string {
	if x.Era != front.Modern {
		return ""
	}
	level := LevelOf(x)
	if Severity(level) < 0 {
		return ""
	}
	return x.Who.Key() + " " + string(level)
}
