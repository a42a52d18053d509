package integration

import (
	"bytes"
	"context"
	"crypto/rand"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/yaml"

	"github.com/placement-policy/scheduler-plugin/examples/internal/controlplane"
	"github.com/placement-policy/scheduler-plugin/placementpolicy/v1alpha1"
)

const (
	// waitTimeout bounds each wait. What is waited for takes seconds, unless the machine is very busy.
	waitTimeout  = 90 * time.Second
	pollInterval = 50 * time.Millisecond
)

// world is a test's own part of a cluster: a namespace, and nodes that only the pods of this namespace go to. As in the
// reports that the tests come from, M is the group of nodes with the label pool=spot, and O are the other nodes.
type world struct {
	*cluster
	t         *testing.T
	ctx       context.Context
	namespace string

	scheduler     *controlplane.Scheduler
	schedulerName string // of the pods
	own           []*controlplane.Scheduler
	apis          []*faultyAPI // of its schedulers
	invalid       []string     // names of policies that are, which recount leaves out
}

// newWorld returns a world whose pods the shared scheduler places.
func newWorld(t *testing.T) *world {
	t.Helper()
	c, err := sharedCluster()
	require.NoError(t, err)
	return newWorldIn(t, c)
}

func newWorldIn(t *testing.T, c *cluster) *world {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background()) // for the clean-up too, unlike t.Context()
	w := &world{cluster: c, t: t, ctx: ctx, scheduler: c.scheduler, schedulerName: defaultScheduler}
	prefix := regexp.MustCompile(`[^a-z0-9]+`).ReplaceAllString(strings.ToLower(t.Name()), "-")
	ns, err := c.Client().CoreV1().Namespaces().Create(ctx, &v1.Namespace{
		ObjectMeta: metav1.ObjectMeta{GenerateName: prefix[:min(len(prefix), 40)] + "-"},
	}, metav1.CreateOptions{})
	require.NoError(t, err)
	w.namespace = ns.Name
	t.Cleanup(cancel)
	t.Cleanup(w.remove)
	t.Cleanup(w.explain)
	t.Cleanup(w.finish)
	w.eventually(func(c *assert.CollectT) { // without it no pod can be created
		_, err := w.Client().CoreV1().ServiceAccounts(w.namespace).Get(ctx, "default", metav1.GetOptions{})
		require.NoError(c, err)
	})
	return w
}

// finish checks that the scheduler knows where all pods are.
func (w *world) finish() {
	if !w.t.Failed() && w.scheduler != nil {
		w.requireAgreement()
		w.requireNoDrift()
	}
}

// explain tells, if the test has failed, what it was like in the end.
func (w *world) explain() {
	if !w.t.Failed() {
		return
	}
	pods, err := w.Client().CoreV1().Pods(w.namespace).List(w.ctx, metav1.ListOptions{})
	if err != nil {
		w.t.Log(err)
		return
	}
	for _, pod := range pods.Items[:min(len(pods.Items), 20)] {
		w.t.Logf(
			"pod %s on node %q is %s, deleted %v: %s",
			pod.Name,
			pod.Spec.NodeName,
			pod.Status.Phase,
			pod.DeletionTimestamp,
			unscheduledMessage(&pod),
		)
	}
	if w.scheduler != nil {
		log, err := os.ReadFile(w.scheduler.LogFile())
		lines := slices.DeleteFunc(
			bytes.Split(log, []byte("\n")),
			func(line []byte) bool { return !bytes.Contains(line, []byte(w.namespace)) },
		)
		w.t.Logf(
			"the scheduler's log of this ends: %v\n%s",
			err,
			bytes.Join(lines[max(0, len(lines)-20):], []byte("\n")),
		)
	}
}

// remove removes all that is there, without waiting for it.
func (w *world) remove() {
	for _, scheduler := range w.own {
		scheduler.Kill()
	}
	for _, api := range w.apis {
		api.Close() // which waits for the requests of schedulers that live
	}
	client := w.Client().CoreV1()
	for _, err := range []error{
		client.Namespaces().Delete(w.ctx, w.namespace, metav1.DeleteOptions{}),
		client.Pods(w.namespace).DeleteCollection(w.ctx, metav1.DeleteOptions{GracePeriodSeconds: new(int64(0))}, metav1.ListOptions{}),
		client.Nodes().DeleteCollection(w.ctx, metav1.DeleteOptions{}, metav1.ListOptions{LabelSelector: "test=" + w.namespace}),
	} {
		if err != nil {
			w.t.Log("cleaning up:", err)
		}
	}
}

