package examples

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestKubernetesVersions holds every module at the version that this release of Kubernetes was tested with.
func TestKubernetesVersions(t *testing.T) {
	t.Setenv("GOWORK", "off")
	kubernetes := strings.Fields(run(t, ".", "go", "list", "-m", "-f", "{{.Version}} {{.GoMod}}", "k8s.io/kubernetes"))
	require.Len(t, kubernetes, 2)
	var pinned struct {
		Require []struct{ Path, Version string }
	}
	require.NoError(t, json.Unmarshal([]byte(run(t, ".", "go", "mod", "edit", "-json", kubernetes[1])), &pinned))
	require.NotEmpty(t, pinned.Require)

	// The whole module graph needs more checksums than a tidy go.sum has: they go into a copy.
	dir := t.TempDir()
	for _, name := range []string{"go.mod", "go.sum"} {
		data, err := os.ReadFile(name)
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), data, 0o600))
	}
	library, err := filepath.Abs("..")
	require.NoError(t, err)
	run(t, dir, "go", "mod", "edit", "-replace=github.com/placement-policy/scheduler-plugin="+library)
	const version = "{{.Path}} {{if .Replace}}{{.Replace.Version}}{{else}}{{.Version}}{{end}}"
	used := map[string]string{}
	for line := range strings.SplitSeq(run(t, dir, "go", "list", "-mod=mod", "-m", "-f", version, "all"), "\n") {
		path, version, _ := strings.Cut(line, " ")
		used[path] = version
	}
	for _, pin := range pinned.Require {
		if pin.Version == "v0.0.0" { // a part of Kubernetes: v1.37.2 has v0.37.2
			pin.Version = strings.Replace(kubernetes[0], "v1.", "v0.", 1)
		}
		if version, ok := used[pin.Path]; ok {
			assert.Equal(t, pin.Version, version, pin.Path)
		}
	}
}

// run returns what a command that must succeed prints.
func run(t *testing.T, dir string, args ...string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), args[0], args[1:]...)
	cmd.Dir = dir
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	require.NoError(t, err, "%s: %s", args, &stderr)
	return strings.TrimSpace(string(out))
}
