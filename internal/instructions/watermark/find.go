package watermark

import (
	"bytes"
	"slices"
	"unicode/utf8"
)

// shortest is the least number of bytes that a ref takes in any form.
const shortest = len("dwi") + refLetters

// span is the place of a ref in a text.
type span struct {
	start, end int
	to         Delivery
}

// finder searches texts for refs, one at a time. It is reused to save allocations.
type finder struct {
	x       *Index
	spans   []span // in the text that was searched last
	units   []byte // of one run
	place   place  // in that run
	cut     int    // the words of that run up to here are covered by spans
	meaning []byte // decoded form of one string
	most    int    // the search stops after so many different refs; 0: it never does
	met     []Delivery
}

// take returns a finder of the index, which give returns to the pool. Only Redact has to
// find all refs.
func (x *Index) take(mode Mode) *finder {
	f := x.pool.Get().(*finder)
	f.x, f.most, f.met = x, Enough, f.met[:0]
	if mode == Redact {
		f.most = 0
	}
	return f
}

// give returns a finder to the pool, without large buffers.
func (x *Index) give(f *finder) {
	const keep = 4 << 20
	if cap(f.units) > keep || cap(f.meaning) > keep {
		*f = finder{}
	}
	x.pool.Put(f)
}

// find returns the places of the known refs in text, not sorted, possibly nested. They
// are valid until the next call. The time is linear in the text.
func (f *finder) find(text []byte) []span {
	f.spans = f.spans[:0]
	if len(text) < shortest {
		return nil
	}
	f.plain(text)
	for _, c := range codes {
		f.coded(c, text)
	}
	f.tags(text)
	return f.spans
}

// add adds a place.
func (f *finder) add(s span) {
	f.spans = append(f.spans, s)
	if f.most > 0 && !slices.Contains(f.met, s.to) {
		f.met = append(f.met, s.to)
	}
}

// over reports whether enough refs were found.
func (f *finder) over() bool { return f.most > 0 && len(f.met) >= f.most }

// known reads a ref in w and looks it up in the index.
func (f *finder) known(w window) (to Delivery, end int, ok bool) {
	k, end, ok := w.ref()
	if !ok {
		return to, 0, false
	}
	to, ok = f.x.find(k)
	return to, end, ok
}

// plain finds refs in the text itself.
func (f *finder) plain(text []byte) {
	for i := 0; i+shortest <= len(text) && !f.over(); i++ {
		if !starts[text[i]] || text[i] < utf8.RuneSelf && !second[text[i+1]] {
			continue
		}
		if to, n, ok := f.known(window{text, 8, 8 * i}); ok {
			f.add(span{i, i + n, to})
			i += n - 1
		}
	}
}

// coded finds refs in runs of units.
func (f *finder) coded(c *code, text []byte) {
	for i := 0; i+c.least <= len(text) && !f.over(); {
		// A run that is long enough extends over all bytes up to last. If one of them
		// ends a run, the search continues after it. This skips most of the text that is
		// no code.
		last := i + c.least - 1
		for last >= i && c.table[text[last]] != ends {
			last--
		}
		if last >= i {
			i = last + 1
			continue
		}
		i = f.run(c, text, i)
	}
}

// run searches the run that begins at an offset of text, and returns the offset at which
// it ends.
func (f *finder) run(c *code, text []byte, begin int) int {
	if cap(f.units) < len(text)-begin {
		f.units = make([]byte, 0, len(text)-begin)
	}
	units, n := f.units[:len(text)-begin], 0
	i := begin
	for i < len(text) {
		unit, size := c.table[text[i]], 1
		if unit == ask {
			if n == 0 && text[i] >= utf8.RuneSelf { // a run that has not begun cannot end
				i++
				continue
			}
			unit, size = c.other(text[i:])
		}
		i += size
		if unit >= 0 {
			units[n] = byte(unit)
			n++
		} else if unit == ends {
			break
		}
	}
	f.units = units[:n]
	if n >= c.least {
		f.place, f.cut = place{0, begin}, begin
		f.bytes(c, text)
	}
	return i
}

// bytes searches the bytes that the units of one run encode, at every bit offset.
func (f *finder) bytes(c *code, text []byte) {
	two, mask := 0, len(c.begins)-1
	for k, unit := range f.units {
		two = (two<<c.bits | int(unit)) & mask
		if c.begins[two] == 0 || k == 0 {
			continue
		}
		if f.over() {
			return
		}
		for r := range 3 {
			if c.begins[two]>>r&1 != 0 {
				f.inRun(c, text, (k-1)*c.bits+2*r)
			}
		}
	}
}

// inRun checks for a ref at one bit of a run. A find covers the whole words that contain
// its units, because the rest of them has no meaning.
func (f *finder) inRun(c *code, text []byte, bit int) {
	to, n, ok := f.known(window{f.units, c.bits, bit})
	if !ok {
		return
	}
	f.place.to(c, text, bit/c.bits)
	last := f.place
	last.to(c, text, (bit+8*n-1)/c.bits)
	start, end := f.place.offset, last.offset+1
	if end > f.cut {
		for start > f.cut && c.table[text[start-1]] >= 0 {
			start--
		}
		for end < len(text) && (c.table[text[end]] >= 0 || text[end] == '=') {
			end++
		}
		f.cut = end
	}
	f.add(span{start, end, to})
}

// place is the position of a unit of a run. It only moves forward, so that a run full of
// refs is read once.
type place struct{ unit, offset int }

func (p *place) to(c *code, text []byte, unit int) {
	for {
		what, size := c.at(text, p.offset)
		if what >= 0 {
			if p.unit == unit {
				return
			}
			p.unit++
		}
		p.offset += size
	}
}

// tags finds refs in tag characters, U+E0020 to U+E007E, the invisible copies of ASCII.
// Characters between them are ignored.
func (f *finder) tags(text []byte) {
	if !bytes.Contains(text, []byte("\U000E0064")) && !bytes.Contains(text, []byte("\U000E0044")) {
		return
	}
	f.units = f.units[:0]
	var at []int
	for i := 0; i < len(text); {
		r, size := utf8.DecodeRune(text[i:])
		if r > 0xE0000 && r < 0xE0080 {
			f.units = append(f.units, byte(r-0xE0000))
			at = append(at, i)
		}
		i += size
	}
	for i := range f.units {
		if f.over() {
			return
		}
		if to, n, ok := f.known(window{f.units, 8, 8 * i}); ok {
			f.add(span{at[i], at[i+n-1] + len("\U000E0064"), to})
		}
	}
}