// startScheduler starts a scheduler for this world alone: pods that are created from now on are for it. The default
// configuration is the example's, with the profile called after the namespace; another must have a profile of that
// name.
func (w *world) startScheduler(options schedulerOptions) {
	w.t.Helper()
	options.Name = w.namespace
	if options.Config == nil {
		options.Config = exampleConfig(w.t, w.namespace)
	}
	scheduler, err := w.cluster.startScheduler(w.ctx, options)
	require.NoError(w.t, err)
	w.scheduler, w.schedulerName = scheduler, w.namespace
	w.own = append(w.own, scheduler)
}

func (w *world) eventually(check func(c *assert.CollectT)) {
	w.t.Helper()
	require.EventuallyWithT(w.t, check, waitTimeout, pollInterval)
}

// Nodes

type nodeEdit func(*v1.Node)

// cordoned nodes take no pods.
func cordoned(node *v1.Node) { node.Spec.Unschedulable = true }

// room is how many pods fit on the node.
func room(pods int64) nodeEdit {
	return func(node *v1.Node) {
		node.Status.Allocatable = v1.ResourceList{
			v1.ResourceCPU:    resource.MustParse("32"),
			v1.ResourceMemory: resource.MustParse("64Gi"),
			v1.ResourcePods:   *resource.NewQuantity(pods, resource.DecimalSI),
		}
	}
}

// addNodes adds nodes with the given names: m1, m2 and so on are in group M, o1 and so on in group O.
func (w *world) addNodes(names string, edits ...nodeEdit) {
	w.t.Helper()
	var nodes []*v1.Node
	for _, name := range strings.Fields(names) {
		node := &v1.Node{
			ObjectMeta: metav1.ObjectMeta{Name: w.nodeName(name), Labels: map[string]string{"test": w.namespace}},
		}
		if strings.HasPrefix(name, "m") {
			node.Labels["pool"] = "spot"
		}
		for _, edit := range edits {
			edit(node)
		}
		nodes = append(nodes, node)
	}
	ctx, cancel := context.WithTimeout(w.ctx, waitTimeout)
	defer cancel()
	require.NoError(w.t, w.CreateNodes(ctx, nodes...))
}

func (w *world) nodeName(name string) string { return w.namespace + "-" + name }

func (w *world) deleteNode(name string) {
	w.t.Helper()
	require.NoError(w.t, w.Client().CoreV1().Nodes().Delete(w.ctx, w.nodeName(name), metav1.DeleteOptions{}))
}

// patchNode applies a merge patch, in YAML, to a node.
func (w *world) patchNode(name, patch string) {
	w.t.Helper()
	_, err := w.Client().CoreV1().Nodes().Patch(
		w.ctx,
		w.nodeName(name),
		types.MergePatchType,
		toJSON(w.t, patch),
		metav1.PatchOptions{},
	)
	require.NoError(w.t, err)
}

// Pods and workloads

type podEdit func(*v1.PodTemplateSpec)

// onlyOn lets a pod go to one of the groups only.
func onlyOn(group string) podEdit {
	return func(pod *v1.PodTemplateSpec) {
		pod.Spec.Affinity = &v1.Affinity{NodeAffinity: &v1.NodeAffinity{
			RequiredDuringSchedulingIgnoredDuringExecution: &v1.NodeSelector{
				NodeSelectorTerms: []v1.NodeSelectorTerm{nodesOf(group)},
			},
		}}
	}
}

// preferably has a pod prefer one of the groups, less than its policy may prefer the other.
func preferably(group string) podEdit {
	return func(pod *v1.PodTemplateSpec) {
		pod.Spec.Affinity = &v1.Affinity{NodeAffinity: &v1.NodeAffinity{
			PreferredDuringSchedulingIgnoredDuringExecution: []v1.PreferredSchedulingTerm{
				{Weight: 100, Preference: nodesOf(group)},
			},
		}}
	}
}

func nodesOf(group string) v1.NodeSelectorTerm {
	operator := v1.NodeSelectorOpExists
	if group == "o" {
		operator = v1.NodeSelectorOpDoesNotExist
	}
	return v1.NodeSelectorTerm{MatchExpressions: []v1.NodeSelectorRequirement{{Key: "pool", Operator: operator}}}
}

