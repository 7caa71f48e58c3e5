package onboard

import (
	"bytes"
	"errors"
	"fmt"
	"time"
)

// A Change is a planned change of one file.
type Change struct {
	Client string
	File   File
	After  []byte // nil: the file is removed
	spent  string // the backup from which After was taken, and which is then removed
}

// Nothing reports whether the change leaves the file as it is.
func (c Change) Nothing() bool {
	return (c.After == nil) == (c.File.Text == nil) && bytes.Equal(c.After, c.File.Text)
}

// Install plans an entry that runs command with args in the client's file at path.
func Install(c *Client, path, command string, args []string) (Change, error) {
	f, err := Read(path)
	if err != nil {
		return Change{}, err
	}
	text, err := c.Install(f.Text, command, args)
	if err != nil {
		return Change{}, fmt.Errorf("%s: %w", path, err)
	}
	change := Change{Client: c.Name, File: f, After: text}
	return change, change.possible()
}

// Uninstall plans the removal of Doorward's entry from the client's file at path. If the
// file is exactly as an installation left it, the state before the installation is
// restored: from the backup beside it, or as no file. From any other file only the entry is
// removed.
func Uninstall(c *Client, path string) (Change, error) {
	f, err := Read(path)
	if err != nil {
		return Change{}, err
	}
	change := Change{Client: c.Name, File: f, After: f.Text}
	if f.Text == nil {
		return change, nil
	}
	words, err := c.Installed(f.Text)
	if err == nil && words != nil {
		change.restore(c, words)
	}
	if change.Nothing() {
		if change.After, _, err = c.Uninstall(f.Text); err != nil {
			return Change{}, fmt.Errorf("%s: %w", path, err)
		}
	}
	return change, change.possible()
}

// restore looks for the text from which an installation of the command line made the file.
func (c *Change) restore(client *Client, words []string) {
	made := func(from []byte) bool {
		if found, err := client.Installed(from); err != nil || found != nil {
			return false
		}
		text, err := client.Install(from, words[0], words[1:])
		return err == nil && bytes.Equal(text, c.File.Text)
	}
	for _, b := range c.File.backups() {
		if made(b.Text) {
			c.After, c.spent = b.Text, b.real
			return
		}
	}
	if made(nil) {
		c.After = nil
	}
}

func (c Change) possible() error {
	if c.Nothing() {
		return nil
	}
	return c.File.Writable()
}

// Write makes the changes, after checking all files: if one of them has changed since it
// was read, none is written. now names the backups, whose paths are returned.
func Write(all []Change, now time.Time) (backups []string, err error) {
	for _, c := range all {
		if err := errors.Join(c.File.Unchanged(), c.possible()); err != nil {
			return nil, err
		}
	}
	for _, c := range all {
		path, err := c.write(now)
		if err != nil {
			return backups, err
		}
		if path != "" {
			backups = append(backups, path)
		}
	}
	return backups, nil
}

// write makes one change. An undone installation needs no backup, because installing again
// repeats it.
func (c Change) write(now time.Time) (backup string, err error) {
	if c.Nothing() {
		return "", nil
	}
	if c.spent == "" && c.After != nil {
		if backup, err = c.File.Backup(now); err != nil {
			return "", err
		}
	}
	if err := c.File.Replace(c.After); err != nil {
		return backup, err
	}
	if c.spent != "" {
		return "", removeCopy(c.spent)
	}
	return backup, nil
}
