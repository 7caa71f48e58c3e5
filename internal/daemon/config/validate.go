package config

import (
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/doorward/doorward/internal/base/plaintext"
	"github.com/doorward/doorward/internal/base/secret"
	"github.com/doorward/doorward/internal/trust/policy"
)

// hostName matches a DNS name in lower or upper case.
var hostName = lazily(`^[A-Za-z0-9]([A-Za-z0-9-]*[A-Za-z0-9])?(\.[A-Za-z0-9]([A-Za-z0-9-]*[A-Za-z0-9])?)*$`)

// listener checks the form of a listener. It does not check the address: an invalid one counts as not
// loopback, and the bind table decides.
func (k checker) listener(key string, l Listener) {
	if l.Addr == "" && !k.report.failed[key] {
		k.report.also(join(key, "addr"), "this must be host:port")
	}
	if l.TLS != nil && (l.TLS.Cert == "" || l.TLS.Key == "") {
		k.report.also(join(key, "tls"), "this needs both cert and key")
	}
	for i, h := range l.Hosts {
		if !isHost(h) {
			k.report.also(fmt.Sprintf("%s.hosts[%d]", key, i), "this must be a host name or literal address, with or without :port, and nothing else")
		}
	}
	for i, o := range l.Origins {
		if !isOrigin(o) {
			k.report.also(fmt.Sprintf("%s.origins[%d]", key, i), "this must be an origin such as https://app.example.com, without a path or wildcard")
		}
	}
	for i, p := range l.Proxies {
		if _, err := proxyNetwork(p); err != nil {
			k.report.also(fmt.Sprintf("%s.trusted_proxies[%d]", key, i), err.Error())
		}
	}
}

// proxyNetwork parses an entry of trusted_proxies. The address of a network must have no bits beyond its
// length, so that a mistake does not widen it, and a network of all addresses is refused.
func proxyNetwork(text string) (netip.Prefix, error) {
	if a, err := netip.ParseAddr(text); err == nil && a.Zone() == "" && !a.Is4In6() {
		return netip.PrefixFrom(a, a.BitLen()), nil
	}
	p, err := netip.ParsePrefix(text)
	switch {
	case err != nil || p.Addr().Is4In6():
		return p, errors.New("this must be an address or a network such as 10.0.0.0/8 or fd00::/8")
	case p.Bits() == 0:
		return p, errors.New("this would trust every address; name the proxies' own network")
	case p != p.Masked():
		return p, fmt.Errorf("this has bits set beyond the prefix length; write %v", p.Masked())
	}
	return p, nil
}

// isHost reports whether s is a valid value of a Host header.
func isHost(s string) bool {
	host, port := s, ""
	if i := strings.LastIndexByte(s, ':'); i >= 0 && !strings.HasSuffix(s, "]") {
		host, port = s[:i], s[i+1:]
		if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 || port[0] == '0' {
			return false
		}
	}
	if inner, ok := strings.CutPrefix(host, "["); ok {
		a, err := netip.ParseAddr(strings.TrimSuffix(inner, "]"))
		return err == nil && a.Is6() && a.Zone() == "" && strings.HasSuffix(host, "]")
	}
	return len(host) <= 253 && hostName.MatchString(host)
}

// isOrigin reports whether s is an origin as a browser sends it.
func isOrigin(s string) bool {
	scheme, host, ok := strings.Cut(s, "://")
	return ok && (scheme == "http" || scheme == "https") && isHost(host) && host == strings.ToLower(host)
}

// isHTTPS reports whether s is a plain https address.
func isHTTPS(s string) bool {
	u, err := url.Parse(s)
	return err == nil && u.Scheme == "https" && u.Host != "" && u.User == nil && u.RawQuery == "" && !u.ForceQuery && u.Fragment == ""
}

// scopeWord matches one of the words of doorward token new --scope.
var scopeWord = lazily(`^(agent|instructions|admin|server:[A-Za-z0-9_-]+|tool:[A-Za-z0-9_-]+/[^\s,]+)$`)

