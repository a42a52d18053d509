// Package examples holds the example manifests and configuration files, for the programs and tests that apply them as
// they are.
package examples

import "embed"

// Files has the files of this folder by their path in it, such as scheduler/config.yaml.
//
//go:embed deploy policies scheduler/config.yaml
var Files embed.FS
