package config

import (
	"net/url"
	"strings"

	"github.com/doorward/doorward/internal/base/secret"
)

// SignIn is how Doorward gets access tokens for a server that asks for OAuth.
type SignIn struct {
	Grant               string       `yaml:"grant" default:"authorization_code" enum:"authorization_code|client_credentials|off" doc:"authorization_code waits for doorward login, client_credentials signs in by itself with client_secret, off sends no token. See upstream-oauth.md."`
	ClientID            string       `yaml:"client_id" refs:"env" doc:"The client id under which Doorward was registered by hand. Without it client_metadata_url is used where the authorization server accepts it, else dynamic registration."`
	ClientSecret        secret.Value `yaml:"client_secret" refs:"any" doc:"Its secret, if it has one. It needs authorization_server, because it is sent nowhere else."`
	Scopes              []string     `yaml:"scopes" doc:"The scopes to ask for. Without the key: the scopes that the server names."`
	ClientMetadataURL   string       `yaml:"client_metadata_url" refs:"env" doc:"The address at which you publish the client metadata document of this Doorward: https, with a path."`
	AuthorizationServer string       `yaml:"authorization_server" refs:"env" doc:"The issuer URL, exactly as its metadata write it. Without the key: the first one in the server's metadata. With allow_private it may be at a private address too."`
	CallbackPort        int          `yaml:"callback_port" default:"0" min:"0" max:"65535" doc:"Port on 127.0.0.1 to which the browser comes back. 0 is any that is free."`
}

// Egress is the way out, for everything that goes to servers over the network.
type Egress struct {
	Proxy string `yaml:"proxy" refs:"env" doc:"An HTTP proxy, http://host:port, for servers without allow_private. The proxy then looks up names and dials addresses, and its rules decide which are allowed. HTTP_PROXY and similar variables are never used."`
}

// signIn checks how a server is signed in to.
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
