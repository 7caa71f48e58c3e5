package main

import (
	"cmp"
	"encoding/base64"
	"errors"
	"fmt"
	"os"

	"github.com/doorward/doorward/internal/base/plaintext"
	"github.com/doorward/doorward/internal/base/rawjson"
)

// content is one item of a result. An image, an audio or a resource with a blob has data.
type content struct {
	kind, mime, text string
	data             []byte
}

// contentOf reads an item. The text of one without text and data is its JSON.
func contentOf(item []byte) content {
	c := content{text: string(item)}
	c.kind, _ = rawjson.GetString(item, "type")
	encoded, has := rawjson.GetString(item, "data")
	if c.kind == "resource" {
		item = rawjson.Get(item, "resource")
		encoded, has = rawjson.GetString(item, "blob")
	}
	c.mime, _ = rawjson.GetString(item, "mimeType")
	if text, ok := rawjson.GetString(item, "text"); ok {
		c.text = text
	}
	if data, err := base64.StdEncoding.DecodeString(encoded); has && err == nil {
		c.data = append([]byte{}, data...)
	}
	return c
}

// String returns the text that is printed: one line for data.
func (c content) String() string {
	if c.data == nil {
		return c.text
	}
	return fmt.Sprintf("%s, %s, %s (--output FILE writes it)", plaintext.Line(c.kind), plaintext.Line(cmp.Or(c.mime, "no MIME type")), sizeOf(int64(len(c.data))))
}

// errNoData says that --output has no data to write.
var errNoData = errors.New("the result has no image, audio or blob")

// writeData writes the data of the first item that has any to a file.
func writeData(result []byte, file string) error {
	for item := range rawjson.Elements(rawjson.Get(result, "content")) {
		if c := contentOf(item); c.data != nil {
			return os.WriteFile(file, c.data, 0o600)
		}
	}
	return errNoData
}

// printResult prints the result of a call: with --json as it is, otherwise its content, or
// its structuredContent if it has no other.
func printResult(o *invocation, result []byte) error {
	if o.json {
		_, err := fmt.Fprintln(stdout(), string(result))
		return err
	}
	empty := true
	for item := range rawjson.Elements(rawjson.Get(result, "content")) {
		if _, err := fmt.Fprintln(stdout(), contentOf(item)); err != nil {
			return err
		}
		empty = false
	}
	if whole := rawjson.Get(result, "structuredContent"); empty && whole != nil {
		_, err := fmt.Fprintln(stdout(), string(whole))
		return err
	}
	return nil
}
