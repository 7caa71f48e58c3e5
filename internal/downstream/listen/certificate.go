package listen

import (
	"crypto/tls"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/doorward/doorward/internal/base/durable"
	"github.com/doorward/doorward/internal/downstream/peer"
)

// certificate serves a key pair from two files and loads a new one when they change, so
// that a renewal needs no restart. A pair that cannot be loaded, for instance because
// half of it is written, leaves the current one in use.
type certificate struct {
	certFile, keyFile string
	places            [2]*durable.Pinned
	notice            func(string)

	mu      sync.Mutex
	pair    *tls.Certificate
	stamps  [2]peer.Stamp
	settled bool
	failed  string // the problem already reported
	looked  time.Time
}

// maxCertificate is an upper bound for the bytes of a chain or a key.
const maxCertificate = 1 << 20

// lookEvery is the shortest time between two checks of the files, made by handshakes.
const lookEvery = time.Second

func newCertificate(certFile, keyFile string, notice func(string)) (*certificate, error) {
	c := &certificate{certFile: certFile, keyFile: keyFile, notice: notice}
	now := time.Now()
	for i, name := range []string{certFile, keyFile} {
		place, err := durable.Pin(name)
		if err != nil {
			return nil, fmt.Errorf("loading the certificate: %w", err)
		}
		c.places[i] = place
	}
	stamps, err := c.look()
	if err != nil {
		return nil, fmt.Errorf("loading the certificate: %w", err)
	}
	if err := c.load(stamps, now); err != nil {
		return nil, fmt.Errorf("loading the certificate: %w", err)
	}
	c.looked = now
	return c, nil
}

// config returns the TLS configuration. It offers HTTP/1.1 only, because the front relies
// on its framing rules.
func (c *certificate) config() *tls.Config {
	return &tls.Config{
		MinVersion:     tls.VersionTLS12,
		NextProtos:     []string{"http/1.1"},
		GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return c.current(time.Now()), nil },
	}
}

// current returns the pair to use now.
func (c *certificate) current(now time.Time) *tls.Certificate {
	c.mu.Lock()
	defer c.mu.Unlock()
	if now.Sub(c.looked) < lookEvery {
		return c.pair
	}
	c.looked = now
	stamps, err := c.look()
	if err == nil {
		if stamps == c.stamps && c.settled {
			return c.pair
		}
		err = c.load(stamps, now)
	}
	c.report(err)
	return c.pair
}

// report reports each problem once.
func (c *certificate) report(err error) {
	if err == nil {
		c.failed = ""
		return
	}
	if text := err.Error(); text != c.failed {
		c.failed = text
		c.notice("the changed certificate could not be loaded, the previous one stays in use: " + text)
	}
}

func (c *certificate) look() (stamps [2]peer.Stamp, err error) {
	for i, name := range []string{c.certFile, c.keyFile} {
		if stamps[i], err = peer.StampOf(name); err != nil {
			return stamps, err
		}
	}
	return stamps, nil
}

func (c *certificate) load(stamps [2]peer.Stamp, now time.Time) error {
	var parts [2][]byte
	for i, place := range c.places {
		f, err := place.Open()
		if err != nil {
			return err
		}
		parts[i], err = io.ReadAll(io.LimitReader(f, maxCertificate))
		f.Close()
		if err != nil {
			return err
		}
	}
	pair, err := tls.X509KeyPair(parts[0], parts[1])
	if err != nil {
		return err
	}
	if c.pair != nil && stamps != c.stamps {
		c.notice("the changed certificate is in use")
	}
	c.pair, c.stamps = &pair, stamps
	c.settled = stamps[0].Settled(now) && stamps[1].Settled(now)
	return nil
}