// template is a pod of the given application. It can go to the world's own nodes only.
func (w *world) template(app string, edits []podEdit) v1.PodTemplateSpec {
	template := v1.PodTemplateSpec{
		ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"app": app}},
		Spec: v1.PodSpec{
			SchedulerName: w.schedulerName,
			NodeSelector:  map[string]string{"test": w.namespace},
			Containers:    []v1.Container{{Name: "main", Image: "registry.k8s.io/pause:3.10"}},
		},
	}
	for _, edit := range edits {
		edit(&template)
	}
	return template
}

// createPod creates a pod of an application that nothing controls.
func (w *world) createPod(name, app string, edits ...podEdit) {
	w.t.Helper()
	template := w.template(app, edits)
	pod := &v1.Pod{ObjectMeta: template.ObjectMeta, Spec: template.Spec}
	pod.Name = name
	_, err := w.Client().CoreV1().Pods(w.namespace).Create(w.ctx, pod, metav1.CreateOptions{})
	require.NoError(w.t, err)
}

// createPods creates a number of pods of application web that nothing controls.
func (w *world) createPods(prefix string, pods int, edits ...podEdit) {
	w.t.Helper()
	for i := range pods {
		w.createPod(fmt.Sprintf("%s-%d", prefix, i+1), "web", edits...)
	}
}

// deploy creates a Deployment of an application, under its name.
func (w *world) deploy(app string, replicas int, edits ...podEdit) {
	w.t.Helper()
	w.deployWith(app, replicas, appsv1.DeploymentStrategy{}, edits...)
}

func (w *world) deployWith(app string, replicas int, strategy appsv1.DeploymentStrategy, edits ...podEdit) {
	w.t.Helper()
	deployment := &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: app},
		Spec: appsv1.DeploymentSpec{
			Replicas: new(int32(replicas)),
			Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": app}},
			Template: w.template(app, edits),
			Strategy: strategy,
		},
	}
	_, err := w.Client().AppsV1().Deployments(w.namespace).Create(w.ctx, deployment, metav1.CreateOptions{})
	require.NoError(w.t, err)
}

// patchDeployment applies a merge patch, in YAML.
func (w *world) patchDeployment(name, patch string) {
	w.t.Helper()
	_, err := w.Client().AppsV1().Deployments(
		w.namespace,
	).Patch(
		w.ctx,
		name,
		types.MergePatchType,
		toJSON(w.t, patch),
		metav1.PatchOptions{},
	)
	require.NoError(w.t, err)
}

// newRevision changes the pods that a Deployment wants.
func (w *world) newRevision(name string) {
	w.t.Helper()
	w.patchDeployment(name, "spec: {template: {metadata: {annotations: {example.com/revision: "+rand.Text()+"}}}}")
}

// rollOut makes a new revision of a Deployment and waits until only its pods are there, and ready.
func (w *world) rollOut(name string) {
	w.t.Helper()
	w.newRevision(name)
	w.eventually(func(c *assert.CollectT) {
		d, err := w.Client().AppsV1().Deployments(w.namespace).Get(w.ctx, name, metav1.GetOptions{})
		require.NoError(c, err)
		require.Equal(c, d.Generation, d.Status.ObservedGeneration)
		require.Equal(c, *d.Spec.Replicas, d.Status.UpdatedReplicas, "updated")
		require.Equal(c, *d.Spec.Replicas, d.Status.ReadyReplicas, "ready")
		require.Equal(c, *d.Spec.Replicas, d.Status.Replicas, "all")
	})
}

func (w *world) scale(name string, replicas int) {
	w.t.Helper()
	w.patchDeployment(name, fmt.Sprintf("spec: {replicas: %d}", replicas))
}

// patchPod applies a merge patch, in YAML.
func (w *world) patchPod(name, patch string, subresources ...string) {
	w.t.Helper()
	_, err := w.Client().CoreV1().Pods(
		w.namespace,
	).Patch(
		w.ctx,
		name,
		types.MergePatchType,
		toJSON(w.t, patch),
		metav1.PatchOptions{},
		subresources...)
	require.NoError(w.t, err)
}

// deletePods asks for the deletion of pods and does not wait for it.
func (w *world) deletePods(names ...string) {
	w.t.Helper()
	for _, name := range names {
		err := w.Client().CoreV1().Pods(w.namespace).Delete(w.ctx, name, metav1.DeleteOptions{})
		if !apierrors.IsNotFound(err) { // perhaps its workload was faster
			require.NoError(w.t, err)
		}
	}
}

