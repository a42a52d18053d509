package integration

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	v1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/sets"
	yamlutil "k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/kubernetes/cmd/kube-scheduler/app"
	schedulerconfig "k8s.io/kubernetes/pkg/scheduler/apis/config"
	"k8s.io/kubernetes/pkg/scheduler/apis/config/scheme"
	"k8s.io/kubernetes/pkg/scheduler/apis/config/validation"
	"sigs.k8s.io/yaml"

	"github.com/placement-policy/scheduler-plugin/examples"
	"github.com/placement-policy/scheduler-plugin/examples/internal/controlplane"
	"github.com/placement-policy/scheduler-plugin/placementpolicy/v1alpha1"
)

// deployed is what examples/deploy calls most of what it has: the Deployment, the service account, the roles, the lease
// and the scheduler's profile.
const deployed = "placement-policy-scheduler"

// kubeSchedulerConfig is that of a cluster's own kube-scheduler.
const kubeSchedulerConfig = "{apiVersion: kubescheduler.config.k8s.io/v1, kind: KubeSchedulerConfiguration}"

// refusal is how the API server says what a user may not do, in a log with or without quoting.
var refusal = regexp.MustCompile(`cannot (\w+) resource \\?"([^"\\]+)`)

// TestJ2TwoReplicas applies examples/deploy to a cluster that has a kube-scheduler of its own, which places the
// replicas' pods. As kwok only pretends to run these, the test runs two schedulers with all that the pods would have.
func TestJ2TwoReplicas(t *testing.T) {
	t.Parallel()
	c, err := startEmptyCluster(t.Context())
	require.NoError(t, err)
	_, err = c.StartScheduler(
		t.Context(),
		schedulerOptions{Config: []byte(kubeSchedulerConfig), Kubeconfig: c.Kubeconfig()},
	)
	require.NoError(t, err)
	w := newWorldIn(t, c)
	w.addNodes("m1 m2 o1 o2")
	w.kubectl("label", "namespace", "kube-system", "pod-security.kubernetes.io/enforce=restricted")
	w.kubectl("apply", "--kustomize", "../../deploy")
	w.kubectl("rollout", "status", "--namespace=kube-system", "--timeout="+waitTimeout.String(), "deployment/"+deployed)

	deployment, err := w.Client().AppsV1().Deployments("kube-system").Get(w.ctx, deployed, metav1.GetOptions{})
	require.NoError(t, err)
	pods, err := w.Client().CoreV1().Pods("kube-system").List(w.ctx, metav1.ListOptions{})
	require.NoError(t, err)
	nodes := sets.New[string]()
	for _, pod := range pods.Items {
		nodes.Insert(pod.Spec.NodeName)
	}
	require.Len(t, pods.Items, 2)
	assert.Len(t, nodes, 2, "nodes of the replicas")
	w.eventually(func(c *assert.CollectT) {
		budget, err := w.Client().PolicyV1().PodDisruptionBudgets(
			"kube-system",
		).Get(
			w.ctx,
			deployed,
			metav1.GetOptions{},
		)
		require.NoError(c, err)
		assert.EqualValues(c, 1, budget.Status.DisruptionsAllowed)
	})

	spec := deployment.Spec.Template.Spec
	configMap, err := w.Client().CoreV1().ConfigMaps(
		"kube-system",
	).Get(
		w.ctx,
		spec.Volumes[0].ConfigMap.Name,
		metav1.GetOptions{},
	)
	require.NoError(t, err)
	kubeconfig, err := w.ServiceAccountKubeconfig(w.ctx, "kube-system", spec.ServiceAccountName)
	require.NoError(t, err)
	var replicas []*controlplane.Scheduler
	for i := range *deployment.Spec.Replicas {
		replica, err := w.StartScheduler(w.ctx, schedulerOptions{
			Name:       fmt.Sprintf("replica-%d", i+1),
			Config:     []byte(configMap.Data["config.yaml"]),
			Kubeconfig: kubeconfig,
		})
		require.NoError(t, err)
		replicas = append(replicas, replica)
	}

	w.schedulerName = deployed
	w.scheduler = replicas[0]
	w.setPolicy("web", strict40)
	w.deploy("web", 10)
	leader := -1
	for i, replica := range replicas { // they count the same, but only one places pods
		w.scheduler = replica
		w.requireSplit("web", 4, 6)
		if w.metric("scheduler_placement_policy_reservations_total", map[string]string{"outcome": "reserved"}) > 0 {
			assert.Equal(t, -1, leader, "both place pods")
			leader = i
		}
	}
	require.NotEqual(t, -1, leader, "none places pods")

	replicas[leader].Kill()
	w.scheduler = replicas[1-leader]
	w.scale("web", 20)
	w.requireSplit("web", 8, 12)
	for _, replica := range replicas {
		log, err := os.ReadFile(replica.LogFile())
		require.NoError(t, err)
		assert.Empty(t, refusal.FindAllString(string(log), -1), "what the service account lacks")
	}
}

