package durable

import (
	"errors"
	"time"
)

// ErrLocked is wrapped by the error of Lock for a file that another process has locked.
var ErrLocked = errors.New("another process has locked it")

// lockPause is the time between two attempts of Lock.
const lockPause = 5 * time.Millisecond
