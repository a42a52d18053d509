package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/placement-policy/scheduler-plugin/examples"
	"github.com/placement-policy/scheduler-plugin/examples/internal/controlplane"
	"github.com/placement-policy/scheduler-plugin/placementpolicy/v1alpha1"
	"github.com/placement-policy/scheduler-plugin/policystore"
)

const (
	// stepTimeout bounds each step, which takes seconds.
	stepTimeout  = 90 * time.Second
	pollInterval = 100 * time.Millisecond
)

// demonstration is what the steps share.
type demonstration struct {
	*controlplane.ControlPlane
	*subject
	out io.Writer
	// stock: the policy is there, but a stock scheduler with a topology spread constraint takes its place.
	stock     bool
	recorder  *recorder // nil unless it is wanted
	scheduler *controlplane.Scheduler
	replicas  int
	last      *count
	// relabelled is the node that changes group; chosen if it is empty.
	relabelled string
}

// demonstrate runs all steps. The error says what is off in the end, or what went wrong.
func demonstrate(ctx context.Context, o options, out io.Writer) error {
	file, err := o.readPolicy()
	if err != nil {
		return err
	}
	subject, err := readSubject(file)
	if err != nil {
		return err
	}
	if _, err := subject.nodes(o.nodes); err != nil {
		return err
	}
	d := &demonstration{subject: subject, out: out}
	if o.svgFile == "" {
		return d.perform(ctx, o)
	}
	d.recorder = newRecorder("Placement policy " + subject.policy.Name)
	if err := d.perform(ctx, o); err != nil {
		return err
	}
	fmt.Fprint(out, "\nThe same steps once more, with the stock scheduler and a topology spread constraint\n\n")
	stock := &demonstration{subject: subject, out: out, stock: true, relabelled: d.relabelled}
	stock.recorder = newRecorder("Stock scheduler, topology spread over the groups")
	if err := stock.perform(ctx, o); err != nil {
		return err
	}
	fmt.Fprintf(out, "Writing %s\n", o.svgFile)
	return writeChart(o.svgFile, d.recorder.recorded(), stock.recorder.recorded())
}

// perform runs all steps on a control plane of their own.
func (d *demonstration) perform(ctx context.Context, o options) (err error) {
	out := d.out
	fmt.Fprintln(out, "Starting a control plane on this machine")
	cp, err := controlplane.Start(ctx, controlplane.Options{Progress: out})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, cp.Stop()) }()
	d.ControlPlane = cp
	if err := d.setUp(ctx, o.nodes); err != nil {
		return err
	}
	if d.recorder != nil {
		recording, cancel := context.WithCancel(ctx)
		defer cancel()
		if err := d.recorder.start(recording, cp, d.policy.NamespacedName); err != nil {
			return err
		}
	}
	medium, large := o.replicas*5/2, o.replicas*4
	steps := []struct {
		title string
		do    func(context.Context) error
	}{
		{
			fmt.Sprintf("create a Deployment of %d", o.replicas),
			func(ctx context.Context) error { return d.create(ctx, o.replicas) },
		},
		{fmt.Sprintf("scale to %d", medium), func(ctx context.Context) error { return d.scale(ctx, medium) }},
		{"rolling update", d.update},
		{"delete half of the pods", d.deleteHalf},
		{
			"relabel a node, whose pods change group with it",
			func(ctx context.Context) error { return d.relabel(ctx, large) },
		},
		{
			fmt.Sprintf("scale to %d, kill the scheduler with -9 on the way, start another", large),
			func(ctx context.Context) error { return d.scaleAndKill(ctx, large) },
		},
	}
	for i, step := range steps {
		fmt.Fprintf(out, "\nStep %d of %d: %s\n", i+1, len(steps), step.title)
		d.recorder.step(step.title)
		if err := d.run(ctx, step.do); err != nil {
			return err
		}
		d.recorder.rest(ctx)
	}
	verdict := d.last.verdict()
	if d.stock {
		fmt.Fprintln(out, cmp.Or(verdict, errors.New("exact, by chance")))
		return nil
	}
	if verdict == nil {
		fmt.Fprintf(out, "\nThe pods are where the policy says.\n")
	}
	if o.keep {
		fmt.Fprintf(
			out,
			"The control plane is there until Ctrl-C. In another terminal:\n\n  export KUBECONFIG=%s\n\n",
			cp.Kubeconfig(),
		)
		defer func() { <-ctx.Done() }()
	}
	if verdict != nil {
		if o.keep {
			fmt.Fprintln(out, verdict)
		}
		return verdict
	}
	fmt.Fprintf(out, "exact: %s\n", d.last.inGroups())
	return nil
}