// TestPermissionsAreNeeded takes each permission that examples/deploy grants, and each binding, away from a scheduler,
// and looks for what it is refused then.
func TestPermissionsAreNeeded(t *testing.T) {
	t.Parallel()
	c, err := startEmptyCluster(t.Context())
	require.NoError(t, err)
	require.NoError(t, c.Apply(t.Context(), []byte(v1alpha1.CRDManifest())))
	objects := deployObjects(t, "rbac.yaml")
	config, err := examples.Files.ReadFile("deploy/config.yaml")
	require.NoError(t, err)

	without := func(name, refused string, left []*unstructured.Unstructured) {
		t.Run("without "+name, func(t *testing.T) {
			w := newWorldIn(t, c)
			// All has other names in each subtest: so nothing is left of the one before.
			rename := func(data []byte) []byte { return bytes.ReplaceAll(data, []byte(deployed), []byte(w.namespace)) }
			for _, object := range left {
				manifest, err := object.MarshalJSON()
				require.NoError(t, err)
				require.NoError(t, w.Apply(w.ctx, rename(manifest)))
			}
			kubeconfig, err := w.ServiceAccountKubeconfig(w.ctx, "kube-system", w.namespace)
			require.NoError(t, err)
			w.applyPolicy("web", strict40)

			ctx, cancel := context.WithCancel(w.ctx)
			ended := make(chan struct{})
			go func() {
				defer close(ended)
				scheduler, err := w.StartScheduler(
					ctx,
					schedulerOptions{Name: w.namespace, Config: rename(config), Kubeconfig: kubeconfig},
				)
				if err == nil { // it starts without some of its permissions
					<-ctx.Done()
					scheduler.Kill()
				}
			}()
			defer func() {
				cancel()
				<-ended
			}()
			w.eventually(func(c *assert.CollectT) {
				log, err := os.ReadFile(filepath.Join(w.Dir(), w.namespace+".log"))
				require.NoError(c, err)
				var all []string
				for _, match := range refusal.FindAllStringSubmatch(string(log), -1) {
					all = append(all, match[1]+" "+match[2])
				}
				require.NotEmpty(c, all, "nothing is refused: drop it")
				if refused != "" {
					assert.Contains(c, all, refused)
				}
			})
		})
	}
	for i, object := range objects {
		switch object.GetKind() {
		case "ClusterRoleBinding", "RoleBinding":
			without(object.GetKind()+" "+object.GetName(), "", slices.Delete(slices.Clone(objects), i, i+1))
		case "ClusterRole", "Role":
			rules := singleRules(t, object)
			for j, rule := range rules {
				role := object.DeepCopy()
				role.Object["rules"] = toUnstructured(t, slices.Delete(slices.Clone(rules), j, j+1))
				left := slices.Clone(objects)
				left[i] = role
				permission := rule.Verbs[0] + " " + rule.Resources[0]
				without(permission, permission, left)
			}
		}
	}
}

// singleRules are a role's rules, split into those of one verb for one resource.
func singleRules(t *testing.T, role *unstructured.Unstructured) []rbacv1.PolicyRule {
	t.Helper()
	var decoded rbacv1.ClusterRole // a Role has the same rules
	require.NoError(t, runtime.DefaultUnstructuredConverter.FromUnstructured(role.Object, &decoded))
	var rules []rbacv1.PolicyRule
	for _, rule := range decoded.Rules {
		for _, resource := range rule.Resources {
			for _, verb := range rule.Verbs {
				single := rule
				single.Resources, single.Verbs = []string{resource}, []string{verb}
				rules = append(rules, single)
			}
		}
	}
	return rules
}

func toUnstructured(t *testing.T, value any) (object any) {
	t.Helper()
	data, err := yaml.Marshal(value)
	require.NoError(t, err)
	require.NoError(t, yaml.Unmarshal(data, &object))
	return object
}

