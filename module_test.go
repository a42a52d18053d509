package schedulerplugin

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const module = "github.com/placement-policy/scheduler-plugin"

// TestImports holds each package to the dependencies that it may have, tests aside.
func TestImports(t *testing.T) {
	const anything = "*"
	// By top-level folder: what its packages may import beside the standard library, with all that is below.
	allowed := map[string][]string{
		"":              {},
		"labelselector": {"k8s.io/apimachinery"},
		"policystore":   {module + "/labelselector", "k8s.io/api/core/v1", "k8s.io/apimachinery"},
		"placementpolicy": {
			module + "/labelselector", module + "/policystore", module + "/placementpolicy",
			"k8s.io/api", "k8s.io/apimachinery", "k8s.io/client-go", "k8s.io/component-base", "k8s.io/component-helpers",
			"k8s.io/klog/v2", "k8s.io/kube-scheduler/framework",
		},
		"examples": {anything},
		"internal": {anything},
	}
	for _, line := range strings.Split(run(t, ".", "go", "list", "-f", `{{.ImportPath}} {{join .Imports " "}}`, "./..."), "\n") {
		pkg, imports, _ := strings.Cut(line, " ")
		folder, _, _ := strings.Cut(strings.TrimPrefix(strings.TrimPrefix(pkg, module), "/"), "/")
		prefixes, ok := allowed[folder]
		assert.True(t, ok, "%s is in a top-level folder that should have no packages", pkg)
		for _, path := range strings.Fields(imports) {
			first, _, _ := strings.Cut(path, "/")
			standard := !strings.Contains(first, ".")
			assert.True(t, standard || slices.ContainsFunc(prefixes, func(prefix string) bool {
				return prefix == anything || path == prefix || strings.HasPrefix(path, prefix+"/")
			}), "%s must not import %s", pkg, path)
		}
	}
}

// TestEmbedding builds modules that import one of the packages, as an embedder's would: the replace directives that
// k8s.io/kubernetes makes necessary in this module must not be necessary in theirs.
func TestEmbedding(t *testing.T) {
	root, err := os.Getwd()
	require.NoError(t, err)
	t.Setenv("GOFLAGS", "-mod=mod")
	t.Setenv("GOWORK", "off")
	for _, pkg := range []string{"policystore", "placementpolicy"} {
		t.Run(pkg, func(t *testing.T) {
			dir := t.TempDir()
			write := func(name, content string) {
				require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600))
			}
			write("main.go", "package main\n\nimport _ \""+module+"/"+pkg+"\"\n\nfunc main() {}\n")
			write("go.mod", "module example.com/embedder\n\ngo 1.26.0\n\nrequire "+module+" v0.0.0\n\nreplace "+module+" => "+root+"\n")
			run(t, dir, "go", "mod", "tidy")
			run(t, dir, "go", "build", "-o", os.DevNull, ".")
		})
	}
}

// TestOlderKubernetes builds each package in modules that are held at the first of older releases of Kubernetes, as a scheduler
// distribution of that release holds its own. What builds there must be what the README's table says.
func TestOlderKubernetes(t *testing.T) {
	root, err := os.Getwd()
	require.NoError(t, err)
	readme, err := os.ReadFile("README.md")
	require.NoError(t, err)
	var gomod struct {
		Replace []struct{ Old struct{ Path string } }
	}
	require.NoError(t, json.Unmarshal([]byte(run(t, ".", "go", "mod", "edit", "-json")), &gomod))
	t.Setenv("GOFLAGS", "-mod=mod")
	t.Setenv("GOWORK", "off")

	builds := func(pkg, version string) string {
		dir := t.TempDir()
		mod := "module example.com/embedder\n\ngo 1.26.0\n\nrequire " + module + " v0.0.0\n\nreplace " + module + " => " + root + "\n"
		for _, r := range gomod.Replace {
			mod += "\nreplace " + r.Old.Path + " => " + r.Old.Path + " " + version + "\n"
		}
		require.NoError(t, os.WriteFile(filepath.Join(dir, "go.mod"), []byte(mod), 0o600))
		require.NoError(t, os.WriteFile(filepath.Join(dir, "main.go"), []byte("package main\n\nimport _ \""+module+"/"+pkg+"\"\n\nfunc main() {}\n"), 0o600))
		cmd := exec.CommandContext(t.Context(), "go", "build", "-gcflags=-e", "-o", os.DevNull, ".") // -e: all errors
		cmd.Dir = dir
		out, err := cmd.CombinedOutput()
		if err == nil {
			return "yes"
		}
		require.Contains(t, string(out), "undefined: cache.TypedResourceEventHandlerFuncs", "%s at %s fails to build for another reason than the README gives", pkg, version)
		return "no"
	}
	for _, pkg := range []string{"labelselector", "policystore", "placementpolicy/v1alpha1", "placementpolicy"} {
		row := "| `" + pkg + "` | " + builds(pkg, "v0.35.0") + " | " + builds(pkg, "v0.36.0") + " | yes |"
		assert.Contains(t, string(readme), row, "mend the README's table of Kubernetes releases")
	}
}

// TestKubernetesVersions holds every module at the version that this release of Kubernetes was tested with.
func TestKubernetesVersions(t *testing.T) {
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
	used := map[string]string{}
	for _, line := range strings.Split(run(t, dir, "go", "list", "-mod=mod", "-m", "-f", "{{.Path}} {{if .Replace}}{{.Replace.Version}}{{else}}{{.Version}}{{end}}", "all"), "\n") {
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
