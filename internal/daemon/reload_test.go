package daemon

import (
	"slices"
	"testing"

	"github.com/doorward/doorward/internal/daemon/config"
)

// TestAProxyThatIsInUseNeedsARestart: another proxy needs a restart when an issuer,
// a collector or remote documents use it. Servers alone are connected again.
func TestAProxyThatIsInUseNeedsARestart(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		set  func(*config.Config)
		want []string
	}{
		"servers alone":    {func(*config.Config) {}, nil},
		"an issuer":        {func(c *config.Config) { c.OAuth.Issuer = "https://issuer.example" }, []string{"egress"}},
		"a collector":      {func(c *config.Config) { c.Telemetry.OTLP = "http://collector.example" }, []string{"egress"}},
		"remote documents": {func(c *config.Config) { c.Instructions.URL = "https://store.example" }, []string{"egress"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var now, next config.Config
			c.set(&now)
			c.set(&next)
			next.Egress.Proxy = "http://proxy.example:3128"
			if got := needRestart(&now, &next); !slices.Equal(got, c.want) {
				t.Errorf("got %v, want %v", got, c.want)
			}
		})
	}
}
