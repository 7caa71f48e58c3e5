//go:build supervisor

package image

import _ "embed"

//go:embed child_arm64
var child string