func (d *demonstration) setUp(ctx context.Context, counts []int) error {
	nodes, err := d.nodes(counts)
	if err != nil {
		return err
	}
	rbac, err := examples.Files.ReadFile("deploy/rbac.yaml")
	if err != nil {
		return err
	}
	if err := d.Apply(ctx, []byte(v1alpha1.CRDManifest()), rbac); err != nil {
		return err
	}
	namespace := &v1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: d.policy.Namespace}}
	if _, err := d.Client().CoreV1().Namespaces().Create(
		ctx,
		namespace,
		metav1.CreateOptions{},
	); err != nil &&
		!apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("creating the policy's namespace: %w", err)
	}
	if err := d.Apply(ctx, d.manifest); err != nil {
		return err
	}
	if err := d.CreateNodes(ctx, nodes...); err != nil {
		return err
	}
	fmt.Fprintf(d.out, "Made %d nodes, and applied policy %s\n", len(nodes), d.policy.NamespacedName)
	return d.startScheduler(ctx)
}

// stockConfig is the configuration of a scheduler as it comes.
const stockConfig = "{apiVersion: kubescheduler.config.k8s.io/v1, kind: KubeSchedulerConfiguration}"

func (d *demonstration) startScheduler(ctx context.Context) error {
	config, err := examples.Files.ReadFile("scheduler/config.yaml")
	if err != nil {
		return err
	}
	if d.stock {
		config = []byte(stockConfig)
	}
	kubeconfig, err := d.ServiceAccountKubeconfig(ctx, "kube-system", "placement-policy-scheduler")
	if err != nil {
		return err
	}
	d.scheduler, err = d.StartScheduler(ctx, controlplane.SchedulerOptions{
		Config:     config,
		Kubeconfig: kubeconfig,
		// There is never more than one, so the second need not wait for the lease of a killed one.
		ExtraArgs: []string{"--leader-elect=false"},
	})
	return err
}

// run does one step, waits until the cluster is at rest, and shows where the pods are.
func (d *demonstration) run(ctx context.Context, do func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, stepTimeout)
	defer cancel()
	if err := do(ctx); err != nil {
		return err
	}
	if err := d.waitForRest(ctx); err != nil {
		return err
	}
	d.last.print(d.out)
	if d.stock {
		return nil
	}
	counts, err := d.schedulerCounts(ctx)
	if err != nil {
		return err
	}
	counts.print(d.out)
	return nil
}

// waitForRest waits until the Deployment has all its pods running, no other pod is left, and the scheduler's store
// knows.
func (d *demonstration) waitForRest(ctx context.Context) error {
	shown := -1
	err := wait.PollUntilContextCancel(ctx, pollInterval, true, func(ctx context.Context) (bool, error) {
		if err := d.scheduler.Err(); err != nil {
			return false, err
		}
		deployment, err := d.Client().AppsV1().Deployments(
			d.policy.Namespace,
		).Get(
			ctx,
			deploymentName,
			metav1.GetOptions{},
		)
		if err != nil {
			return false, err
		}
		if running := int(deployment.Status.ReadyReplicas); running != shown {
			fmt.Fprintf(d.out, "  %d pods are running, %d wanted\n", running, d.replicas)
			shown = running
		}
		if !d.complete(deployment) {
			return false, nil
		}
		if d.last, err = d.count(ctx); err != nil || d.last.qualifying != d.replicas {
			return false, err
		}
		if d.stock {
			return true, nil
		}
		counts, err := d.schedulerCounts(ctx)
		return slices.Equal(counts.placed, d.last.placed), err
	})
	if errors.Is(err, context.DeadlineExceeded) {
		return fmt.Errorf(
			"off: the pods are not all running after %s: %s",
			stepTimeout,
			d.pendingReasons(context.WithoutCancel(ctx)),
		)
	}
	return err
}

func (d *demonstration) complete(deployment *appsv1.Deployment) bool {
	want, status := int32(d.replicas), deployment.Status
	return status.ObservedGeneration == deployment.Generation && *deployment.Spec.Replicas == want &&
		status.Replicas == want && status.UpdatedReplicas == want && status.ReadyReplicas == want
}

// pendingReasons returns what the scheduler says of the pods that it could not place.
func (d *demonstration) pendingReasons(ctx context.Context) string {
	pods, err := d.Client().CoreV1().Pods(d.policy.Namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return err.Error()
	}
	reasons := map[string]int{}
	for _, pod := range pods.Items {
		for _, condition := range pod.Status.Conditions {
			if condition.Type == v1.PodScheduled && condition.Status == v1.ConditionFalse {
				reasons[condition.Message]++
			}
		}
	}
	if len(reasons) == 0 {
		return "the scheduler gives no reason; its log is " + d.scheduler.LogFile()
	}
	var lines []string
	for _, reason := range slices.Sorted(maps.Keys(reasons)) {
		lines = append(lines, fmt.Sprintf("%d pods: %s", reasons[reason], reason))
	}
	return strings.Join(lines, "; ")
}

