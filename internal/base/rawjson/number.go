package rawjson

import (
	"strconv"
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/doorward/doorward/internal/trust/wire"
)

// Comparable is raw in a form that equal values share and different ones do not: that of
// RFC 8785, numbers too, so that 1, 1.0 and 1e0 are one. A number that a double does not
// hold exactly, for which RFC 8785 has no form of its own, is written out: two of them
// that a double cannot tell apart stay two. It is meant for digests that decide whether
// two calls are equal, and not for readers.
func Comparable(raw []byte) []byte {
	text := Canonical(raw)
	out := make([]byte, 0, len(text))
	for i := 0; i < len(text); {
		n := 1
		switch c := text[i]; {
		case c == '"':
			n = wire.StringEnd(text, i) - i
		case c == '-' || c >= '0' && c <= '9':
			for i+n < len(text) && inNumber(text[i+n]) {
				n++
			}
			out = appendNumber(out, string(text[i:i+n]))
			i += n
			continue
		}
		out = append(out, text[i:i+n]...)
		i += n
	}
	return out
}

// inNumber reports whether a byte may stand behind the first one of a number.
func inNumber(c byte) bool {
	return c >= '0' && c <= '9' || c == '-' || c == '+' || c == '.' || c == 'e' || c == 'E'
}

// appendNumber appends the one form of a number. One that cannot be read stays as it is.
func appendNumber(dst []byte, text string) []byte {
	exact, ok := decimalOf(text)
	if !ok {
		return append(dst, text...)
	}
	if exact.digits == "" {
		return append(dst, '0')
	}
	if f, err := strconv.ParseFloat(text, 64); err == nil {
		if short := jsontext.Float(f).String(); exact.equals(short) {
			return append(dst, short...)
		}
	}
	if exact.negative {
		dst = append(dst, '-')
	}
	dst = append(append(dst, exact.digits...), 'E')
	return strconv.AppendInt(dst, exact.exponent, 10)
}

// decimal is digits times ten to the exponent; the digits neither begin nor end with 0,
// and there are none of zero.
type decimal struct {
	negative bool
	digits   string
	exponent int64
}

// decimalOf reads a number of JSON; false: it is none, or its exponent is beyond an int32.
func decimalOf(text string) (d decimal, ok bool) {
	text, d.negative = strings.CutPrefix(text, "-")
	mantissa, power, _ := strings.Cut(strings.ToLower(text), "e")
	whole, fraction, _ := strings.Cut(mantissa, ".")
	all := whole + fraction
	if all == "" || strings.Trim(all, "0123456789") != "" {
		return d, false
	}
	cut := strings.TrimRight(all, "0")
	d.digits = strings.TrimLeft(cut, "0")
	if d.digits == "" {
		return decimal{}, true
	}
	if power != "" {
		var err error
		if d.exponent, err = strconv.ParseInt(power, 10, 32); err != nil {
			return d, false
		}
	}
	d.exponent += int64(len(all) - len(cut) - len(fraction))
	return d, true
}

func (d decimal) equals(text string) bool {
	other, ok := decimalOf(text)
	return ok && d == other
}
