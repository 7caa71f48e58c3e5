package relay

import (
	"log/slog"

	"github.com/doorward/doorward/internal/relay/seal"
	"github.com/doorward/doorward/internal/trust/gate"
)

// translation makes the request of a server's era out of that of a client, and the
// client's answer out of the server's. It leaves out what policy does not let the client
// have.
type translation struct {
	gate  *gate.Gate
	seal  *seal.Sealer
	log   *slog.Logger
	watch watch
}
