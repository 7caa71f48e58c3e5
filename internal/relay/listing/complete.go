package listing

import "github.com/doorward/doorward/internal/base/rawjson"

// Clients parse a list as a whole: one entry that the protocol's schema does not allow takes away the entries
// of all servers. In the lists of the aggregate such an entry is completed.

// complete returns an entry in the form that clients require: without optional members of a wrong kind, with
// an input schema whose root is an object, and with a name. Entries of lists that Doorward does not know stay as
// they are.
func complete(kind Kind, entry []byte) []byte {
	if kind.Name == "" {
		return entry
	}
	entry = fit(entry, entryStart)
	for _, key := range []string{"inputSchema", "outputSchema"} {
		entry = rawjson.InMember(entry, key, func(schema []byte) []byte { return fit(schema, schemaStart) })
	}
	switch {
	case kind.Member == "tools" && !rawjson.IsText(rawjson.GetPath(entry, "inputSchema", "type"), "object"):
		return rawjson.SetIn(entry, "inputSchema", rawjson.Edit{Key: "type", Value: []byte(`"object"`)})
	case (kind.Member == "resources" || kind.Member == "resourceTemplates") && rawjson.Get(entry, "name") == nil:
		return rawjson.Set(entry, rawjson.Edit{Key: "name", Value: rawjson.Get(entry, kind.Name)})
	}
	return entry
}

// fit removes the members of an object whose value does not begin as start says, such as null.
func fit(object []byte, start func(member string) byte) []byte {
	var edits []rawjson.Edit
	for key, value := range rawjson.Members(object) {
		if want := start(key); want != 0 && value[0] != want {
			edits = append(edits, rawjson.Edit{Key: key})
		}
	}
	return rawjson.Set(object, edits...)
}

// entryStart returns the first byte of the value of a member; 0: any.
func entryStart(member string) byte {
	switch member {
	case "title", "description", "mimeType":
		return '"'
	case "icons", "arguments":
		return '['
	case "annotations", "execution", "inputSchema", "outputSchema", "_meta":
		return '{'
	}
	return 0
}

// schemaStart is entryStart for the members of a schema.
func schemaStart(member string) byte {
	switch member {
	case "properties":
		return '{'
	case "required":
		return '['
	}
	return 0
}
