package main

import (
	"os"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/placement-policy/scheduler-plugin/examples"
	"github.com/placement-policy/scheduler-plugin/examples/internal/controlplane"
	"github.com/placement-policy/scheduler-plugin/placementpolicy/v1alpha1"
)

func TestMain(m *testing.M) {
	controlplane.Main(func() *cobra.Command { return &cobra.Command{} }) // there is no scheduler
	os.Exit(m.Run())
}

// TestAnswersForACluster asks a real control plane.
func TestAnswersForACluster(t *testing.T) {
	ctx := t.Context()
	cp, err := controlplane.Start(ctx, controlplane.Options{})
	require.NoError(t, err)
	defer func() { assert.NoError(t, cp.Stop()) }()
	policy, err := examples.Files.ReadFile("policies/strict-must.yaml")
	require.NoError(t, err)
	require.NoError(t, cp.Apply(ctx, []byte(v1alpha1.CRDManifest()), policy))
	require.NoError(t, cp.CreateNodes(ctx,
		&v1.Node{ObjectMeta: metav1.ObjectMeta{Name: "spot-1", Labels: map[string]string{"pool": "spot"}}},
		&v1.Node{ObjectMeta: metav1.ObjectMeta{Name: "od-1"}},
	))
	require.EventuallyWithT(t, func(c *assert.CollectT) { // without it no pod can be created
		_, err := cp.Client().CoreV1().ServiceAccounts("default").Get(ctx, "default", metav1.GetOptions{})
		require.NoError(c, err)
	}, 90*time.Second, 50*time.Millisecond)
	for _, test := range []struct{ pod, want string }{
		{"metadata: {name: web, labels: {app: web}}", "to group other, by policy default/web-on-spot\n"},
		{"metadata: {name: web, labels: {app: web}}", "to group target, by policy default/web-on-spot\n"}, // 1 of 3
		{"metadata: {name: db, labels: {app: db}}", "anywhere: no policy governs it\n"},
	} {
		var said strings.Builder
		require.NoError(t, answer(ctx, cp.RESTConfig(), strings.NewReader(test.pod), &said))
		assert.Equal(t, test.want, said.String())
		for _, name := range []string{"a", "b"} {
			_, err := cp.Client().CoreV1().Pods("default").Create(ctx, &v1.Pod{
				ObjectMeta: metav1.ObjectMeta{GenerateName: name, Labels: map[string]string{"app": "web"}},
				Spec: v1.PodSpec{
					NodeName:   "od-1",
					Containers: []v1.Container{{Name: "main", Image: "registry.k8s.io/pause:3.10"}},
				},
			}, metav1.CreateOptions{})
			require.NoError(t, err)
		}
	}
}