// oauth checks the section if it is in use.
func (k checker) oauth(o OAuth) {
	if o.Issuer == "" {
		if o.Audience != "" || len(o.Scopes) > 0 || o.AllowPrivate {
			k.report.fail("oauth", `its key "issuer" is missing`)
		}
		return
	}
	k.issuer(o)
	switch {
	case o.Audience == "":
		k.report.fail("oauth", "its key \"audience\" is missing; without it tokens that were meant for others would be accepted")
	case !isOwnURL(o.Audience):
		k.report.also("oauth.audience", "this must be this daemon's own URL such as https://door.example.com, in lower case and without a path; http is for loopback alone")
	}
	if len(o.Algorithms) == 0 {
		k.report.also("oauth.algorithms", "this must name at least one algorithm; leave it out for the usual ones")
	}
	if len(o.Scopes) == 0 && !k.report.failed["oauth.scopes"] {
		k.report.warn("oauth", "no scope grants anything, so its tokens may do nothing; list what they grant under scopes")
	}
	k.scopes(o)
}

// scopeServers warns of scopes that grant a server that is not configured.
func (k checker) scopeServers(c *Config) {
	for _, name := range slices.Sorted(maps.Keys(c.OAuth.Scopes)) {
		for i, w := range c.OAuth.Scopes[name] {
			if server := serverOfRight(w); server != "" && c.Servers[server] == nil {
				k.report.warn(fmt.Sprintf("%s[%d]", join("oauth.scopes", name), i), fmt.Sprintf("no server %s is configured%s", plaintext.Clip(server, maxShown),
					suggest(server, slices.Sorted(maps.Keys(c.Servers)))))
			}
		}
	}
}

// issuer checks the issuer's address.
func (k checker) issuer(o OAuth) {
	switch {
	case !isHTTPS(o.Issuer):
		k.report.also("oauth.issuer", "this must be an https address without user information, query or fragment")
	case len(o.Issuer) > 400:
		k.report.also("oauth.issuer", "this is longer than 400 characters")
	case k.o.CheckURL != nil:
		if err := k.o.CheckURL(o.Issuer, o.AllowPrivate); err != nil {
			k.report.also("oauth.issuer", err.Error())
		}
	}
}

// isOwnURL reports whether s can be the URL of a daemon. It has no path, because a daemon's paths are
// fixed.
func isOwnURL(s string) bool {
	s = strings.TrimSuffix(s, "/")
	if !isOrigin(s) {
		return false
	}
	rest, plain := strings.CutPrefix(s, "http://")
	if !plain {
		return true
	}
	host := rest
	if i := strings.LastIndexByte(rest, ':'); i >= 0 && !strings.HasSuffix(rest, "]") {
		host = rest[:i]
	}
	a, err := netip.ParseAddr(strings.Trim(host, "[]"))
	return host == "localhost" || err == nil && a.IsLoopback() && !a.Is4In6()
}

// scopeName matches a scope (RFC 6749, 3.3).
var scopeName = lazily(`^[\x21\x23-\x5b\x5d-\x7e]{1,128}$`)

// scopes checks what the scopes of the issuer grant.
func (k checker) scopes(o OAuth) {
	for _, name := range slices.Sorted(maps.Keys(o.Scopes)) {
		if !scopeName.MatchString(name) {
			k.report.also(join("oauth.scopes", name), "this cannot be the name of a scope, which has visible characters other than quotes and backslashes")
		}
		for i, w := range o.Scopes[name] {
			if !scopeWord.MatchString(w) {
				k.report.also(fmt.Sprintf("%s[%d]", join("oauth.scopes", name), i), "this must be server:NAME, tool:SERVER/NAME, agent, instructions or admin")
			}
		}
	}
}