// TestDeployment checks what only a kubelet would: that the container of examples/deploy can run what the Dockerfile
// makes.
func TestDeployment(t *testing.T) {
	t.Parallel()
	var deployment appsv1.Deployment
	var budget policyv1.PodDisruptionBudget
	for _, object := range deployObjects(t, "scheduler.yaml") {
		into := map[string]any{"Deployment": &deployment, "PodDisruptionBudget": &budget}[object.GetKind()]
		require.NoError(
			t,
			runtime.DefaultUnstructuredConverter.FromUnstructuredWithValidation(object.Object, into, true),
		)
	}
	assert.Equal(t, deployment.Spec.Selector, budget.Spec.Selector)
	require.Len(t, deployment.Spec.Template.Spec.Containers, 1)
	pod := deployment.Spec.Template.Spec
	container := pod.Containers[0]

	command := app.NewSchedulerCommand()
	require.NoError(t, command.ParseFlags(container.Args))
	assert.Equal(
		t,
		path.Join(container.VolumeMounts[0].MountPath, "config.yaml"),
		command.Flag("config").Value.String(),
	)
	assert.Equal(t, command.Flag("secure-port").Value.String(), fmt.Sprint(container.Ports[0].ContainerPort))
	for probe, want := range map[*v1.Probe]string{
		container.StartupProbe:   "/livez",
		container.LivenessProbe:  "/livez",
		container.ReadinessProbe: "/readyz",
	} {
		require.NotNil(t, probe)
		require.NotNil(t, probe.HTTPGet)
		assert.Equal(t, want, probe.HTTPGet.Path)
		assert.Equal(t, v1.URISchemeHTTPS, probe.HTTPGet.Scheme)
		assert.Equal(t, container.Ports[0].Name, probe.HTTPGet.Port.String())
	}
	assert.True(t, *container.SecurityContext.ReadOnlyRootFilesystem)
	assert.NotEmpty(t, container.Resources.Requests)
	assert.Equal(t, "system-cluster-critical", pod.PriorityClassName)

	dockerfile, err := os.ReadFile("../../../Dockerfile")
	require.NoError(t, err)
	assert.Contains(
		t,
		string(dockerfile),
		fmt.Sprintf("\nUSER %d:%d\n", *pod.SecurityContext.RunAsUser, *pod.SecurityContext.RunAsGroup),
	)
	assert.Contains(t, string(dockerfile), fmt.Sprintf("\nEXPOSE %d\n", container.Ports[0].ContainerPort))
	module, err := os.ReadFile("../../go.mod")
	require.NoError(t, err)
	version := regexp.MustCompile(`FROM .*\bgolang:(\d+\.\d+) `).FindSubmatch(dockerfile)
	require.NotNil(t, version, "the build stage's version of Go")
	assert.Contains(t, string(module), fmt.Sprintf("\ngo %s.", version[1]))
}

// TestDeployedConfiguration compares the configuration of examples/deploy with the one that needs no installation.
func TestDeployedConfiguration(t *testing.T) {
	t.Parallel()
	want, got := schedulerConfig(t, "scheduler/config.yaml"), schedulerConfig(t, "deploy/config.yaml")
	assert.True(t, got.LeaderElection.LeaderElect)
	assert.Equal(t, deployed, got.LeaderElection.ResourceName)
	assert.Equal(t, "kube-system", got.LeaderElection.ResourceNamespace)
	assert.Equal(t, deployed, got.Profiles[0].SchedulerName)

	got.LeaderElection = want.LeaderElection
	got.Profiles[0].SchedulerName = want.Profiles[0].SchedulerName
	assert.Equal(t, want, got, "they differ in more than names")
}

// schedulerConfig decodes a scheduler's configuration as strictly as a scheduler does.
func schedulerConfig(t *testing.T, name string) *schedulerconfig.KubeSchedulerConfiguration {
	t.Helper()
	data, err := examples.Files.ReadFile(name)
	require.NoError(t, err)
	object, _, err := scheme.Codecs.UniversalDecoder().Decode(data, nil, nil)
	require.NoError(t, err)
	config := object.(*schedulerconfig.KubeSchedulerConfiguration)
	require.NoError(t, errors.Join(validation.ValidateKubeSchedulerConfiguration(config)))
	return config
}

// deployObjects are the objects in a file of examples/deploy.
func deployObjects(t *testing.T, name string) []*unstructured.Unstructured {
	t.Helper()
	data, err := examples.Files.ReadFile("deploy/" + name)
	require.NoError(t, err)
	var objects []*unstructured.Unstructured
	decoder := yamlutil.NewYAMLOrJSONDecoder(bytes.NewReader(data), 4096)
	for {
		object := &unstructured.Unstructured{}
		err := decoder.Decode(&object.Object)
		if errors.Is(err, io.EOF) {
			return objects
		}
		require.NoError(t, err)
		objects = append(objects, object)
	}
}
