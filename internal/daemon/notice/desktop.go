package notice

import (
	"context"
	"errors"
	"fmt"
	"html"
	"slices"
	"time"

	"github.com/godbus/dbus/v5"

	"github.com/doorward/doorward/internal/base/plaintext"
)

// The notification service of the desktop (Desktop Notifications Specification 1.2).
const (
	service = "org.freedesktop.Notifications"
	object  = dbus.ObjectPath("/org/freedesktop/Notifications")
)

// desktopTime bounds one notice on the desktop.
const desktopTime = 5 * time.Second

// mostShown is the largest number of bytes of a name on the desktop.
const mostShown = 120

// show shows a notice on the desktop. It has no action button: any program on the session
// bus, for instance an agent, could invoke it.
func show(ctx context.Context, address string, c Call) error {
	ctx, cancel := context.WithTimeout(ctx, desktopTime)
	defer cancel()
	conn, err := dbus.Connect(address, dbus.WithContext(ctx))
	if err != nil {
		return fmt.Errorf("reaching the session bus: %w", err)
	}
	defer conn.Close()
	o := conn.Object(service, object)
	var can []string
	var no dbus.Error
	err = o.CallWithContext(ctx, service+".GetCapabilities", 0).Store(&can)
	if errors.As(err, &no) && no.Name == "org.freedesktop.DBus.Error.ServiceUnknown" {
		return nil // without the service there is no desktop
	}
	if err != nil {
		return fmt.Errorf("asking the notification service: %w", err)
	}
	body, what := c.text(), "call"
	if c.Message {
		what = "message"
	}
	if slices.Contains(can, "body-markup") {
		body = html.EscapeString(body)
	}
	var id uint32
	err = o.CallWithContext(ctx, service+".Notify", 0, "Doorward", uint32(0), "", fmt.Sprintf("Doorward holds %s %d", what, c.N), body,
		[]string{}, map[string]dbus.Variant{"urgency": dbus.MakeVariant(byte(1))}, int32(-1)).Store(&id)
	if err != nil {
		return fmt.Errorf("showing a notice: %w", err)
	}
	return nil
}

// text returns the text of a notice. Names are clipped, made visible and kept on one line.
func (c Call) text() string {
	name := func(s string) string { return plaintext.Clip(plaintext.Line(s), mostShown) }
	who := c.Principal
	if c.Client != "" {
		who = c.Client
	}
	return fmt.Sprintf("%s for %s, until %s\nDecide with doorward pending, or in the console.", name(c.Server+"/"+c.Tool), name(who), c.Expires.Local().Format("15:04"))
}
