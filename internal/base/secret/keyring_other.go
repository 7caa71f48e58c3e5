//go:build !linux

package secret

import "errors"

// ErrKeyring is the answer to every ${keyring:} reference here: macOS offers its keychain to Go through a child
// process or cgo alone, and Doorward uses neither for this.
var ErrKeyring = errors.New("keyring references are not supported on this system; use ${env:NAME} or ${file:/path}")

// ReadKeyring returns ErrKeyring.
func ReadKeyring(func(string) (string, bool), string, string) (Value, error) {
	return Value{}, ErrKeyring
}

// StoreKeyring returns ErrKeyring.
func StoreKeyring(func(string) (string, bool), string, string, Value) error { return ErrKeyring }

// SessionBus returns "": no session bus is used here.
func SessionBus(func(string) (string, bool)) string { return "" }
