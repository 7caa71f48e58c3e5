//go:build !linux

package secret

import "errors"

// ErrKeyring is the error of every ${keyring:} reference on this system. On macOS the
// keychain would need a child process or cgo, and Doorward uses neither for this.
var ErrKeyring = errors.New("keyring references are not supported on this system; use ${env:NAME} or ${file:/path}")

// ReadKeyring returns ErrKeyring.
func ReadKeyring(func(string) (string, bool), string, string) (Value, error) {
	return Value{}, ErrKeyring
}

// StoreKeyring returns ErrKeyring.
func StoreKeyring(func(string) (string, bool), string, string, Value) error { return ErrKeyring }

// SessionBus returns "": no session bus is used on this system.
func SessionBus(func(string) (string, bool)) string { return "" }
