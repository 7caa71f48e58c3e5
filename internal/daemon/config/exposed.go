package config

import (
	"net/url"
	"os"
	"runtime"
	"strings"
)

// exposed reports whether every user of the machine can read a file. Windows has no mode bits.
func exposed(path string) bool {
	info, err := os.Stat(path)
	return err == nil && runtime.GOOS != "windows" && info.Mode().Perm()&0o004 != 0
}

// shortestSecret is the length from which a text can be a secret: MAX_TOKENS: 4096 is none.
const shortestSecret = 8

// isSecret reports whether the text of a key is probably a secret, judged by the name of the key.
// The connection string of a database is a secret if it contains a password.
func isSecret(key, text string) bool {
	if key == "store.postgres" {
		u, err := url.Parse(text)
		if err != nil || u.User == nil {
			return strings.Contains(text, "password=")
		}
		_, has := u.User.Password()
		return has
	}
	name := strings.ToLower(key[strings.LastIndex(key, ".")+1:])
	return len(text) >= shortestSecret && (secretName.MatchString(name) || name == "authorization" || name == "sign_in_key")
}