// podsOn returns the names of the active pods on the nodes whose names begin with prefix: m, o, or a node's name. Pods
// that are not placed are on "".
func (w *world) podsOn(prefix string) []string {
	w.t.Helper()
	names, err := w.listPodsOn(prefix)
	require.NoError(w.t, err)
	return names
}

func (w *world) listPodsOn(prefix string) ([]string, error) {
	pods, err := w.Client().CoreV1().Pods(w.namespace).List(w.ctx, metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	var names []string
	for _, pod := range pods.Items {
		on, placed := strings.CutPrefix(pod.Spec.NodeName, w.namespace+"-")
		if isActive(&pod) && (placed && prefix != "" && strings.HasPrefix(on, prefix) || !placed && prefix == "") {
			names = append(names, pod.Name)
		}
	}
	return names, nil
}

// requireOn waits until so many active pods are on the nodes whose names begin with prefix.
func (w *world) requireOn(prefix string, pods int) {
	w.t.Helper()
	w.eventually(func(c *assert.CollectT) {
		names, err := w.listPodsOn(prefix)
		require.NoError(c, err)
		assert.Len(c, names, pods)
	})
}

// requirePlaced waits until a pod is placed on a node whose name begins with prefix.
func (w *world) requirePlaced(name, prefix string) {
	w.t.Helper()
	w.eventually(func(c *assert.CollectT) {
		pod, err := w.Client().CoreV1().Pods(w.namespace).Get(w.ctx, name, metav1.GetOptions{})
		require.NoError(c, err)
		assert.Regexp(c, "^"+w.nodeName(prefix), pod.Spec.NodeName)
	})
}

// requirePending waits until the scheduler has failed to place the pods of an application, and returns what it says of
// the first of them.
func (w *world) requirePending(app string, pods int) (message string) {
	w.t.Helper()
	w.eventually(func(c *assert.CollectT) {
		list, err := w.Client().CoreV1().Pods(
			w.namespace,
		).List(
			w.ctx,
			metav1.ListOptions{LabelSelector: "app=" + app, FieldSelector: "spec.nodeName="},
		)
		require.NoError(c, err)
		require.Len(c, list.Items, pods)
		for i := range list.Items {
			message = unscheduledMessage(&list.Items[i])
			require.NotEmpty(c, message)
		}
	})
	return message
}

// unscheduledMessage is why the scheduler could not place the pod, or empty.
func unscheduledMessage(pod *v1.Pod) string {
	i := slices.IndexFunc(pod.Status.Conditions, func(c v1.PodCondition) bool {
		return c.Type == v1.PodScheduled && c.Status == v1.ConditionFalse && c.Reason == v1.PodReasonUnschedulable
	})
	if i < 0 {
		return ""
	}
	return pod.Status.Conditions[i].Message
}

// Policies

// policySpec is a policy for the pods of application web and the nodes of group M, in YAML. More fields may be given.
func policySpec(mode, action, size string, more ...string) string {
	fields := append([]string{
		"enforcementMode: " + mode,
		"podSelector: {matchLabels: {app: web}}",
		"nodeSelector: {matchLabels: {pool: spot}}",
		"policy: {action: " + action + ", targetSize: " + size + "}",
	}, more...)
	return "{" + strings.Join(fields, ", ") + "}"
}

var (
	strict40     = policySpec("Strict", "Must", "40%")
	bestEffort40 = policySpec("BestEffort", "Must", "40%")
)

// setPolicy creates or edits a policy and waits until the scheduler follows it.
func (w *world) setPolicy(name, spec string) {
	w.t.Helper()
	w.applyPolicy(name, spec)
	w.requireAgreement()
}

func (w *world) applyPolicy(name, spec string) {
	w.t.Helper()
	require.NoError(w.t, w.Apply(w.ctx, policyManifest(w.namespace, name, spec)))
}

func policyManifest(namespace, name, spec string) []byte {
	return fmt.Appendf(nil, `
apiVersion: placement-policy.scheduling.x-k8s.io/v1alpha1
kind: PlacementPolicy
metadata: {name: %s, namespace: %s}
spec: %s
`, name, namespace, spec)
}

func (w *world) deletePolicy(name string) {
	w.t.Helper()
	require.NoError(
		w.t,
		w.Dynamic().Resource(v1alpha1.Resource()).Namespace(w.namespace).Delete(w.ctx, name, metav1.DeleteOptions{}),
	)
}

func toJSON(t testing.TB, manifest string) []byte {
	t.Helper()
	data, err := yaml.YAMLToJSON([]byte(manifest))
	require.NoError(t, err)
	return data
}
