package policycheck

import (
	"bytes"
	"fmt"
	"path/filepath"

	"github.com/cedar-policy/cedar-go"
	"github.com/cedar-policy/cedar-go/ast"

	"github.com/doorward/doorward/internal/trust/policy"
)

// Document returns the whole policy as Cedar text, each part with a title that names its
// origin.
func Document(o policy.Options) []byte {
	var b bytes.Buffer
	part := func(title string) { fmt.Fprintf(&b, "// ======== %s ========\n\n", title) }
	part("the default policy, built in")
	b.Write(policy.Default())
	b.WriteByte('\n')
	part("the servers' own lists, from the configuration")
	for _, r := range policy.ListRules(o.Servers) {
		b.Write(cedar.NewPolicyFromAST((*ast.Policy)(r)).MarshalCedar())
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
