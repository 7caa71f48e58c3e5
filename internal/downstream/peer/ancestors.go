package peer

import "errors"

// ErrLineage means that the processes above a peer cannot be determined
// completely. A caller that asks in order to refuse must refuse then too.
var ErrLineage = errors.New("the processes above the peer cannot be determined")
