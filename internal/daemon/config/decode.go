package config

import (
	"cmp"
	"fmt"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/doorward/doorward/internal/base/plaintext"
)

// setDefaults fills a section with the defaults of its tags.
func (d *decoder) setDefaults(v reflect.Value) {
	for _, f := range d.fields(v.Type()) {
		fv := v.Field(f.index)
		switch {
		case isStruct(f.typ):
			d.setDefaults(fv)
		case f.fallback == "":
		case f.typ == durationType:
			t, _ := time.ParseDuration(f.fallback)
			fv.SetInt(int64(t))
		case f.typ == sizeType:
			n, _ := parseSize(f.fallback)
			fv.SetInt(int64(n))
		case f.typ.Kind() == reflect.Slice:
			fv.Set(reflect.ValueOf(strings.Split(f.fallback, ",")))
		case f.typ.Kind() == reflect.String:
			fv.SetString(f.fallback)
		case f.typ.Kind() == reflect.Bool:
			fv.SetBool(f.fallback == "true")
		default:
			n, _ := strconv.ParseInt(f.fallback, 10, 64)
			fv.SetInt(n)
		}
	}
}

// structure decodes a mapping with known keys.
func (d *decoder) structure(n *yaml.Node, key string, v reflect.Value) {
	if !d.src.is(n, key, yaml.MappingNode, d.mappingOf(v.Type())) {
		return
	}
	fields := d.fields(v.Type())
	given := map[string]bool{}
	for name, child := range pairs(n) {
		given[name] = true
		at := join(key, name)
		if i := slices.IndexFunc(fields, func(f field) bool { return f.key == name }); i >= 0 {
			d.value(child, at, fields[i], v.Field(fields[i].index))
		} else {
			d.unknown(v.Type(), at, name)
		}
	}
	for _, f := range fields {
		if f.required && !given[f.key] {
			d.report.fail(key, fmt.Sprintf("its key %q is missing", f.key))
		}
	}
}

// value decodes one value by the type of its field. Sections may be empty, other values may not.
func (d *decoder) value(n *yaml.Node, key string, f field, v reflect.Value) {
	t := v.Type()
	switch {
	case isForeign(n):
	case isNull(n) && (isStruct(t) || t.Kind() == reflect.Map):
	case isNull(n):
		d.report.also(key, "the key has no value; give it one or leave it out")
	case t == valueType:
		if text, ok := d.src.text(n, key); ok {
			v.Set(reflect.ValueOf(d.resolve(text, key, f)))
		}
	case t == durationType:
		d.duration(n, key, f, v)
	case t == sizeType:
		d.size(n, key, f, v)
	case t == networkType:
		d.network(n, key, v)
	case t.Kind() == reflect.Pointer:
		p := reflect.New(t.Elem())
		d.setDefaults(p.Elem())
		d.structure(n, key, p.Elem())
		v.Set(p)
	case t.Kind() == reflect.Struct:
		d.structure(n, key, v)
	case t.Kind() == reflect.Map:
		d.mapping(n, key, f, v)
	case t.Kind() == reflect.Slice:
		d.list(n, key, f, v)
	case t.Kind() == reflect.String:
		d.stringValue(n, key, f, v)
	case t.Kind() == reflect.Bool:
		if n.Kind != yaml.ScalarNode || n.Tag != "!!bool" {
			d.report.fail(key, "this must be true or false, without quotes")
			return
		}
		v.SetBool(strings.EqualFold(n.Value, "true"))
	default:
		d.integer(n, key, f, v)
	}
}

// stringValue decodes a text: one of an enum, a path, or any text.
func (d *decoder) stringValue(n *yaml.Node, key string, f field, v reflect.Value) {
	if wrong := wrongText(n, f); wrong != "" {
		d.report.fail(key, wrong)
		return
	}
	text, ok := d.src.text(n, key)
	if !ok {
		return
	}
	if f.enum != nil {
		d.choice(text, key, f)
	} else if f.refs != "" {
		text = d.resolve(text, key, f).Reveal()
	} else if strings.Contains(text, "${") {
		d.report.fail(key, "references such as ${NAME} are not expanded here; write the value itself")
	}
	if f.path {
		text = d.path(text, key, f)
	}
	v.SetString(text)
}

