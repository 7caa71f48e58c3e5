package secret

import (
	"context"
	"fmt"

	"github.com/godbus/dbus/v5"
)

// StoreKeyring writes the entry that ReadKeyring finds under service and name to the user's
// default collection. It replaces an existing entry there. The error is ErrKeyring,
// ErrLocked, or one of ReadKeyring if the new entry is not found, such as ErrManyEntries.
func StoreKeyring(env func(string) (string, bool), service, name string, v Value) error {
	if err := storeKeyring(SessionBus(env), service, name, v); err != nil {
		return fmt.Errorf("storing %s/%s in the keyring: %w", service, name, err)
	}
	return nil
}

func storeKeyring(address, service, name string, v Value) error {
	if address == "" {
		return ErrKeyring
	}
	ctx, cancel := context.WithTimeout(context.Background(), keyringPatience)
	defer cancel()
	conn, err := dbus.Connect(address, dbus.WithContext(ctx))
	if err != nil {
		return ErrKeyring
	}
	defer conn.Close()
	var output dbus.Variant
	var session, collection dbus.ObjectPath
	if err := call(ctx, conn, servicePath, ifaceService+"OpenSession", plainAlgorithm, dbus.MakeVariant("")).Store(&output, &session); err != nil {
		return ErrKeyring
	}
	if err := call(ctx, conn, servicePath, ifaceService+"ReadAlias", "default").Store(&collection); err != nil || collection == "/" {
		return ErrKeyring
	}
	return createItem(ctx, conn, collection, map[string]string{attrService: service, attrUser: name},
		wireSecret{Session: session, Parameters: []byte{}, Value: []byte(v.Reveal()), ContentType: "text/plain"})
}

// createItem creates or replaces the entry with these attributes. If the collection must be
// unlocked, the service returns the path of a prompt instead of an item.
func createItem(ctx context.Context, conn *dbus.Conn, collection dbus.ObjectPath, attributes map[string]string, s wireSecret) error {
	properties := map[string]dbus.Variant{
		ifaceItem + "Label":      dbus.MakeVariant("Doorward: " + attributes[attrUser]),
		ifaceItem + "Attributes": dbus.MakeVariant(attributes),
	}
	var item, prompt dbus.ObjectPath
	err := call(ctx, conn, collection, "org.freedesktop.Secret.Collection.CreateItem", properties, s, true).Store(&item, &prompt)
	if err != nil || item == "/" {
		return ErrLocked
	}
	if found, err := findItem(ctx, conn, attributes[attrService], attributes[attrUser]); err != nil || found == "" {
		return err
	}
	return nil
}
