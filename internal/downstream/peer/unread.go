package peer

import "errors"

// ErrUnreadUnknown means that this system does not report how much of the data written to
// a connection its peer has read.
var ErrUnreadUnknown = errors.New("the amount of unread data cannot be determined")
