package watermark

import (
	"bytes"
	"slices"
	"unicode/utf8"
)

// shortest is the least number of bytes that a ref takes in any form.
const shortest = len("dwi") + refLetters

// span is a place of a text that a ref stands in.
type span struct {
	start, end int
	to         Delivery
}

// finder looks for refs in texts, one at a time. It is kept for its memory.
type finder struct {
	x       *Index
	spans   []span // in the text that was looked at last
	units   []byte // of one run
	place   place  // in that run
	cut     int    // up to here the words of that run are in spans
	meaning []byte // of one string
	most    int    // so many different refs are enough; 0: all are wanted
	met     []Delivery
}

// take is a finder of the index; give takes it back. Only what is to be cut has
// to be found to the last.
func (x *Index) take(mode Mode) *finder {
	f := x.pool.Get().(*finder)
	f.x, f.most, f.met = x, Enough, f.met[:0]
	if mode == Redact {
		f.most = 0
	}
	return f
}

// give drops memory that a large value has left behind.
func (x *Index) give(f *finder) {
	const keep = 4 << 20
	if cap(f.units) > keep || cap(f.meaning) > keep {
		*f = finder{}
	}
	x.pool.Put(f)
}

// find is the places of the known refs in text, not sorted, possibly one inside
// another. They are good until the next call. The time is linear in the text.
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

// add notes a place.
func (f *finder) add(s span) {
	f.spans = append(f.spans, s)
	if f.most > 0 && !slices.Contains(f.met, s.to) {
		f.met = append(f.met, s.to)
	}
}

// over reports whether enough was found.
func (f *finder) over() bool { return f.most > 0 && len(f.met) >= f.most }

// known reads a ref in w and looks it up.
func (f *finder) known(w window) (to Delivery, end int, ok bool) {
	k, end, ok := w.ref()
	if !ok {
		return to, 0, false
	}
	to, ok = f.x.find(k)
	return to, end, ok
}

// plain finds what stands in the text itself.
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

// coded finds what stands in runs of units.
func (f *finder) coded(c *code, text []byte) {
	for i := 0; i+c.least <= len(text) && !f.over(); {
		// A run that is long enough takes all bytes up to there: a byte that ends
		// one lets us go on behind it. This passes over most of what is no code.
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

// run looks at one run that begins at an offset of text, and says where it is
// over.
func (f *finder) run(c *code, text []byte, begin int) int {
	if cap(f.units) < len(text)-begin {
		f.units = make([]byte, 0, len(text)-begin)
	}
	units, n := f.units[:len(text)-begin], 0
	i := begin
	for i < len(text) {
		unit, size := c.table[text[i]], 1
		if unit == ask {
			if n == 0 && text[i] >= utf8.RuneSelf { // a run that has not begun does not end
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

// bytes looks at all that the units of one run make, whichever bit of them it
// begins with.
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

// inRun checks one bit of a run. A find takes the whole words that contain its
// units, because their rest is meaningless.
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

// place is where a unit of a run stands. It only goes forward, so that a run
// full of refs is gone through once.
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

// tags finds refs in tag characters, U+E0020 to U+E007E, the invisible copies of
// ASCII. Characters between them are ignored.
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
