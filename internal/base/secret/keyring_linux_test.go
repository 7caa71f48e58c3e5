package secret_test

import (
	"bufio"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/godbus/dbus/v5"

	"github.com/doorward/doorward/internal/base/secret"
)

// keyring is a session bus with a secret service behind it, as far as one look-up needs them. It speaks the real
// protocol on a real socket.
type keyring struct {
	unlocked, locked map[string]string // service/username to text
	broken           bool              // every call is an error
	silent           bool              // nothing is ever answered
	sealed           bool              // nothing is stored without a prompt
}

// serve makes a Unix socket and gives the environment that leads to it.
func (k keyring) serve(t *testing.T) func(string) (string, bool) {
	t.Helper()
	dir, err := os.MkdirTemp("", "bus")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	l, err := net.Listen("unix", filepath.Join(dir, "bus"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go k.talk(c)
		}
	}()
	return lookup(map[string]string{"XDG_RUNTIME_DIR": dir})
}

func lookup(vars map[string]string) func(string) (string, bool) {
	return func(name string) (string, bool) { v, ok := vars[name]; return v, ok }
}

// talk authenticates the caller and answers its calls.
func (k keyring) talk(c net.Conn) {
	defer c.Close()
	in := bufio.NewReader(c)
	if k.silent {
		_, _ = io.Copy(io.Discard, in)
		return
	}
	for {
		line, err := in.ReadString('\n')
		line = strings.Trim(line, "\x00\r\n")
		switch {
		case err != nil:
			return
		case line == "AUTH":
			_, _ = io.WriteString(c, "REJECTED EXTERNAL\r\n")
		case line == "BEGIN":
			k.answer(c, in)
			return
		case strings.HasPrefix(line, "AUTH EXTERNAL"), strings.HasPrefix(line, "DATA"):
			_, _ = io.WriteString(c, "OK 0123456789abcdef0123456789abcdef\r\n")
		default:
			_, _ = io.WriteString(c, "ERROR\r\n")
		}
	}
}

// answer replies to method calls until the connection ends.
func (k keyring) answer(c net.Conn, in io.Reader) {
	for serial := uint32(1); ; serial++ {
		msg, err := dbus.DecodeMessage(in)
		if err != nil {
			return
		}
		reply := &dbus.Message{Type: dbus.TypeMethodReply, Headers: map[dbus.HeaderField]dbus.Variant{
			dbus.FieldReplySerial: dbus.MakeVariant(msg.Serial()),
		}}
		if reply.Body = k.body(msg); reply.Body == nil {
			reply.Type = dbus.TypeError
			reply.Headers[dbus.FieldErrorName] = dbus.MakeVariant("org.freedesktop.DBus.Error.Failed")
		} else {
			reply.Headers[dbus.FieldSignature] = dbus.MakeVariant(dbus.SignatureOf(reply.Body...))
		}
		if err := reply.EncodeTo(serialWriter{c, serial}, binary.LittleEndian); err != nil {
			return
		}
	}
}

// serialWriter puts a serial number into the header of a message, where the library leaves 0 for messages that are
// not sent through its own connection.
type serialWriter struct {
	io.Writer
	serial uint32
}

func (w serialWriter) Write(b []byte) (int, error) {
	if len(b) >= 12 {
		binary.LittleEndian.PutUint32(b[8:], w.serial)
	}
	return w.Writer.Write(b)
}

// body is the answer to one call; nil is an error.
func (k keyring) body(msg *dbus.Message) []any {
	member, _ := msg.Headers[dbus.FieldMember].Value().(string)
	path, _ := msg.Headers[dbus.FieldPath].Value().(dbus.ObjectPath)
	switch {
	case member == "Hello":
		return []any{":1.7"}
	case k.broken:
		return nil
	case member == "OpenSession":
		return []any{dbus.MakeVariant(""), dbus.ObjectPath("/session/1")}
	case member == "ReadAlias":
		return []any{dbus.ObjectPath("/collection/login")}
	case member == "CreateItem" && path == "/collection/login":
		if k.sealed {
			return []any{dbus.ObjectPath("/"), dbus.ObjectPath("/prompt/1")}
		}
		properties, _ := msg.Body[0].(map[string]dbus.Variant)
		wanted, _ := properties["org.freedesktop.Secret.Item.Attributes"].Value().(map[string]string)
		item, _ := msg.Body[1].([]any)
		text, _ := item[2].([]byte)
		k.unlocked[wanted["service"]+"/"+wanted["username"]] = string(text)
		return []any{dbus.ObjectPath("/unlocked/1"), dbus.ObjectPath("/")}
	case member == "SearchItems":
		wanted, _ := msg.Body[0].(map[string]string)
		entry := wanted["service"] + "/" + wanted["username"]
		return []any{k.find("/unlocked/", k.unlocked, entry), k.find("/locked/", k.locked, entry)}
	case member == "GetSecret" && strings.HasPrefix(string(path), "/unlocked/"):
		type wire struct {
			Session     dbus.ObjectPath
			Parameters  []byte
			Value       []byte
			ContentType string
		}
		return []any{wire{"/session/1", []byte{}, []byte(k.unlocked["github/me"]), "text/plain"}}
	}
	return nil
}

