package doortest

import (
	"fmt"
	"slices"
	"strings"
)

// Rows returns the whole content of an SQLite database as text, except the columns
// in but. ask runs a query with one column of text.
func Rows(ask func(query string) []string, but ...string) string {
	var out strings.Builder
	for _, table := range ask(`SELECT name FROM sqlite_master WHERE type = 'table' ORDER BY name`) {
		columns := ask(`SELECT name FROM pragma_table_info('` + table + `') ORDER BY cid`)
		columns = slices.DeleteFunc(columns, func(c string) bool { return slices.Contains(but, c) })
		row := "quote(" + strings.Join(columns, ") || ',' || quote(") + ")"
		for _, text := range ask(`SELECT ` + row + ` FROM ` + table + ` ORDER BY 1`) {
			fmt.Fprintf(&out, "%s: %s\n", table, text)
		}
	}
	return out.String()
}

// FirstDifference returns the first differing lines of two texts.
func FirstDifference(a, b string) string {
	as, bs := strings.Split(a, "\n"), strings.Split(b, "\n")
	for i := range min(len(as), len(bs)) {
		if as[i] != bs[i] {
			return "- " + as[i] + "\n+ " + bs[i]
		}
	}
	return fmt.Sprintf("%d rows and %d", len(as), len(bs))
}
