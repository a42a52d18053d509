package v1alpha1_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/placement-policy/scheduler-plugin/placementpolicy/v1alpha1"
)

// The generated files are what `go generate` would write now.
func TestGeneratedFilesAreUpToDate(t *testing.T) {
	source, err := os.ReadFile("doc.go")
	require.NoError(t, err)
	directive := regexp.MustCompile(`(?m)^//go:generate env GOWORK=off (go tool .*) output:dir=\.$`).FindSubmatch(source)
	require.NotNil(t, directive, "no go:generate directive that ends with output:dir=.")

	dir := t.TempDir()
	args := append(strings.Fields(string(directive[1])), "output:dir="+dir)
	t.Setenv("GOWORK", "off") // as the directive says
	out, err := exec.CommandContext(t.Context(), args[0], args[1:]...).CombinedOutput()
	require.NoError(t, err, "%s: %s", args, out)

	for _, name := range []string{"zz_generated.deepcopy.go", v1alpha1.CRDFile} {
		want, err := os.ReadFile(filepath.Join(dir, name))
		require.NoError(t, err)
		got, err := os.ReadFile(name)
		require.NoError(t, err)
		assert.Equal(t, string(want), string(got), "run go generate ./placementpolicy/v1alpha1")
	}
}
