package onboard

import "fmt"

// Install returns text with an entry of Doorward, which runs command with args. A nil text
// means that the file does not exist yet.
func (c *Client) Install(text []byte, command string, args []string) ([]byte, error) {
	tree, err := decode(c.Format, text)
	if err != nil {
		return nil, err
	}
	c = c.holding(tree)
	return c.doc().put(text, Name, c.shape(command, args))
}

// Uninstall returns text without Doorward's entry. If there is none, found is false and the
// text is unchanged.
func (c *Client) Uninstall(text []byte) (out []byte, found bool, err error) {
	tree, err := decode(c.Format, text)
	if err != nil {
		return nil, false, err
	}
	return c.holding(tree).doc().drop(text, Name)
}

// Installed returns the command line of Doorward's entry in text; nil: there is none.
func (c *Client) Installed(text []byte) ([]string, error) {
	tree, err := decode(c.Format, text)
	if err != nil {
		return nil, err
	}
	entry, found := c.holding(tree).doc().find(tree, Name)
	if !found {
		return nil, nil
	}
	words := commandLine(entry)
	if words == nil {
		return nil, fmt.Errorf("%w: the entry %s has no command", ErrShape, Name)
	}
	return words, nil
}
