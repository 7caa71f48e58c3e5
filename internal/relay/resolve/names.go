package resolve

import "strings"

// On the aggregate a tool or prompt is `server__name`, and a resource
// `doorward://server/` followed by the server's own URI, which stays readable
// and can be undone without looking anything up. Server names hold no `__`
// and no slash, so both forms split in one way only.
const (
	joint  = "__"
	scheme = "doorward://"
)

// JoinName returns the aggregate's name of a server's tool or prompt.
func JoinName(server, name string) string { return server + joint + name }

// SplitName undoes JoinName. False: full is no such name, and server and name are empty.
func SplitName(full string) (server, name string, ok bool) {
	return whole(strings.Cut(full, joint))
}

// JoinURI returns the aggregate's URI of a server's resource.
func JoinURI(server, uri string) string { return scheme + server + "/" + uri }

// SplitURI undoes JoinURI, as SplitName does JoinName.
func SplitURI(full string) (server, uri string, ok bool) {
	rest, ok := strings.CutPrefix(full, scheme)
	if !ok {
		return "", "", false
	}
	return whole(strings.Cut(rest, "/"))
}

func whole(server, name string, ok bool) (string, string, bool) {
	if !ok || server == "" || name == "" {
		return "", "", false
	}
	return server, name, true
}
