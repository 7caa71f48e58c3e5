package listing

import (
	"strings"
	"time"

	"github.com/doorward/doorward/internal/base/rawjson"
)

// Clients parse a list as a whole: one entry that the protocol's schema does not allow takes away the entries
// of all servers. In the lists of the aggregate such an entry is completed.

// complete returns an entry in the form that clients require: without optional members of a wrong kind or with such
// elements, with an input schema whose root is an object, and with a name. Entries of lists that Doorward does not know stay as
// they are.
func complete(kind Kind, entry []byte) []byte {
	if kind.Name == "" {
		return entry
	}
	entry = fit(entry, entryStart)
	for _, key := range []string{"inputSchema", "outputSchema"} {
		entry = rawjson.InMember(entry, key, schema)
	}
	entry = rawjson.InMember(entry, "annotations", annotations)
	entry = rawjson.InMember(entry, "execution", fitted)
	entry = rawjson.InMember(entry, "arguments", rawjson.InElements(fitted))
	entry = without(entry, "arguments", func(arg []byte) bool { return startsAs(rawjson.Get(arg, "name"), `"`) })
	entry = without(entry, "icons", func(icon []byte) bool { return startsAs(rawjson.Get(icon, "src"), `"`) })
	switch {
	case kind.Member == "tools" && !rawjson.IsText(rawjson.GetPath(entry, "inputSchema", "type"), "object"):
		return rawjson.SetIn(entry, "inputSchema", rawjson.Edit{Key: "type", Value: []byte(`"object"`)})
	case (kind.Member == "resources" || kind.Member == "resourceTemplates") && rawjson.Get(entry, "name") == nil:
		return rawjson.Set(entry, rawjson.Edit{Key: "name", Value: rawjson.Get(entry, kind.Name)})
	}
	return entry
}

// schema returns a schema of a tool in the form that clients require. They accept no truth value in the place of the
// schema of a property.
func schema(raw []byte) []byte {
	raw = without(fit(raw, schemaStart), "required", func(name []byte) bool { return startsAs(name, `"`) })
	return rawjson.InMember(raw, "properties", rawjson.InMembers(func(property []byte) []byte {
		switch {
		case startsAs(property, "{"):
			return property
		case string(property) == "false":
			return []byte(`{"not":{}}`)
		}
		return rawjson.Empty
	}))
}

// annotations returns the annotations of an entry in the form that clients require.
func annotations(raw []byte) []byte {
	raw = without(fitted(raw), "audience", func(role []byte) bool { return rawjson.IsText(role, "user") || rawjson.IsText(role, "assistant") })
	if text, ok := rawjson.GetString(raw, "lastModified"); ok {
		if _, err := time.Parse(time.RFC3339, text); err != nil {
			return rawjson.Set(raw, rawjson.Edit{Key: "lastModified"})
		}
	}
	return raw
}

// without removes a member of an object whose elements are not all as they have to be.
func without(object []byte, member string, is func(element []byte) bool) []byte {
	for element := range rawjson.Elements(rawjson.Get(object, member)) {
		if !is(element) {
			return rawjson.Set(object, rawjson.Edit{Key: member})
		}
	}
	return object
}

// fitted is fit for the objects in an entry.
func fitted(object []byte) []byte { return fit(object, innerStart) }

// fit removes the members of an object whose value does not begin as start says, such as null.
func fit(object []byte, start func(member string) string) []byte {
	var edits []rawjson.Edit
	for key, value := range rawjson.Members(object) {
		if want := start(key); want != "" && !startsAs(value, want) {
			edits = append(edits, rawjson.Edit{Key: key})
		}
	}
	return rawjson.Set(object, edits...)
}

// startsAs reports whether a value begins with one of the bytes of start.
func startsAs(value []byte, start string) bool {
	return len(value) > 0 && strings.IndexByte(start, value[0]) >= 0
}

// The first bytes of a number and of a truth value.
const number, truth = "-0123456789", "tf"

// entryStart returns the first bytes that the value of a member may have; empty: any.
func entryStart(member string) string {
	switch member {
	case "name", "title", "description", "mimeType":
		return `"`
	case "icons", "arguments":
		return "["
	case "annotations", "execution", "inputSchema", "outputSchema", "_meta":
		return "{"
	case "size":
		return number
	}
	return ""
}

// innerStart is entryStart for the members of annotations, of execution, and of the arguments of a prompt.
func innerStart(member string) string {
	switch member {
	case "title", "description", "lastModified", "taskSupport":
		return `"`
	case "readOnlyHint", "destructiveHint", "idempotentHint", "openWorldHint", "required":
		return truth
	case "audience":
		return "["
	case "priority":
		return number
	}
	return ""
}

// schemaStart is entryStart for the members of a schema.
func schemaStart(member string) string {
	switch member {
	case "properties":
		return "{"
	case "required":
		return "["
	}
	return ""
}
