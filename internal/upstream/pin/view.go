package pin

// View returns the guard for a new connection.
func (g *Guard) View() *View { return &View{g} }

// Meet is Guard.Meet on this connection.
func (v *View) Meet(era string, capabilities, instructions []byte) {
	v.meet(v, era, capabilities, instructions)
}

// Instructions is Guard.Instructions on this connection.
func (v *View) Instructions(era string, text []byte) []byte { return v.instructions(v, era, text) }

// Judge is Guard.Judge on this connection.
func (v *View) Judge(a Asker, k Kind, entries []byte) *Verdict { return v.judge(v, a, k, entries) }

// Outdated takes the list of this connection for one that was not judged, because the server
// says that it has changed. What was withheld on it stays withheld.
func (v *View) Outdated(k Kind) {
	r, group := v.record, k.key("")
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.views[v][group]) == 0 {
		delete(r.views[v], group)
	}
}

// Shut is Guard.Shut, except that the list of this connection decides if it was judged.
func (v *View) Shut(k Kind, name string) Reason {
	if why := v.shutAll(k); why != "" {
		return why
	}
	why := v.Guard.Shut(k, name)
	if why == "" {
		return ""
	}
	r := v.record
	r.mu.Lock()
	defer r.mu.Unlock()
	mine, judged := r.views[v][k.key("")]
	if !judged {
		return why
	}
	return resembling(k, name, mine, func(w *Withheld) Reason { return w.Reason })
}

// Close ends a connection. Definitions that were withheld on it stay withheld until the
// server sends another list or greeting.
func (v *View) Close() {
	r := v.record
	r.mu.Lock()
	defer r.mu.Unlock()
	mine := r.views[v]
	delete(r.views, v)
	for group, held := range mine {
		r.holders.note(v, group, false)
		if len(held) > 0 {
			r.views[nil] = with(r.views[nil], group, held)
			r.holders.note(nil, group, true)
		}
		r.unite(group, nil)
	}
	r.publish()
}
