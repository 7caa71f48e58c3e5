package peer

import "errors"

// ErrUnreadUnknown: this system cannot say how much of what was written to the
// connection its peer has read.
var ErrUnreadUnknown = errors.New("what the peer has not read cannot be told")
