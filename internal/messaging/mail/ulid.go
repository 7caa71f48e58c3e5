package mail

import (
	"crypto/rand"
	"sync"
)

// crockford is the alphabet of a ULID. It is in the order of the bytes, so that ids sort
// by their time.
const crockford = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"

// ids makes ULIDs. Those of one maker rise, also within a millisecond and when the clock
// steps back. They are addresses, not secrets: knowledge of one gives no access.
type ids struct {
	mu   sync.Mutex
	last [16]byte
}

// next returns an id for the time now (milliseconds).
func (m *ids) next(now int64) string {
	m.mu.Lock()
	defer m.mu.Unlock()
	var b [16]byte
	for i := range 6 {
		b[i] = byte(now >> (40 - 8*i))
	}
	if string(b[:6]) > string(m.last[:6]) {
		// crypto/rand never fails. The cleared top bit leaves room for increments.
		_, _ = rand.Read(b[6:])
		b[6] &= 0x7f
		m.last = b
	} else {
		for i := 15; i >= 0; i-- {
			if m.last[i]++; m.last[i] != 0 {
				break
			}
		}
	}
	return ulid(m.last)
}

// ulid encodes 128 bits as 26 characters.
func ulid(b [16]byte) string {
	var out [26]byte
	bits, have, at := uint(0), 2, 0 // two leading zero bits: 130 = 26 * 5
	for _, c := range b {
		bits, have = bits<<8|uint(c), have+8
		for ; have >= 5; at++ {
			have -= 5
			out[at] = crockford[bits>>have&31]
		}
	}
	return string(out[:])
}

// isID reports whether s has the form of an id.
func isID(s string) bool {
	if len(s) != 26 {
		return false
	}
	for i := range len(s) {
		c := s[i]
		switch {
		case c >= '0' && c <= '9', c >= 'A' && c <= 'Z' && c != 'I' && c != 'L' && c != 'O' && c != 'U':
		default:
			return false
		}
	}
	return true
}
