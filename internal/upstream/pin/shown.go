package pin

// Definitions are what was approved of a server: canonical JSON by item. nil:
// nothing is known of it, or its manifest cannot be read.
func (b *Book) Definitions(server string) map[string][]byte {
	r := b.known(server)
	if r == nil {
		return nil
	}
	return r.definitions()
}
