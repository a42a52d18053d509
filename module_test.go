package schedulerplugin

import (
	"encoding/json"
	"fmt"
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

// TestImports holds each package to the dependencies that it may have.
func TestImports(t *testing.T) {
	const framework = "k8s.io/kube-scheduler/framework"
	clients := []string{
		module + "/labelselector", module + "/policystore", module + "/placementpolicy",
		"k8s.io/api", "k8s.io/apimachinery", "k8s.io/client-go", "k8s.io/component-base", "k8s.io/component-helpers",
		"k8s.io/klog/v2", "k8s.io/utils", "golang.org/x/time/rate",
	}
	// By folder, of which the longest that fits holds: what its packages may import beside the standard library, with
	// all that is below.
	allowed := map[string][]string{
		"":                 {},
		"labelselector":    {"k8s.io/apimachinery"},
		"policystore":      {module + "/labelselector", "k8s.io/api/core/v1", "k8s.io/apimachinery"},
		"placementpolicy":  append(slices.Clone(clients), framework),
		"placementpolicy/": clients,
		"internal":         append(slices.Clone(clients), framework),
	}
	within := func(path, folder string) bool {
		return path == folder || strings.HasPrefix(path, strings.TrimSuffix(folder, "/")+"/")
	}
	const format = `{{.ImportPath}}|{{join .Imports " "}}|{{join .TestImports " "}} {{join .XTestImports " "}}`
	for line := range strings.SplitSeq(run(t, ".", "go", "list", "-f", format, "./..."), "\n") {
		fields := strings.Split(line, "|")
		pkg, imports, testImports := fields[0], strings.Fields(fields[1]), strings.Fields(fields[2])
		path := strings.TrimPrefix(strings.TrimPrefix(pkg, module), "/")
		longest, known := "", path == ""
		for folder := range allowed {
			fits := within(path, folder) && (folder != "placementpolicy/" || path != "placementpolicy")
			if folder != "" && fits && len(folder) > len(longest) {
				longest, known = folder, true
			}
		}
		assert.True(t, known, "%s is in a top-level folder that should have no packages", pkg)
		for _, imported := range imports {
			first, _, _ := strings.Cut(imported, "/")
			standard := !strings.Contains(first, ".")
			assert.True(
				t,
				standard ||
					slices.ContainsFunc(allowed[longest], func(prefix string) bool { return within(imported, prefix) }),
				"%s must not import %s",
				pkg,
				imported,
			)
			assert.False(
				t,
				longest == "placementpolicy/" && imported == module+"/placementpolicy",
				"%s must not import %s",
				pkg,
				imported,
			)
		}
		for _, imported := range testImports {
			assert.False(
				t,
				within(imported, "k8s.io/kubernetes") || longest == "placementpolicy/" && within(imported, framework),
				"the tests of %s must not import %s",
				pkg,
				imported,
			)
		}
	}
}

// releases are the patches of each minor version of Kubernetes that consumers are tested with, oldest first.
var releases = []string{"0.35.8", "0.36.5", "0.37.2"}

// TestConsumers builds modules that import the library and hold the scheduler's framework at their own release. They
// need no replace directive but for this module, which is not published, and keep their release. README.md says so.
func TestConsumers(t *testing.T) {
	root, err := os.Getwd()
	require.NoError(t, err)
	readme, err := os.ReadFile("README.md")
	require.NoError(t, err)
	t.Setenv("GOFLAGS", "-mod=mod")
	t.Setenv("GOWORK", "off")

	packages := []string{"labelselector", "policystore", "placementpolicy/v1alpha1", "placementpolicy"}
	main := "package main\n\nimport (\n\t_ \"k8s.io/kube-scheduler/framework\"\n"
	for _, pkg := range packages {
		main += fmt.Sprintf("\t_ %q\n", module+"/"+pkg)
		assert.Contains(
			t,
			string(readme),
			"| `"+pkg+"` | yes | yes | yes |",
			"what README.md says of releases of Kubernetes",
		)
	}
	main += ")\n\nfunc main() {}\n"
	for _, release := range releases {
		t.Run(release, func(t *testing.T) {
			dir := t.TempDir()
			require.NoError(t, os.WriteFile(filepath.Join(dir, "main.go"), []byte(main), 0o600))
			require.NoError(t, os.WriteFile(filepath.Join(dir, "go.mod"), fmt.Appendf(
				nil,
				"module example.com/consumer\n\ngo 1.25.0\n\nrequire %[1]s v0.0.0\n\nreplace %[1]s => %s\n\nrequire k8s.io/kube-scheduler v%s\n",
				module,
				root,
				release,
			), 0o600))
			run(t, dir, "go", "mod", "tidy")
			run(t, dir, "go", "build", "-o", os.DevNull, ".")

			var gomod struct {
				Require []struct{ Path, Version string }
				Replace []struct{}
			}
			require.NoError(t, json.Unmarshal([]byte(run(t, dir, "go", "mod", "edit", "-json")), &gomod))
			assert.Len(t, gomod.Replace, 1)
			for _, module := range gomod.Require {
				switch module.Path {
				case "k8s.io/api",
					"k8s.io/apimachinery",
					"k8s.io/client-go",
					"k8s.io/component-base",
					"k8s.io/kube-scheduler":
					assert.Equal(t, "v"+release, module.Version, module.Path)
				}
			}
		})
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
