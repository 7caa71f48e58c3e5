//go:build !linux

package store

import "errors"

func mountSmall(string) error { return errors.New("not on this system") }
