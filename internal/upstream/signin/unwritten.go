package signin

// A renewed sign-in that the store cannot write is used from memory. The refresh token in its file was exchanged, and
// showing it again may void the new tokens too.

// newest returns the sign-in in the store, with the unwritten tokens if they are newer. A sign-in that was removed or
// made anew is not replaced.
func (s *Source) newest() (entry, bool) {
	e, ok := s.store.find(s.target.Server, s.target.resource)
	if u := s.unwritten.Load(); ok && u != nil && u.follows(e) {
		wanted := e.Wanted
		e = *u
		e.Wanted = wanted
	}
	return e, ok
}

// follows reports whether e has the same or later tokens of the same sign-in.
func (e entry) follows(o entry) bool {
	return e.name() == o.name() && e.Signed.Equal(o.Signed) && !o.Renewed.After(e.Renewed)
}

// save writes a sign-in, or keeps it as unwritten. The caller holds the lock.
func (s *Source) save(e entry) {
	err := s.store.write(e)
	if err == nil {
		s.unwritten.Store(nil)
		return
	}
	s.unwritten.Store(&e)
	s.log.Error("a renewed sign-in is only in memory: make room for it in the state directory before the daemon ends", "err", err)
}

// rewrite tries again to write an unwritten sign-in.
func (s *Source) rewrite() {
	if s.unwritten.Load() == nil {
		return
	}
	err := s.store.locked(s.target.Server, closeTime, func() error {
		e, ok := s.newest()
		if !ok {
			return nil // removed meanwhile
		}
		if err := s.store.write(e); err != nil {
			return err
		}
		s.unwritten.Store(nil)
		return nil
	})
	if err != nil {
		s.log.Debug("a renewed sign-in is still only in memory", "err", err)
	}
}
