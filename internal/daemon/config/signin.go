package config

import (
	"net/url"
	"strings"
)

// signIn checks the sign-in settings of a server.
func (k checker) signIn(key string, s *Server) {
	o, at := s.Doorward.OAuth, key+".doorward.oauth"
	_, own := headerOf(s.Headers, "authorization")
	switch {
	case k.report.lines[at] == 0 || o.Grant == "off":
		return
	case own:
		k.report.refuse(at, "headers has an Authorization already; keep one of the two")
	case o.Grant == "client_credentials" && (o.ClientID == "" || o.ClientSecret.Empty()):
		k.report.refuse(at, "client_credentials needs client_id and client_secret")
	case !o.ClientSecret.Empty() && o.ClientID == "":
		k.report.refuse(at, "client_secret needs client_id")
	case !o.ClientSecret.Empty() && o.AuthorizationServer == "":
		k.report.refuse(at, "client_secret needs authorization_server: the secret is sent to that server alone, not to one that the MCP server names")
	}
	if u, err := url.Parse(o.ClientMetadataURL); o.ClientMetadataURL != "" && (err != nil || !isHTTPS(o.ClientMetadataURL) || u.Path == "" || u.Path == "/") {
		k.report.refuse(at+".client_metadata_url", "this must be an https address with a path, without user information, query or fragment")
	}
	if o.AuthorizationServer != "" && k.o.CheckURL != nil {
		if err := k.o.CheckURL(o.AuthorizationServer, s.Doorward.AllowPrivate); err != nil {
			k.report.refuse(at+".authorization_server", err.Error())
		}
	}
}

// egress checks the proxy.
func (k checker) egress(e Egress) {
	if e.Proxy == "" || k.o.CheckURL == nil {
		return
	}
	if err := k.o.CheckURL(e.Proxy, true); err != nil {
		k.report.also("egress.proxy", err.Error())
	} else if u, err := url.Parse(e.Proxy); err != nil || strings.Trim(u.Path, "/") != "" || u.RawQuery != "" || u.ForceQuery {
		k.report.also("egress.proxy", "this must be http://host:port, without a path or query")
	}
}
