package peer

import "errors"

// ErrLineage: the processes above a peer cannot be told to the end. Whoever
// asks in order to refuse somebody refuses then too.
var ErrLineage = errors.New("the processes above the peer cannot be told")
