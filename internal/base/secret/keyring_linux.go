package secret

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"time"

	"github.com/godbus/dbus/v5"
)

// Errors of ReadKeyring, wrapped with the entry's name.
var (
	ErrKeyring     = errors.New("there is no keyring: the desktop's session bus or its secret service does not answer; use ${env:NAME} or ${file:/path}")
	ErrLocked      = errors.New("the keyring is locked; unlock it and load the configuration again")
	ErrNoEntry     = errors.New("the keyring has no such entry; make one with: secret-tool store --label=LABEL service SERVICE username NAME")
	ErrManyEntries = errors.New("the keyring has more than one such entry")
)

// keyringPatience is the time limit of one look-up. The keyring service may not be running,
// for instance at boot.
const keyringPatience = 5 * time.Second

// Names of the Secret Service API 0.2 of freedesktop.org.
const (
	busName        = "org.freedesktop.secrets"
	servicePath    = dbus.ObjectPath("/org/freedesktop/secrets")
	ifaceService   = "org.freedesktop.Secret.Service."
	ifaceItem      = "org.freedesktop.Secret.Item."
	attrService    = "service"
	attrUser       = "username"
	plainAlgorithm = "plain"
)

// wireSecret is the API's Secret structure. Parameters are empty with the plain algorithm.
type wireSecret struct {
	Session     dbus.ObjectPath
	Parameters  []byte
	Value       []byte
	ContentType string
}

// ReadKeyring fetches the entry with the attributes service and username from the user's
// secret service. secret-tool and the keyring libraries of Go and Python store entries with
// these attributes. A locked keyring is an error, because a daemon does not show prompts.
// The text is sent unencrypted over the session bus, a Unix socket of this user.
func ReadKeyring(env func(string) (string, bool), service, name string) (Value, error) {
	v, err := readKeyring(SessionBus(env), service, name)
	if err != nil {
		return Value{}, fmt.Errorf("reading %s/%s from the keyring: %w", service, name, err)
	}
	return v, nil
}

// SessionBus returns the address of the session bus; empty: there is none on a Unix socket.
// Other transports are not used, since they would leave the machine or start a program.
func SessionBus(env func(string) (string, bool)) string {
	if env == nil {
		return ""
	}
	if address, _ := env("DBUS_SESSION_BUS_ADDRESS"); address != "" {
		for one := range strings.SplitSeq(address, ";") {
			if strings.HasPrefix(one, "unix:") {
				return one
			}
		}
		return ""
	}
	if dir, _ := env("XDG_RUNTIME_DIR"); filepath.IsAbs(dir) {
		return "unix:path=" + dbus.EscapeBusAddressValue(filepath.Join(dir, "bus"))
	}
	return ""
}

// readKeyring makes one connection for one look-up.
func readKeyring(address, service, name string) (Value, error) {
	if address == "" {
		return Value{}, ErrKeyring
	}
	ctx, cancel := context.WithTimeout(context.Background(), keyringPatience)
	defer cancel()
	conn, err := dbus.Connect(address, dbus.WithContext(ctx))
	if err != nil {
		return Value{}, ErrKeyring
	}
	defer conn.Close()
	item, err := findItem(ctx, conn, service, name)
	if err != nil {
		return Value{}, err
	}
	return getSecret(ctx, conn, item)
}

// findItem searches the unlocked and the locked collections.
func findItem(ctx context.Context, conn *dbus.Conn, service, name string) (dbus.ObjectPath, error) {
	var unlocked, locked []dbus.ObjectPath
	wanted := map[string]string{attrService: service, attrUser: name}
	err := call(ctx, conn, servicePath, ifaceService+"SearchItems", wanted).Store(&unlocked, &locked)
	switch {
	case err != nil:
		return "", ErrKeyring
	case len(unlocked) == 1:
		return unlocked[0], nil
	case len(unlocked) > 1:
		return "", ErrManyEntries
	case len(locked) > 0:
		return "", ErrLocked
	}
	return "", ErrNoEntry
}

// getSecret opens a session of the service and fetches the item. The session ends with the
// connection.
func getSecret(ctx context.Context, conn *dbus.Conn, item dbus.ObjectPath) (Value, error) {
	var output dbus.Variant
	var session dbus.ObjectPath
	err := call(ctx, conn, servicePath, ifaceService+"OpenSession", plainAlgorithm, dbus.MakeVariant("")).Store(&output, &session)
	if err != nil {
		return Value{}, ErrKeyring
	}
	var s wireSecret
	if err := call(ctx, conn, item, ifaceItem+"GetSecret", session).Store(&s); err != nil {
		return Value{}, ErrLocked
	}
	if len(s.Value) == 0 {
		return Value{}, ErrEmpty
	}
	return New(string(s.Value)), nil
}

// call calls a method of the secret service.
func call(ctx context.Context, conn *dbus.Conn, object dbus.ObjectPath, method string, args ...any) *dbus.Call {
	return conn.Object(busName, object).CallWithContext(ctx, method, 0, args...)
}
