package config

import "path/filepath"

// environmentName is what an environment is called.
var environmentName = lazily(`^[a-z0-9][a-z0-9._-]{0,62}$`)

// checkInstructions checks where instructions come from, and how the daemon
// proves itself there.
func (d *decoder) checkInstructions(i *Instructions) {
	const at = "instructions"
	i.Given = d.lines[at+".dir"] > 0 && i.Dir != filepath.Join(d.dir, "instructions")
	if i.Environment != "" && !environmentName.MatchString(i.Environment) {
		d.also(at+".environment", "this has up to 63 lower-case letters, digits, dots, underscores and hyphens, the first a letter or digit")
	}
	signIn := d.lines[at+".oauth"] > 0
	if i.URL == "" {
		if !i.Token.Empty() || signIn || i.AllowPrivate {
			d.fail(at, `its key "url" is missing: token, oauth and allow_private are for a remote store`)
		}
		return
	}
	d.checkRemote(i, signIn)
}

func (d *decoder) checkRemote(i *Instructions, signIn bool) {
	const at = "instructions"
	switch {
	case !isHTTPS(i.URL):
		d.also(at+".url", "this must be an https address without user information, query or fragment")
	case d.o.CheckURL != nil:
		if err := d.o.CheckURL(i.URL, i.AllowPrivate); err != nil {
			d.also(at+".url", err.Error())
		}
	}
	switch {
	case i.Given:
		d.also(at+".dir", "a remote store takes the place of the directory: keep one of dir and url")
	case i.Review:
		d.also(at+".review", "what a remote store serves is reviewed there")
	case !i.Token.Empty() && signIn:
		d.also(at+".oauth", "there is a token already; keep one of the two")
	case i.Token.Empty() && !signIn:
		d.also(at+".url", "it needs token or oauth: a store gives nothing to nobody")
	case signIn && (i.OAuth.Grant != "client_credentials" || i.OAuth.ClientID == "" || i.OAuth.ClientSecret.Empty() || i.OAuth.AuthorizationServer == ""):
		d.also(at+".oauth", "this must be grant: client_credentials with client_id, client_secret and authorization_server")
	}
}
