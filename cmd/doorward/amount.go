package main

import (
	"errors"
	"strconv"
)

// amount is the value of a flag: a number that is not negative.
type amount int

func (a *amount) Set(text string) error {
	n, err := strconv.Atoi(text)
	if err != nil || n < 0 {
		return errors.New("write a number")
	}
	*a = amount(n)
	return nil
}

func (a *amount) String() string { return strconv.Itoa(int(*a)) }

func (a *amount) Type() string { return "int" }
