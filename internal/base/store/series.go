package store

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// The steps of one package are a series: "mail-1", "mail-2", … New steps are added at the
// end of a series. A database gets the missing steps of each series independently of the
// others, so the order of the series in Options.Migrations does not matter.

// inSeries returns the series of a step and its number in it.
func inSeries(name string) (series string, n int, ok bool) {
	i := strings.LastIndexByte(name, '-')
	if i < 1 || strings.Trim(name, "abcdefghijklmnopqrstuvwxyz0123456789_-") != "" {
		return "", 0, false
	}
	n, err := strconv.Atoi(name[i+1:])
	if err != nil || n < 1 || strconv.Itoa(n) != name[i+1:] {
		return "", 0, false
	}
	return name[:i], n, true
}

// lengths returns the number of steps of each series. The steps of a series must be in
// order, without a gap.
func lengths(names []string) (map[string]int, error) {
	last := make(map[string]int)
	for _, name := range names {
		series, n, ok := inSeries(name)
		if !ok {
			return nil, fmt.Errorf("%q is not the name of a step, such as mail-1", name)
		}
		if n != last[series]+1 {
			return nil, fmt.Errorf("the step is %q, but %q is expected", name, fmt.Sprint(series, "-", last[series]+1))
		}
		last[series] = n
	}
	return last, nil
}

func stepNames(all []Migration) []string {
	names := make([]string, len(all))
	for i, m := range all {
		names[i] = m.Name
	}
	return names
}

func checkMigrations(all []Migration) error {
	if _, err := lengths(stepNames(all)); err != nil {
		return fmt.Errorf("store: migrations: %w", err)
	}
	return nil
}

// pending returns the steps of all that a database still needs, in the order of all. done
// names the steps it has. An unknown step in done comes from a newer version and is ErrNewer.
func pending(all []Migration, done []string) ([]Migration, error) {
	ours := stepNames(all)
	known, err := lengths(ours)
	if err != nil {
		return nil, err
	}
	for _, name := range done {
		if !slices.Contains(ours, name) {
			return nil, unknown(name, known)
		}
	}
	if _, err := lengths(done); err != nil {
		return nil, fmt.Errorf("the database's own list of its steps (table store_migrations) is damaged: %w; restore a backup", err)
	}
	return slices.DeleteFunc(slices.Clone(all), func(m Migration) bool { return slices.Contains(done, m.Name) }), nil
}

// unknown returns the error for a step that is not known here. It names the last known
// step of the same series.
func unknown(name string, known map[string]int) error {
	series, _, ok := inSeries(name)
	if last := known[series]; ok && last > 0 {
		return fmt.Errorf("%w: it has the step %q, but this version knows %s only up to %d", ErrNewer, name, series, last)
	}
	return fmt.Errorf("%w: it has the step %q, which this version does not know", ErrNewer, name)
}
