package upstream

// inFlight holds the running calls of a connection, which know their places in it. A connection
// without a call keeps little memory for it.
type inFlight []*httpCall

// fewCalls is the largest room for calls that a connection without a call keeps.
const fewCalls = 4

func (f *inFlight) add(x *httpCall) {
	x.place = len(*f)
	*f = append(*f, x)
}

// remove takes out a call, and moves the last one to its place.
func (f *inFlight) remove(x *httpCall) {
	all := *f
	last := len(all) - 1
	all[x.place] = all[last]
	all[x.place].place = x.place
	all[last] = nil
	*f = all[:last]
	if last == 0 && cap(all) > fewCalls {
		*f = nil
	}
}

// find returns the call with an id; nil: there is none.
func (f inFlight) find(id int64) *httpCall {
	for _, x := range f {
		if x.id == id {
			return x
		}
	}
	return nil
}
