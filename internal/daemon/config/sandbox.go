package config

import (
	"fmt"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/doorward/doorward/internal/base/plaintext"
)

// sizeText matches a size in the file.
var sizeText = lazily(`^(0|[1-9][0-9]{0,15})(KiB|MiB|GiB)?$`)

// parseSize reads 0, bytes, or 512MiB.
func parseSize(text string) (Size, bool) {
	m := sizeText.FindStringSubmatch(text)
	if m == nil {
		return 0, false
	}
	n, err := strconv.ParseInt(m[1], 10, 64)
	unit := map[string]int64{"": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30}[m[2]]
	if err != nil || n > 1<<62/unit {
		return 0, false
	}
	return Size(n * unit), true
}

// size decodes a number of bytes with or without its unit.
func (d *decoder) size(n *yaml.Node, key string, f field, v reflect.Value) {
	high, _ := parseSize(f.max)
	low, _ := parseSize(f.min) // 0 if there is no min
	got, ok := parseSize(n.Value)
	switch {
	case n.Kind != yaml.ScalarNode || n.Tag != "!!str" && n.Tag != "!!int" || !ok:
		d.report.fail(key, "this must be a size with its unit, such as 512MiB or 2GiB, or 0"+withBinaryUnit(n.Value))
	case got > high:
		d.report.fail(key, fmt.Sprintf("%s is more than %s", plaintext.Clip(n.Value, maxShown), f.max))
	case got > 0 && got < low:
		d.report.fail(key, fmt.Sprintf("%s is less than %s; write the size with its unit, such as 512MiB, or 0", plaintext.Clip(n.Value, maxShown), f.min))
	default:
		v.SetInt(int64(got))
	}
}

// network decodes a word or a list of ports.
func (d *decoder) network(n *yaml.Node, key string, v reflect.Value) {
	if n.Kind == yaml.ScalarNode && n.Tag == "!!str" {
		if words := []string{"inherit", "none"}; !slices.Contains(words, n.Value) {
			d.report.fail(key, fmt.Sprintf("%q is not one of inherit, none, or a list of ports%s", plaintext.Clip(n.Value, maxShown), suggest(n.Value, words)))
		}
		v.SetString(n.Value)
		return
	}
	if n.Kind != yaml.SequenceNode || len(n.Content) == 0 {
		d.report.fail(key, "this must be inherit, none, or a list of ports such as [53, 443]")
		return
	}
	var ports []string
	for i, item := range n.Content {
		port, err := strconv.ParseUint(item.Value, 10, 16)
		if item.Kind != yaml.ScalarNode || item.Tag != "!!int" || err != nil || port == 0 || !bareInt.MatchString(item.Value) {
			d.report.fail(fmt.Sprintf("%s[%d]", key, i), "this must be a port, from 1 to 65535")
			continue
		}
		ports = append(ports, item.Value)
	}
	v.SetString(strings.Join(ports, ","))
}

// shut lists the keys about containment.
var shut = []string{"read", "write", "nested_sandbox", "network", "limits"}

// sandbox checks the keys about containment together.
func (k checker) sandbox(key string, s *Server) {
	h, at := s.Doorward, key+".doorward"
	if h.Sandbox == "off" {
		for _, name := range shut {
			if k.report.lines[join(at, name)] > 0 {
				k.report.warn(join(at, name), "does nothing under sandbox: off")
			}
		}
		return
	}
	if h.Sandbox != "strict" && h.Network.Ports() != nil {
		k.report.refuse(join(at, "network"), "a list of ports needs sandbox: strict; contain supports inherit and none")
	}
	if h.Sandbox == "strict" && h.NestedSandbox {
		k.report.refuse(join(at, "nested_sandbox"), "strict allows no nested namespaces; use sandbox: contain")
	}
	k.paths(join(at, "read"), h.Read)
	k.paths(join(at, "write"), h.Write)
	if engine := filepath.Base(s.Command); slices.Contains([]string{"docker", "podman"}, engine) && len(h.Write) == 0 {
		k.report.warn(join(key, "command"), fmt.Sprintf("%s cannot reach its engine under sandbox: %s; write: [%s] grants it the engine's socket, "+
			"which gives it as many rights as sandbox: off", engine, h.Sandbox, engine))
	}
}

// profiles returns the words of read and write that are not paths.
func profiles() []string {
	for _, f := range fieldsOf(handlingType) {
		if f.key == "read" {
			return f.words
		}
	}
	return nil
}

// paths checks that paths could be made absolute.
func (k checker) paths(key string, paths []string) {
	for i, path := range paths {
		if k.report.muted && path == "" || slices.Contains(profiles(), path) {
			continue
		}
		if !filepath.IsAbs(path) || strings.Contains(path, "\x00") {
			k.report.also(fmt.Sprintf("%s[%d]", key, i), "this must be a path")
		}
	}
}
