package daemon

import (
	"net/http"
	"slices"

	"github.com/doorward/doorward/internal/daemon/admin"
	"github.com/doorward/doorward/internal/daemon/config"
	"github.com/doorward/doorward/internal/daemon/telemetry"
	"github.com/doorward/doorward/internal/upstream/egress"
	"github.com/doorward/doorward/internal/upstream/pin"
)

// openTelemetry starts the measurements. If nothing can be sent to the collector, the daemon
// logs that and runs without it.
func openTelemetry(d *Daemon) {
	knows := func(server, tool string) bool {
		return slices.Contains(d.definitions.pins.Names(server, pin.Tools), tool)
	}
	o := telemetry.Options{Knows: knows, Version: d.o.Version, Log: d.log}
	c := d.o.Config
	d.metrics = admin.NewRegistry(api{d}.status, api{d}.measure)
	var err error
	if c.Telemetry.OTLP != "" {
		if o.OTLP, err = collector(c); err == nil {
			o.OTLP.Gather = d.metrics
		}
	}
	if err == nil {
		d.telemetry, err = telemetry.New(o)
	}
	if err != nil {
		d.log.Error("no telemetry is sent", "err", err)
		o.OTLP = nil
		d.telemetry, _ = telemetry.New(o) // without a collector there is no error
	}
	d.metrics.MustRegister(d.telemetry)
}

// collector returns the connection to the collector. A private address is allowed if no proxy
// is configured, or if the URL names it literally.
func collector(c *config.Config) (*telemetry.Collector, error) {
	u, err := egress.CheckURL(c.Telemetry.OTLP)
	if err != nil {
		return nil, err
	}
	client := egress.NewClient(egress.Options{AllowPrivate: c.Egress.Proxy == "" || egress.CheckLiteral(u, false) != nil, Origin: egress.Origin(u), Proxy: c.Egress.Proxy})
	headers := make(map[string]string, len(c.Telemetry.Headers))
	for name, v := range c.Telemetry.Headers {
		headers[http.CanonicalHeaderKey(name)] = v.Reveal()
	}
	return &telemetry.Collector{URL: u.String(), Headers: headers, Client: client}, nil
}
