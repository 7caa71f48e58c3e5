package pin

// Definitions returns the approved definitions of a server: canonical JSON by item. It is
// empty if the manifest cannot be read; nil: the server is not known.
func (b *Book) Definitions(server string) map[string][]byte {
	r := b.known(server)
	if r == nil {
		return nil
	}
	return r.definitions()
}