// choice checks that a value is one of the enum.
func (d *decoder) choice(text, key string, f field) {
	if slices.Contains(f.enum, text) {
		return
	}
	note := d.report.fail
	if f.cost == "server" {
		note = d.report.refuse
	}
	note(key, fmt.Sprintf("%q is not one of %s%s", plaintext.Clip(text, maxShown), strings.Join(f.enum, ", "), suggest(text, f.enum)))
}

// path makes a path absolute, unless it is empty or one of the words of the field.
func (d *decoder) path(text, key string, f field) string {
	switch {
	case text == "" || filepath.IsAbs(text) || slices.Contains(f.words, text):
		return text
	case text == "~" || strings.HasPrefix(text, "~/"):
		d.report.refuse(key, "~ is not expanded; write ${HOME}")
		return text
	}
	d.profileAdvice(key, text, f)
	return filepath.Join(d.dir, text)
}

// paths makes the default paths of a section absolute.
func (d *decoder) paths(v reflect.Value) {
	for _, f := range d.fields(v.Type()) {
		if fv := v.Field(f.index); isStruct(f.typ) {
			d.paths(fv)
		} else if f.path && fv.Kind() == reflect.String {
			fv.SetString(d.path(fv.String(), "", f))
		}
	}
}

// bareInt matches a decimal number. Other notations mean different numbers to different parsers.
var bareInt = lazily(`^-?(0|[1-9][0-9]*)$`)

// integer decodes a whole number.
func (d *decoder) integer(n *yaml.Node, key string, f field, v reflect.Value) {
	if n.Kind != yaml.ScalarNode || n.Tag != "!!int" || !bareInt.MatchString(n.Value) {
		d.report.fail(key, "this must be a whole number in plain decimal digits, without quotes or units"+wholeNumber(n))
		return
	}
	low, _ := strconv.ParseInt(f.min, 10, 64)
	high, _ := strconv.ParseInt(f.max, 10, 64)
	got, err := strconv.ParseInt(n.Value, 10, 64)
	if err != nil || got < low || got > high {
		d.report.fail(key, fmt.Sprintf("%s is not between %s and %s", plaintext.Clip(n.Value, maxShown), f.min, f.max))
		return
	}
	v.SetInt(got)
}

// duration decodes a time with its unit, or 0.
func (d *decoder) duration(n *yaml.Node, key string, f field, v reflect.Value) {
	high, _ := time.ParseDuration(f.max)
	low, _ := time.ParseDuration(f.min) // 0 if there is no min
	got, err := time.ParseDuration(n.Value)
	switch {
	case n.Kind != yaml.ScalarNode || n.Tag != "!!str" && n.Value != "0" || err != nil:
		d.report.fail(key, "this must be a time with its unit, such as 120s or 5m"+orZero(low)+withUnit(n.Value))
	case got < low || got > high:
		d.report.fail(key, fmt.Sprintf("%s is not between %s and %s", plaintext.Clip(n.Value, maxShown), cmp.Or(f.min, "0"), f.max))
	default:
		v.SetInt(int64(got))
	}
}

// list decodes a sequence.
func (d *decoder) list(n *yaml.Node, key string, f field, v reflect.Value) {
	want := "a list"
	if isStruct(v.Type().Elem()) {
		want = "a list of mappings with " + strings.Join(d.keys(v.Type().Elem())[:1], "")
	}
	if !d.src.is(n, key, yaml.SequenceNode, want) {
		return
	}
	items := reflect.MakeSlice(v.Type(), len(n.Content), len(n.Content))
	for i, child := range n.Content {
		item := items.Index(i)
		if isStruct(item.Type()) {
			d.setDefaults(item)
		}
		d.value(child, fmt.Sprintf("%s[%d]", key, i), f, item)
	}
	v.Set(items)
}

// mapping decodes a mapping whose keys are names.
func (d *decoder) mapping(n *yaml.Node, key string, f field, v reflect.Value) {
	if !d.src.is(n, key, yaml.MappingNode, "a mapping") {
		return
	}
	m := reflect.MakeMap(v.Type())
	for name, child := range pairs(n) {
		item := reflect.New(v.Type().Elem()).Elem()
		if at := join(key, name); v.Type().Elem() == reflect.PointerTo(serverType) {
			d.serverEntry(child, at, name, item)
		} else if v.Type().Elem() == reflect.PointerTo(launcherType) {
			d.launcherEntry(child, at, name, item)
		} else {
			d.value(child, at, f, item)
		}
		m.SetMapIndex(reflect.ValueOf(name), item)
	}
	v.Set(m)
}
