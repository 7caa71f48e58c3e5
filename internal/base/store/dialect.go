package store

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
)

// This file translates the differences between the SQL of the two engines.

var errPlaceholder = errors.New("store: a placeholder must have a number, such as ?1")

// statement is a query in the dialect of an engine, with the number of its
// arguments.
type statement struct {
	text string
	args int
}

// parse finds the placeholders of a query outside of literals, quoted names and comments,
// and writes them with prefix: `?` for SQLite, `$` for PostgreSQL.
func parse(query, prefix string) (statement, error) {
	var st statement
	var out strings.Builder
	err := pieces(query, func(piece string, code bool) error {
		for code {
			i := strings.IndexByte(piece, '?')
			if i < 0 {
				break
			}
			digits := len(piece[i+1:]) - len(strings.TrimLeft(piece[i+1:], "0123456789"))
			n, err := strconv.Atoi(piece[i+1 : i+1+digits])
			if err != nil || n == 0 || n > 1000 {
				return errPlaceholder
			}
			st.args = max(st.args, n)
			out.WriteString(piece[:i] + prefix + strconv.Itoa(n))
			piece = piece[i+1+digits:]
		}
		out.WriteString(piece)
		return nil
	})
	st.text = out.String()
	return st, err
}

// check refuses a wrong number of arguments: SQLite would use NULL for a missing one.
func (st statement) check(args []any) error {
	if len(args) != st.args {
		return fmt.Errorf("store: %d arguments for %d placeholders", len(args), st.args)
	}
	return nil
}

// postgresDDL translates a statement of a Migration for PostgreSQL. In SQLite an INTEGER
// has 64 bits, and text is ordered by its bytes.
func postgresDDL(query string) (string, error) {
	words := map[string]string{
		"BLOB": "BYTEA", "INTEGER": "BIGINT", "INT": "BIGINT", "REAL": "DOUBLE PRECISION",
		"TEXT": `TEXT COLLATE "C"`, "STRICT": "",
	}
	var out strings.Builder
	before := ""
	err := pieces(query, func(piece string, code bool) error {
		for code && piece != "" {
			word := piece[:wordEnd(piece)]
			if word == "" {
				word = piece[:1]
			} else if to, ok := words[strings.ToUpper(word)]; ok && !strings.EqualFold(before, "AS") {
				out.WriteString(to)
				before, piece = word, piece[len(word):]
				continue
			}
			if strings.TrimSpace(word) != "" {
				before = word
			}
			out.WriteString(word)
			piece = piece[len(word):]
		}
		out.WriteString(piece)
		return nil
	})
	return out.String(), err
}

func wordEnd(s string) int {
	for i := range len(s) {
		if c := s[i]; c != '_' && (c < '0' || c > '9') && (c|0x20 < 'a' || c|0x20 > 'z') && c < 0x80 {
			return i
		}
	}
	return len(s)
}

var errOpen = errors.New("store: a literal, name or comment is not terminated")

// pieces splits a query into code, and literals, quoted names and comments with their
// delimiters. Both engines read these alike, except nested comments, which are therefore refused.
func pieces(query string, each func(piece string, code bool) error) error {
	for query != "" {
		start := nextQuote(query)
		if err := each(query[:start], true); err != nil {
			return err
		}
		if query = query[start:]; query == "" {
			break
		}
		n, err := quoteEnd(query)
		if err != nil {
			return err
		}
		if err := each(query[:n], false); err != nil {
			return err
		}
		query = query[n:]
	}
	return nil
}

func nextQuote(s string) int {
	for i := range len(s) {
		switch s[i] {
		case '\'', '"':
			return i
		case '-', '/':
			if strings.HasPrefix(s[i:], "--") || strings.HasPrefix(s[i:], "/*") {
				return i
			}
		}
	}
	return len(s)
}

// quoteEnd returns the length of the literal, name or comment at the beginning of s. A
// literal with a doubled quote counts as two adjacent pieces, with the same result.
func quoteEnd(s string) (int, error) {
	switch s[0] {
	case '-':
		if i := strings.IndexByte(s, '\n'); i >= 0 {
			return i + 1, nil
		}
		return len(s), nil
	case '/':
		i := strings.Index(s[2:], "*/")
		if i < 0 || strings.Contains(s[2:2+i], "/*") {
			return 0, errOpen
		}
		return i + 4, nil
	}
	i := strings.IndexByte(s[1:], s[0])
	if i < 0 {
		return 0, errOpen
	}
	return i + 2, nil
}

// quote returns a quoted name in SQL.
func quote(name string) string { return `"` + strings.ReplaceAll(name, `"`, `""`) + `"` }
