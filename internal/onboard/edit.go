package onboard

import (
	"bytes"
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
)

// put returns text with the entry name. An existing entry is replaced; if it already has
// that value, the text is unchanged.
func (d document) put(text []byte, name string, entry object) ([]byte, error) {
	body, marked := bytes.CutPrefix(text, byteOrderMark)
	before, err := decode(d.format, body)
	if err != nil {
		return nil, err
	}
	if old, found := d.find(before, name); found && d.same(old, entry) {
		return text, nil
	}
	var out []byte
	switch d.format {
	case TOML:
		out, err = d.putTOML(body, name, entry)
	case YAML:
		out, err = d.putYAML(body, name, entry)
	default:
		out, err = d.putJSON(body, name, entry)
	}
	if err != nil {
		return nil, err
	}
	if err := d.kept(before, out, name, true); err != nil {
		return nil, err
	}
	return marking(out, marked), nil
}

// drop returns text without the entry name, and whether it was there.
func (d document) drop(text []byte, name string) ([]byte, bool, error) {
	body, marked := bytes.CutPrefix(text, byteOrderMark)
	before, err := decode(d.format, body)
	if err != nil {
		return nil, false, err
	}
	if _, found := d.find(before, name); !found {
		return text, false, nil
	}
	var out []byte
	switch d.format {
	case TOML:
		out, err = d.dropTOML(body, name)
	case YAML:
		out, err = d.dropYAML(body, name)
	default:
		out, err = d.dropJSON(body, name)
	}
	if err == nil {
		err = d.kept(before, out, name, false)
	}
	return marking(out, marked), err == nil, err
}

func marking(text []byte, marked bool) []byte {
	if marked {
		return append(slices.Clone(byteOrderMark), text...)
	}
	return text
}

// kept returns an error if an edit changed anything else than the entry, or did not change
// the entry as intended.
func (d document) kept(before any, text []byte, name string, there bool) error {
	after, err := decode(d.format, text)
	if err != nil {
		return fmt.Errorf("%w: %s is written in a form that cannot be changed", ErrShape, name)
	}
	if _, found := d.find(after, name); found != there || !reflect.DeepEqual(d.others(before, name), d.others(after, name)) {
		return fmt.Errorf("%w: %s is written in a form that cannot be changed", ErrShape, name)
	}
	return nil
}

// same reports whether a decoded entry has the value of entry.
func (d document) same(old map[string]any, entry object) bool {
	var want, got any
	b, err := json.Marshal(old)
	if err != nil {
		return false
	}
	return json.Unmarshal(b, &got) == nil && json.Unmarshal([]byte(flow(entry)), &want) == nil && reflect.DeepEqual(want, got)
}
