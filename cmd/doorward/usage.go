package main

import (
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
)

// argumentsOf returns the check of a command that takes from least to most arguments. The
// error names the argument that is missing or not expected.
func argumentsOf(use string, least, most int) cobra.PositionalArgs {
	return func(_ *cobra.Command, args []string) error {
		switch {
		case len(args) > most:
			return fmt.Errorf("%w: unexpected argument %q", errUsage, args[most])
		case len(args) < least:
			return missing(use, len(args))
		case least == 1 && most == 1 && args[0] == "":
			return fmt.Errorf("%w: the argument is empty", errUsage)
		}
		return nil
	}
}

// missing returns the error of a command whose form is use, and that got n arguments. A word
// such as SERVER in the form is an argument.
func missing(use string, n int) error {
	form := regexp.MustCompile(`^[A-Z][A-Z-]*…?$`)
	var names []string
	before, _, _ := strings.Cut(use, "[")
	for _, word := range strings.Fields(before)[1:] {
		if !form.MatchString(word) {
			break
		}
		names = append(names, strings.TrimSuffix(word, "…"))
	}
	if n >= len(names) {
		return fmt.Errorf("%w: an argument is missing", errUsage)
	}
	return fmt.Errorf("%w: %s is missing", errUsage, names[n])
}

// lifetime is a flag with a duration that may be written in days.
type lifetime time.Duration

func (l *lifetime) String() string { return time.Duration(*l).String() }

// Type is the word of the flag in the help text.
func (*lifetime) Type() string { return "duration" }

// Set reads a duration such as 720h or 30d.
func (l *lifetime) Set(text string) error {
	const day, most = 24 * time.Hour, 36500
	if days, found := strings.CutSuffix(text, "d"); found {
		if n, err := strconv.Atoi(days); err == nil && -most <= n && n <= most {
			*l = lifetime(time.Duration(n) * day)
			return nil
		}
	}
	d, err := time.ParseDuration(text)
	if err != nil || d > most*day || d < -most*day {
		return errors.New("write a duration such as 720h or 30d, at most 36500d")
	}
	*l = lifetime(d)
	return nil
}

// joined is the value of a flag that holds a comma-separated list. The values of a repeated flag
// make one list.
type joined string

func (j *joined) String() string { return string(*j) }

// Type is the word of the flag in the help text.
func (*joined) Type() string { return "string" }

// Set appends to the list.
func (j *joined) Set(text string) error {
	if *j != "" {
		text = string(*j) + "," + text
	}
	*j = joined(text)
	return nil
}
