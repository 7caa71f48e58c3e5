package egress

import (
	"errors"
	"net"
	"net/netip"
	"net/url"
	"strconv"
	"strings"
)

// CheckURL parses the URL of an upstream and refuses every form that two parsers could read
// differently. It accepts scheme http or https and a host, without user information, opaque part,
// fragment, backslash, space or control character. A bracketed host is an IPv6 literal without
// zone, a host whose last label is numeric a dotted IPv4 literal, any other an ASCII name without a
// trailing dot. A query is allowed.
//
// In the returned URL host and scheme are lower-case, an IPv6 literal is in its shortest form and a
// port has no leading zeros. Errors never quote the URL, because it may contain a key.
func CheckURL(raw string) (*url.URL, error) {
	if err := checkText(raw); err != nil {
		return nil, err
	}
	u, err := url.Parse(raw)
	if err != nil {
		return nil, errors.New("not a valid URL") // the parser's error quotes it
	}
	switch {
	case u.Scheme != "http" && u.Scheme != "https":
		return nil, errors.New("the scheme must be http or https")
	case u.Opaque != "":
		return nil, errors.New("the scheme must be followed by //")
	case u.User != nil:
		return nil, errors.New("user information is not allowed: put a credential in headers")
	case u.Host == "":
		return nil, errors.New("the host is missing; write https://HOST/PATH")
	}
	if u.Host, err = canonicalHost(u); err != nil {
		return nil, err
	}
	return u, nil
}

func checkText(raw string) error {
	for i := range len(raw) {
		switch c := raw[i]; {
		case c <= ' ' || c == 0x7f:
			return errors.New("a space or control character is not allowed; write a space as %20")
		case c == '\\':
			return errors.New("a backslash is not allowed")
		case c == '#':
			return errors.New("a fragment is not allowed")
		}
	}
	return nil
}

// canonicalHost checks host and port and returns their canonical form.
func canonicalHost(u *url.URL) (string, error) {
	host, err := checkHost(u.Hostname(), strings.HasPrefix(u.Host, "["))
	if err != nil {
		return "", err
	}
	port := u.Port()
	if port == "" {
		if strings.HasSuffix(u.Host, ":") {
			return "", errors.New("the port is missing after the colon")
		}
		return host, nil
	}
	n, err := strconv.ParseUint(port, 10, 16)
	if err != nil || n == 0 {
		return "", errors.New("the port must be from 1 to 65535")
	}
	return host + ":" + strconv.FormatUint(n, 10), nil
}

func checkHost(host string, bracketed bool) (string, error) {
	if bracketed {
		addr, err := netip.ParseAddr(host)
		if err != nil || !addr.Is6() || addr.Zone() != "" {
			return "", errors.New("a host in brackets must be an IPv6 address without a zone")
		}
		return "[" + addr.String() + "]", nil
	}
	host = strings.ToLower(host)
	if endsNumeric(host) {
		addr, err := netip.ParseAddr(host)
		if err != nil || !addr.Is4() {
			return "", errors.New("a host that ends in a number must be an IPv4 address of four decimal numbers")
		}
		return addr.String(), nil
	}
	return host, checkLabels(host)
}

// endsNumeric reports whether some resolver takes the last label for a number: decimal, octal or
// hexadecimal.
func endsNumeric(host string) bool {
	last := host[strings.LastIndexByte(strings.TrimSuffix(host, "."), '.')+1:]
	last = strings.TrimSuffix(last, ".")
	if hex, ok := strings.CutPrefix(last, "0x"); ok {
		return strings.Trim(hex, "0123456789abcdef") == ""
	}
	return last != "" && strings.Trim(last, "0123456789") == ""
}

func checkLabels(host string) error {
	if strings.HasSuffix(host, ".") {
		return errors.New("the host must not end in a dot")
	}
	if len(host) > 253 {
		return errors.New("the host is longer than 253 characters")
	}
	for label := range strings.SplitSeq(host, ".") {
		if label == "" || len(label) > 63 {
			return errors.New("the host has a label that is empty or longer than 63 characters")
		}
		if strings.Trim(label, "abcdefghijklmnopqrstuvwxyz0123456789-_") != "" {
			return errors.New("the host may have letters, digits, - and _ only; write an international name in its xn-- form")
		}
	}
	return nil
}

// Origin returns scheme, host and port of a URL, the port always included. Two URLs have the same
// origin if it is equal. Both must come from CheckURL, or be resolved against one that does.
func Origin(u *url.URL) string {
	port := u.Port()
	if port == "" {
		port = "80"
		if strings.EqualFold(u.Scheme, "https") {
			port = "443"
		}
	}
	return strings.ToLower(u.Scheme) + "://" + net.JoinHostPort(strings.ToLower(u.Hostname()), port)
}
