package rawjson

import (
	"strconv"
	"strings"

	"github.com/go-json-experiment/json/jsontext"
)

// Comparable returns raw in a form that is the same for equal values and different for
// different ones. It is the form of RFC 8785, also for numbers, so that 1, 1.0 and 1e0
// are equal. A number that a double cannot represent exactly is written with all its
// digits, so that it stays different from the numbers that a double rounds to the same
// value. The form is meant for digests that decide whether two calls are equal, and not
// for readers.
func Comparable(raw []byte) []byte {
	text := Canonical(raw)
	out := make([]byte, 0, len(text))
	for i := 0; i < len(text); {
		n := 1
		switch c := text[i]; {
		case c == '"':
			n = StringEnd(text, i) - i
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

// inNumber reports whether a byte may follow the first one of a number.
func inNumber(c byte) bool {
	return c >= '0' && c <= '9' || c == '-' || c == '+' || c == '.' || c == 'e' || c == 'E'
}

// appendNumber appends the form of a number for Comparable. A number that decimalOf does
// not accept is appended unchanged.
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

// decimal is the number digits times ten to the exponent. digits neither begins nor ends
// with 0, and is empty for zero.
type decimal struct {
	negative bool
	digits   string
	exponent int64
}

// decimalOf parses a JSON number; false: it is none, or its exponent does not fit an int32.
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
