package store

import (
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"math"
	"reflect"
	"strings"
	"unicode/utf8"
)

// Both engines accept and return only int64, float64, string, []byte and nil. A boolean
// is 0 or 1; there is no type for times.

var errText = errors.New("store: text with a zero byte or invalid UTF-8")

// arguments converts args to the common types. Text that PostgreSQL cannot
// store is refused on both engines.
func arguments(args []any) ([]any, error) {
	out := make([]any, len(args))
	for i, a := range args {
		v, err := argument(a)
		if err != nil {
			return nil, fmt.Errorf("argument %d: %w", i+1, err)
		}
		out[i] = v
	}
	return out, nil
}

func argument(a any) (any, error) {
	switch a := a.(type) {
	case int64:
		return a, nil
	case string:
		return a, checkText(a)
	case int:
		return int64(a), nil
	}
	v, err := driver.DefaultParameterConverter.ConvertValue(a)
	if err != nil {
		return nil, err
	}
	switch v := v.(type) {
	case nil, int64, float64:
		return v, nil
	case string:
		return v, checkText(v)
	case bool:
		if v {
			return int64(1), nil
		}
		return int64(0), nil
	case []byte:
		if v == nil {
			return nil, nil
		}
		return v, nil
	}
	return nil, fmt.Errorf("store: a %T cannot be stored", a)
}

func checkText(s string) error {
	if strings.IndexByte(s, 0) >= 0 || !utf8.ValidString(s) {
		return errText
	}
	return nil
}

// scan stores the values of a row in the variables that dest points to.
func scan(dest, values []any) error {
	if len(dest) != len(values) {
		return fmt.Errorf("store: %d columns for %d destinations", len(values), len(dest))
	}
	for i, d := range dest {
		if err := assign(d, values[i]); err != nil {
			return fmt.Errorf("store: column %d: %w", i+1, err)
		}
	}
	return nil
}

func assign(dest, v any) error {
	switch d := dest.(type) {
	case *string:
		if s, ok := v.(string); ok {
			*d = s
			return nil
		}
	case *int64:
		if n, ok := v.(int64); ok {
			*d = n
			return nil
		}
	case *any:
		*d = v
		return nil
	case sql.Scanner:
		return d.Scan(v)
	}
	p := reflect.ValueOf(dest)
	if p.Kind() != reflect.Pointer || p.IsNil() {
		return fmt.Errorf("a %T cannot receive a value", dest)
	}
	return set(p.Elem(), v)
}

// set stores v in d, or fails if the conversion would lose information.
func set(d reflect.Value, v any) error {
	if d.Kind() == reflect.Pointer {
		if v == nil {
			d.SetZero()
			return nil
		}
		d.Set(reflect.New(d.Type().Elem()))
		return assign(d.Interface(), v)
	}
	ok := false
	switch v := v.(type) {
	case nil:
		// Only a slice can represent NULL: other types would make it 0 or "".
		if ok = isBytes(d); ok {
			d.SetZero()
		}
	case int64:
		ok = setInt(d, v)
	case float64:
		if ok = d.CanFloat(); ok {
			d.SetFloat(v)
		} else if whole := int64(v); float64(whole) == v && math.Abs(v) < 1<<53 {
			ok = setInt(d, whole)
		}
	case string:
		ok = setText(d, v)
	case []byte:
		if ok = isBytes(d); ok {
			d.SetBytes(v)
		} else {
			ok = setText(d, string(v))
		}
	}
	if !ok {
		return fmt.Errorf("%T does not fit into a %s", v, d.Type())
	}
	return nil
}

func setInt(d reflect.Value, n int64) bool {
	switch {
	case d.CanInt() && !d.OverflowInt(n):
		d.SetInt(n)
	case d.CanUint() && n >= 0 && !d.OverflowUint(uint64(n)):
		d.SetUint(uint64(n))
	case d.CanFloat():
		d.SetFloat(float64(n))
	case d.Kind() == reflect.Bool && (n == 0 || n == 1):
		d.SetBool(n == 1)
	default:
		return false
	}
	return true
}

func setText(d reflect.Value, s string) bool {
	switch {
	case d.Kind() == reflect.String:
		d.SetString(s)
	case isBytes(d):
		d.SetBytes([]byte(s))
	default:
		return false
	}
	return true
}

func isBytes(d reflect.Value) bool {
	return d.Kind() == reflect.Slice && d.Type().Elem().Kind() == reflect.Uint8
}