func (d *demonstration) create(ctx context.Context, replicas int) error {
	d.replicas = replicas
	deployment := d.deployment(replicas)
	if d.stock {
		deployment.Spec.Template.Spec.TopologySpreadConstraints = d.spread()
	}
	_, err := d.Client().AppsV1().Deployments(d.policy.Namespace).Create(ctx, deployment, metav1.CreateOptions{})
	return err
}

func (d *demonstration) scale(ctx context.Context, replicas int) error {
	d.replicas = replicas
	return d.patchDeployment(ctx, map[string]any{"spec": map[string]any{"replicas": replicas}})
}

func (d *demonstration) update(ctx context.Context) error {
	annotations := map[string]any{"quickstart/revision": "2"}
	return d.patchDeployment(
		ctx,
		map[string]any{
			"spec": map[string]any{"template": map[string]any{"metadata": map[string]any{"annotations": annotations}}},
		},
	)
}

func (d *demonstration) patchDeployment(ctx context.Context, change map[string]any) error {
	patch, err := json.Marshal(change)
	if err != nil {
		return err
	}
	_, err = d.Client().AppsV1().Deployments(
		d.policy.Namespace,
	).Patch(
		ctx,
		deploymentName,
		types.MergePatchType,
		patch,
		metav1.PatchOptions{},
	)
	return err
}

func (d *demonstration) deleteHalf(ctx context.Context) error {
	pods, err := d.Client().CoreV1().Pods(d.policy.Namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	for _, pod := range pods.Items[:len(pods.Items)/2] {
		if err := d.Client().CoreV1().Pods(pod.Namespace).Delete(ctx, pod.Name, metav1.DeleteOptions{}); err != nil {
			return err
		}
	}
	fmt.Fprintf(d.out, "  %d pods are deleted\n", len(pods.Items)/2)
	return nil
}

// relabel moves a node with pods on it into another group. The running pods stay, so the ratio drifts; it chooses a
// node without which it is possible to be exact again once there are as many pods as the last step wants.
func (d *demonstration) relabel(ctx context.Context, finally int) error {
	for _, node := range d.last.nodes {
		for _, to := range d.kinds {
			if d.relabelled != "" && d.relabelled != node.name || !d.mayMove(node, to.group, finally) {
				continue
			}
			d.relabelled = node.name
			labels := d.relabels(node.group, to)
			patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"labels": labels}})
			if err != nil {
				return err
			}
			_, err = d.Client().CoreV1().Nodes().Patch(
				ctx,
				node.name,
				types.MergePatchType,
				patch,
				metav1.PatchOptions{},
			)
			from, into := d.last.policy.GroupName(node.group), d.last.policy.GroupName(to.group)
			fmt.Fprintf(d.out, "  node %s leaves group %s for %s with its %d pods\n", node.name, from, into, node.pods)
			return err
		}
	}
	fmt.Fprintln(d.out, "  left out: with no node could the ratio be exact again in the end")
	return nil
}

// mayMove reports whether the node may go into the group: pods go with it, some node is left in its own group, and no
// group then has more pods than belong there finally.
func (d *demonstration) mayMove(node nodeCount, to policystore.Group, finally int) bool {
	left := 0
	for _, other := range d.last.nodes {
		if other.group == node.group {
			left++
		}
	}
	if node.group == to || node.group == policystore.NoGroup || left == 1 || node.pods == 0 {
		return false
	}
	placed := slices.Clone(d.last.placed)
	placed[node.group-1] -= node.pods
	placed[to-1] += node.pods
	for g := range d.last.policy.Groups() {
		if placed[g-1] > d.last.policy.Quota(g, finally) {
			return false
		}
	}
	return true
}

func (d *demonstration) scaleAndKill(ctx context.Context, replicas int) error {
	before := d.replicas
	placements, err := d.Client().CoreV1().Pods(d.policy.Namespace).Watch(ctx, metav1.ListOptions{
		FieldSelector: "spec.nodeName!=", ResourceVersion: "",
	})
	if err != nil {
		return err
	}
	defer placements.Stop()
	if err := d.scale(ctx, replicas); err != nil {
		return err
	}
	placed := map[types.UID]bool{}
	for event := range placements.ResultChan() {
		if pod, ok := event.Object.(*v1.Pod); ok {
			placed[pod.UID] = true
		}
		if len(placed) > before {
			break
		}
	}
	d.scheduler.Kill()
	d.recorder.mark("kill")
	count, err := d.count(ctx)
	if err != nil {
		return err
	}
	fmt.Fprintf(d.out, "  killed with %d of %d pods placed\n", sum(count.placed), replicas)
	return d.startScheduler(ctx)
}
