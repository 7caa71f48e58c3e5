package peer

import "errors"

// ErrLineage means that the processes above a peer cannot be determined completely. A
// check that looks for a forbidden ancestor must then refuse.
var ErrLineage = errors.New("the processes above the peer cannot be determined")
