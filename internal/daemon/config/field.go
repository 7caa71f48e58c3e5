package config

import (
	"reflect"
	"strings"
	"time"

	"github.com/doorward/doorward/internal/base/secret"
)

// field holds the tags of one struct field. See the package comment for the tags.
type field struct {
	index    int
	key      string
	doc      string
	fallback string // default
	enum     []string
	min, max string
	required bool
	refs     string   // "", "env" or "any"
	cost     string   // "server": a wrong value refuses that server only
	path     bool     // relative to the file's directory
	words    []string // values that are not paths
	typ      reflect.Type
}

var (
	valueType    = reflect.TypeFor[secret.Value]()
	durationType = reflect.TypeFor[time.Duration]()
	serverType   = reflect.TypeFor[Server]()
	handlingType = reflect.TypeFor[Handling]()
	launcherType = reflect.TypeFor[Launcher]()
	sizeType     = reflect.TypeFor[Size]()
	networkType  = reflect.TypeFor[Network]()
)

// fieldsOf lists the keys of a struct in their order.
func fieldsOf(t reflect.Type) []field {
	var fields []field
	for i := range t.NumField() {
		sf := t.Field(i)
		tag := sf.Tag
		key := tag.Get("yaml")
		if key == "-" {
			continue
		}
		f := field{
			index: i, key: key, doc: tag.Get("doc"), fallback: tag.Get("default"),
			min: tag.Get("min"), max: tag.Get("max"), refs: tag.Get("refs"), cost: tag.Get("cost"),
			required: tag.Get("required") != "", typ: sf.Type,
		}
		if enum := tag.Get("enum"); enum != "" {
			f.enum = strings.Split(enum, "|")
		}
		if words, ok := tag.Lookup("path"); ok {
			f.path, f.words = true, strings.Split(words, "|")
		}
		fields = append(fields, f)
	}
	return fields
}

// isStruct reports whether t is a section with keys of its own.
func isStruct(t reflect.Type) bool { return t.Kind() == reflect.Struct && t != valueType }