// find lists the items for an entry. An entry called twice/me is there twice.
func (keyring) find(prefix string, entries map[string]string, entry string) []dbus.ObjectPath {
	paths := []dbus.ObjectPath{}
	if _, ok := entries[entry]; ok {
		paths = append(paths, dbus.ObjectPath(prefix+"1"))
	}
	if entry == "twice/me" && prefix == "/unlocked/" {
		paths = append(paths, "/unlocked/2")
	}
	return paths
}

func TestKeyring(t *testing.T) {
	t.Parallel()
	env := keyring{
		unlocked: map[string]string{"github/me": password, "twice/me": "x", "empty/me": ""},
		locked:   map[string]string{"bank/me": password},
	}.serve(t)
	v, err := secret.ReadKeyring(env, "github", "me")
	if err != nil || v.Reveal() != password {
		t.Errorf("got %d bytes, %v", len(v.Reveal()), err)
	}
	tpl, err := secret.Parse("Bearer ${keyring:github/me}")
	if err != nil {
		t.Fatal(err)
	}
	if v, err := tpl.Resolve(secret.Sources{Env: env}); err != nil || v.Reveal() != "Bearer "+password {
		t.Errorf("through a template: %v", err)
	}
	for entry, want := range map[string]error{"bank": secret.ErrLocked, "none": secret.ErrNoEntry, "twice": secret.ErrManyEntries} {
		if _, err := secret.ReadKeyring(env, entry, "me"); !errors.Is(err, want) || !strings.Contains(err.Error(), entry+"/me") {
			t.Errorf("%s: got %v, want %v", entry, err, want)
		}
	}
}

func TestWhatIsStoredInAKeyringIsReadBack(t *testing.T) {
	t.Parallel()
	env := keyring{unlocked: map[string]string{"github/me": "old"}}.serve(t)
	if err := secret.StoreKeyring(env, "github", "me", secret.New(password)); err != nil {
		t.Fatal(err)
	}
	if v, err := secret.ReadKeyring(env, "github", "me"); err != nil || v.Reveal() != password {
		t.Errorf("got %d bytes, %v", len(v.Reveal()), err)
	}
	for name, c := range map[string]struct {
		ring keyring
		want error
	}{
		"locked":            {keyring{sealed: true}, secret.ErrLocked},
		"no secret service": {keyring{broken: true}, secret.ErrKeyring},
	} {
		if err := secret.StoreKeyring(c.ring.serve(t), "github", "me", secret.New(password)); !errors.Is(err, c.want) {
			t.Errorf("%s: got %v, want %v", name, err, c.want)
		}
	}
	if err := secret.StoreKeyring(nil, "github", "me", secret.New(password)); !errors.Is(err, secret.ErrKeyring) {
		t.Errorf("no environment: got %v", err)
	}
}

func TestWithoutAKeyring(t *testing.T) {
	t.Parallel()
	for name, env := range map[string]func(string) (string, bool){
		"no environment":      nil,
		"no variables":        lookup(nil),
		"no bus":              lookup(map[string]string{"XDG_RUNTIME_DIR": t.TempDir()}),
		"a bus over TCP":      lookup(map[string]string{"DBUS_SESSION_BUS_ADDRESS": "tcp:host=127.0.0.1,port=1"}),
		"a bus to be started": lookup(map[string]string{"DBUS_SESSION_BUS_ADDRESS": "autolaunch:"}),
		"nonsense":            lookup(map[string]string{"DBUS_SESSION_BUS_ADDRESS": "unix:%zz"}),
		"no secret service":   keyring{broken: true}.serve(t),
	} {
		if _, err := secret.ReadKeyring(env, "github", "me"); !errors.Is(err, secret.ErrKeyring) {
			t.Errorf("%s: got %v", name, err)
		}
	}
}

// ReadKeyring gives up on a bus that never answers, so that the daemon can start.
func TestKeyringGivesUp(t *testing.T) {
	t.Parallel()
	start := time.Now()
	_, err := secret.ReadKeyring(keyring{silent: true}.serve(t), "github", "me")
	if !errors.Is(err, secret.ErrKeyring) || time.Since(start) > 20*time.Second {
		t.Errorf("after %v: %v", time.Since(start), err)
	}
}
