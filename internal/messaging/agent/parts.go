package agent

// cursors makes cursors and opens them, under the key of the options.
type cursors struct{ o *Options }

// envelopes shows messages to the operator, with their signatures judged.
type envelopes struct{ o *Options }

// trail compares the book with the record of what was sent.
type trail struct{ o *Options }

// settings are the limits that callers meet.
type settings struct{ o *Options }

// assemble connects the parts of the server, which share its options.
func (s *Server) assemble() {
	s.cursors.o, s.envelopes.o, s.trail.o, s.settings.o = &s.o, &s.o, &s.o, &s.o
}

// addressing is a call that names other peers: who may be seen, and who is meant.
type addressing struct{ *call }

// starting is a call that starts an agent, or asks about one that it started.
type starting struct{ *call }
