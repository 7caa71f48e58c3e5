//go:build !supervisor || !linux || (!amd64 && !arm64)

package image

const child = ""
