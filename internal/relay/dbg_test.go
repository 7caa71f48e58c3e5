package relay

import (
	"fmt"
	"os"
	"time"
)

func dbgLeft() {
	time.Sleep(3 * time.Second)
	fmt.Fprintln(os.Stderr, "LEFT:", leftovers())
}
