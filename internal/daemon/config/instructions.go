package config

import "path/filepath"

// environmentName matches the name of an environment.
var environmentName = lazily(`^[a-z0-9][a-z0-9._-]{0,62}$`)

// instructions checks the source of instructions, and the daemon's credentials for it.
func (k checker) instructions(i *Instructions) {
	const at = "instructions"
	i.Given = k.report.lines[at+".dir"] > 0 && i.Dir != filepath.Join(k.dir, "instructions")
	if i.Environment != "" && !environmentName.MatchString(i.Environment) {
		k.report.also(at+".environment", "this has up to 63 lower-case letters, digits, dots, underscores and hyphens, the first a letter or digit")
	}
	signIn := k.report.lines[at+".oauth"] > 0
	if i.URL == "" {
		if !i.Token.Empty() || signIn || i.AllowPrivate {
			k.report.fail(at, `its key "url" is missing: token, oauth and allow_private are for a remote store`)
		}
		return
	}
	k.remote(i, signIn)
}

func (k checker) remote(i *Instructions, signIn bool) {
	const at = "instructions"
	switch {
	case !isHTTPS(i.URL):
		k.report.also(at+".url", "this must be an https address without user information, query or fragment")
	case k.o.CheckURL != nil:
		if err := k.o.CheckURL(i.URL, i.AllowPrivate); err != nil {
			k.report.also(at+".url", err.Error())
		}
	}
	switch {
	case i.Given:
		k.report.also(at+".dir", "a remote store takes the place of the directory: keep one of dir and url")
	case i.Review:
		k.report.also(at+".review", "the documents of a remote store are reviewed there")
	case !i.Token.Empty() && signIn:
		k.report.also(at+".oauth", "there is a token already; keep one of the two")
	case i.Token.Empty() && !signIn && k.report.lines[at+".token"] == 0: // a token with a problem is reported there
		k.report.also(at+".url", "it needs token or oauth: a remote store requires authentication")
	case signIn && (i.OAuth.Grant != "client_credentials" || i.OAuth.ClientID == "" || i.OAuth.ClientSecret.Empty() || i.OAuth.AuthorizationServer == ""):
		k.report.also(at+".oauth", "this must be grant: client_credentials with client_id, client_secret and authorization_server")
	}
}
