//go:build supervisor

package image

import _ "embed"

//go:embed child_amd64
var child string