// serverURL checks the address of a server.
func (k checker) serverURL(key string, s *Server) {
	raw := s.URL.Reveal()
	scheme, _, _ := strings.Cut(raw, ":")
	scheme = strings.ToLower(scheme)
	switch {
	case k.report.muted || k.report.failed[key]:
	case scheme != "http" && scheme != "https":
		k.report.refuse(key, "the address must begin with https:// or http://")
	case k.o.CheckURL != nil:
		if err := k.o.CheckURL(raw, s.Doorward.AllowPrivate); err != nil {
			k.report.refuse(key, err.Error())
		} else if scheme == "http" && !s.Doorward.AllowPrivate {
			k.report.warn(key, "http is not encrypted, so others on the network can read and change the data; write https")
		}
	}
}

// ownHeaders lists the headers that Doorward or the connection sets. A configured one would contradict
// them.
var ownHeaders = []string{
	"accept", "connection", "content-encoding", "content-length", "content-type", "forwarded", "host",
	"keep-alive", "last-event-id", "mcp-method", "mcp-name", "mcp-protocol-version", "mcp-session-id", "proxy-authorization", "proxy-connection", "te",
	"trailer", "transfer-encoding", "upgrade", "via", "x-forwarded-for", "x-real-ip",
}

// headerName matches a token (RFC 9110, 5.6.2).
var headerName = lazily("^[A-Za-z0-9!#$%&'*+.^_`|~-]{1,128}$")

// headers checks the headers that are sent to a server.
func (k checker) headers(key string, headers map[string]secret.Value) {
	seen := map[string]string{}
	for _, name := range slices.Sorted(maps.Keys(headers)) {
		at, folded := join(key, name), strings.ToLower(name)
		switch {
		case !headerName.MatchString(name):
			k.report.refuse(at, "this cannot be the name of a header, which has letters, digits and hyphens, and no space or colon; rename it")
		case slices.Contains(ownHeaders, folded):
			k.report.refuse(at, "this header cannot be set in the configuration; remove it")
		case strings.ContainsFunc(headers[name].Reveal(), isControl):
			k.report.refuse(at, "the value holds a line end or another control character, which no header may")
		}
		if first, twice := seen[folded]; twice {
			k.report.fail(at, fmt.Sprintf("duplicate header: %s differs in case alone; keep one", first))
		}
		seen[folded] = name
	}
}

// headerOf returns a configured header, ignoring case.
func headerOf(headers map[string]secret.Value, name string) (secret.Value, bool) {
	for h, v := range headers {
		if strings.EqualFold(h, name) {
			return v, true
		}
	}
	return secret.Value{}, false
}

// isControl reports whether RFC 9110, 5.5 excludes a character from a header's value.
func isControl(r rune) bool { return r < 0x20 && r != '\t' || r == 0x7f }

// patterns checks tool name patterns.
func (k checker) patterns(key string, patterns []string) {
	for i, p := range patterns {
		if p == "" || len(p) > 256 || strings.ContainsFunc(p, func(r rune) bool { return r <= 0x20 || r == 0x7f }) {
			k.report.also(fmt.Sprintf("%s[%d]", key, i), "this must be the name of a tool, in which * stands for any run of characters")
		}
	}
}

// held checks the patterns of the tools whose calls are held: a misspelled group of tools
// would hold nothing.
func (k checker) held(key string, patterns []string) {
	k.patterns(key, patterns)
	for i, p := range patterns {
		if strings.HasPrefix(p, "@") && p != policy.HeldDestructive && p != policy.HeldWrites {
			k.report.also(fmt.Sprintf("%s[%d]", key, i), "this must be the name of a tool, "+policy.HeldDestructive+" or "+policy.HeldWrites)
		}
	}
}

// TrustedProxies returns the networks of Proxies; entries that are not valid are left out.
func (l Listener) TrustedProxies() []netip.Prefix {
	var all []netip.Prefix
	for _, text := range l.Proxies {
		if p, err := proxyNetwork(text); err == nil {
			all = append(all, p)
		}
	}
	return all
}

// serverOfRight returns the configured server that a word names; empty: none.
func serverOfRight(word string) string {
	kind, rest, _ := strings.Cut(word, ":")
	server, _, _ := strings.Cut(rest, "/")
	if kind != "server" && kind != "tool" || slices.Contains(builtin, server) {
		return ""
	}
	return server
}
