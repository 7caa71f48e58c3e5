package peer

import "errors"

// ErrUnreadUnknown: this system cannot say how much of what was written to the
// connection its peer has read.
var ErrUnreadUnknown = errors.New("the amount of unread data cannot be determined")
