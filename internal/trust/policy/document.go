package policy

import (
	"bytes"
	"fmt"
	"path/filepath"

	"github.com/cedar-policy/cedar-go"
)

// document is the whole policy in the words of Cedar, each part under a line
// that says where it comes from.
func document(lists []*rule, o Options) []byte {
	var b bytes.Buffer
	part := func(title string) { fmt.Fprintf(&b, "// ======== %s ========\n\n", title) }
	part("the default policy, built in")
	b.Write(defaultText)
	b.WriteByte('\n')
	part("the servers' own lists, from the configuration")
	for _, r := range lists {
		b.Write(cedar.NewPolicyFromAST((*publicPolicy)(r.syntax)).MarshalCedar())
		b.WriteString("\n\n")
	}
	if o.File != "" {
		part("the policy file " + filepath.Base(o.File))
		b.Write(o.Text)
		if !bytes.HasSuffix(o.Text, []byte("\n")) {
			b.WriteByte('\n')
		}
	}
	return b.Bytes()
}
