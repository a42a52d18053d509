// Package inprocess tests the plugin in a real scheduler, in this process and in front of a fake API server: what would
// take a control plane long to bring about.
package inprocess

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	dynamicfake "k8s.io/client-go/dynamic/fake"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/events"
	"k8s.io/kubernetes/pkg/scheduler"
	"k8s.io/kubernetes/pkg/scheduler/apis/config"
	"k8s.io/kubernetes/pkg/scheduler/apis/config/latest"
	frameworkruntime "k8s.io/kubernetes/pkg/scheduler/framework/runtime"
	"k8s.io/kubernetes/pkg/scheduler/profile"
	st "k8s.io/kubernetes/pkg/scheduler/testing"

	"github.com/placement-policy/scheduler-plugin/placementpolicy"
	"github.com/placement-policy/scheduler-plugin/placementpolicy/v1alpha1"
	"github.com/placement-policy/scheduler-plugin/policystore"
)

// cluster is a real scheduler, with the plugin beside the default ones, in front of a fake API server.
type cluster struct {
	t        *testing.T
	client   *fake.Clientset
	policies dynamic.ResourceInterface
	sched    *scheduler.Scheduler
	store    *policystore.Store // the plugin's
	created  int                // by createPods
}

// startCluster starts a scheduler that finds the objects and the policy web-on-spot.
func startCluster(t *testing.T, policy string, objects ...runtime.Object) *cluster {
	c := newCluster(t, func(*config.KubeSchedulerProfile) {}, policy, objects...)
	c.run()
	return c
}

// newCluster returns a cluster whose scheduler, with the profile as edited, queues pods but does not schedule them yet.
func newCluster(
	t *testing.T,
	edit func(*config.KubeSchedulerProfile),
	policy string,
	objects ...runtime.Object,
) *cluster {
	return newClusterWith(t, nil, edit, policy, objects...)
}

// newClusterWith is newCluster where the profile may enable other plugins, too.
func newClusterWith(
	t *testing.T,
	plugins frameworkruntime.Registry,
	edit func(*config.KubeSchedulerProfile),
	policy string,
	objects ...runtime.Object,
) *cluster {
	c := &cluster{t: t, client: fake.NewClientset(objects...), store: policystore.New()}
	c.client.PrependReactor("create", "pods", func(action clienttesting.Action) (bool, runtime.Object, error) {
		if action.GetSubresource() != "binding" {
			return false, nil, nil
		}
		binding := action.(clienttesting.CreateAction).GetObject().(*v1.Binding)
		resource := v1.SchemeGroupVersion.WithResource("pods")
		obj, err := c.client.Tracker().Get(resource, binding.Namespace, binding.Name)
		if err != nil {
			return true, nil, err
		}
		pod := obj.(*v1.Pod).DeepCopy()
		pod.Spec.NodeName = binding.Target.Name
		return true, binding, c.client.Tracker().Update(resource, pod, binding.Namespace)
	})
	policies := dynamicfake.NewSimpleDynamicClientWithCustomListKinds(
		runtime.NewScheme(),
		map[schema.GroupVersionResource]string{
			v1alpha1.Resource(): "PlacementPolicyList",
		},
		policyObject(t, "web-on-spot", policy),
	)
	c.policies = policies.Resource(v1alpha1.Resource()).Namespace("default")

	configuration, err := latest.Default()
	require.NoError(t, err)
	multiPoint := &configuration.Profiles[0].Plugins.MultiPoint
	multiPoint.Enabled = append(multiPoint.Enabled, config.Plugin{Name: placementpolicy.Name, Weight: 20})
	edit(&configuration.Profiles[0])
	registry := frameworkruntime.Registry{placementpolicy.Name: placementpolicy.NewWithStore(c.store)}
	require.NoError(t, registry.Merge(plugins))
	factory := scheduler.NewInformerFactory(c.client, 0, nil)
	ctx := t.Context()
	c.sched, err = scheduler.New(ctx, c.client, factory, nil,
		profile.NewRecorderFactory(events.NewBroadcaster(&events.EventSinkImpl{Interface: c.client.EventsV1()})),
		scheduler.WithKubeConfig(serve(t, c.client, policies)),
		scheduler.WithProfiles(configuration.Profiles...),
		scheduler.WithFrameworkOutOfTreeRegistry(registry),
	)
	require.NoError(t, err)
	factory.Start(ctx.Done())
	factory.WaitForCacheSync(ctx.Done())
	require.NoError(t, c.sched.WaitForHandlersSync(ctx))
	return c
}

// run has the scheduler schedule pods.
func (c *cluster) run() { go c.sched.Run(c.t.Context()) }

// createPods creates n pending pods that the policies of the tests select. The first one's name is web-0.
func (c *cluster) createPods(n int) {
	for range n {
		c.createPod(webPod(fmt.Sprintf("web-%d", c.created)))
		c.created++
	}
}

func (c *cluster) createPod(pod *st.PodWrapper) {
	_, err := c.client.CoreV1().Pods("default").Create(c.t.Context(), pod.Obj(), metav1.CreateOptions{})
	require.NoError(c.t, err)
}

func (c *cluster) updatePod(name string, change func(*v1.Pod)) {
	pod, err := c.client.CoreV1().Pods("default").Get(c.t.Context(), name, metav1.GetOptions{})
	require.NoError(c.t, err)
	change(pod)
	_, err = c.client.CoreV1().Pods("default").Update(c.t.Context(), pod, metav1.UpdateOptions{})
	require.NoError(c.t, err)
}

func (c *cluster) updateNode(node *v1.Node) {
	_, err := c.client.CoreV1().Nodes().Update(c.t.Context(), node, metav1.UpdateOptions{})
	require.NoError(c.t, err)
}

func (c *cluster) updatePolicy(spec string) {
	policy := policyObject(c.t, "web-on-spot", spec)
	policy.SetGeneration(2)
	_, err := c.policies.Update(c.t.Context(), policy, metav1.UpdateOptions{})
	require.NoError(c.t, err)
}

// pods returns the names of the pods on the node; of those that wait, if it is empty.
func (c *cluster) pods(node string) []string {
	pods, err := c.client.CoreV1().Pods("default").List(c.t.Context(), metav1.ListOptions{})
	require.NoError(c.t, err)
	var names []string
	for _, pod := range pods.Items {
		if pod.Spec.NodeName == node {
			names = append(names, pod.Name)
		}
	}
	return names
}

// eventually waits until m1 and o1 have so many pods, and the scheduler has put so many others aside.
func (c *cluster) eventually(m1, o1, waiting int) {
	c.t.Helper()
	require.EventuallyWithT(c.t, func(collect *assert.CollectT) {
		assert.Len(collect, c.pods("m1"), m1)
		assert.Len(collect, c.pods("o1"), o1)
		assert.Len(collect, c.pods(""), waiting)
		assert.Len(collect, c.sched.SchedulingQueue.UnschedulablePods(), waiting)
	}, time.Minute, 10*time.Millisecond)
}

func TestTheRatioIsExactInWhateverBatchesPodsCome(t *testing.T) {
	for _, batches := range [][]int{
		{10},
		{1, 1, 1, 1, 1, 1, 1, 1, 1, 1},
		{1, 2, 4, 3}, // as the ReplicaSet controller starts them
	} {
		t.Run(fmt.Sprint(batches), func(t *testing.T) {
			c := startCluster(t, strict40, spotNode("m1"), onDemandNode("o1"))
			for _, n := range batches {
				c.createPods(n)
				target := c.created * 40 / 100
				c.eventually(target, c.created-target, 0)
			}
		})
	}
}

// Case A1: a scheduler starts while pods run that it has to count in its first decision.
func TestAStartingSchedulerCountsThePodsThatRun(t *testing.T) {
	objects := []runtime.Object{spotNode("m1"), onDemandNode("o1")}
	for i := range 10 {
		objects = append(
			objects,
			webPod(fmt.Sprint("running-", i)).Node("m1").Obj(),
			webPod(fmt.Sprint("waiting-", i)).Obj(),
		)
	}
	startCluster(t, strict40, objects...).eventually(10, 10, 0) // 8 of 20 belong on m1
}

// Two of five pods run on m1, and there is no node where the other three may go.
func TestWaitingPodsArePlacedWhenTheyMay(t *testing.T) {
	tests := []struct {
		name            string
		spec            string // default: strict40
		event           func(*cluster)
		m1, o1, waiting int // afterwards
	}{
		{name: "pods are created", event: func(c *cluster) { c.createPods(3) }, m1: 3, waiting: 5},
		{name: "a pod is deleted", spec: strictTwo, event: func(c *cluster) {
			require.NoError(
				c.t,
				c.client.CoreV1().Pods("default").Delete(c.t.Context(), c.pods("m1")[0], metav1.DeleteOptions{}),
			)
		}, m1: 2, waiting: 2},
		{name: "a waiting pod's labels change", event: func(c *cluster) {
			c.updatePod(c.pods("")[0], func(pod *v1.Pod) { pod.Labels = nil })
		}, m1: 3, waiting: 2},
		{name: "the policy is edited", event: func(c *cluster) { c.updatePolicy(strict80) }, m1: 4, waiting: 1},
		{name: "the policy becomes BestEffort", event: func(c *cluster) { c.updatePolicy(bestEffort40) }, m1: 5},
		{name: "the policy is deleted", event: func(c *cluster) {
			require.NoError(c.t, c.policies.Delete(c.t.Context(), "web-on-spot", metav1.DeleteOptions{}))
		}, m1: 5},
		{name: "a heavier policy is created", event: func(c *cluster) {
			_, err := c.policies.Create(c.t.Context(), policyObject(c.t, "heavier", heavier), metav1.CreateOptions{})
			require.NoError(c.t, err)
		}, m1: 5},
		{name: "a node is added", event: func(c *cluster) {
			_, err := c.client.CoreV1().Nodes().Create(c.t.Context(), onDemandNode("o1"), metav1.CreateOptions{})
			require.NoError(c.t, err)
		}, m1: 2, o1: 3},
		{name: "a node is relabelled", event: func(c *cluster) { c.updateNode(onDemandNode("m1")) }, m1: 3, waiting: 2},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			spec := strict40
			if tt.spec != "" {
				spec = tt.spec
			}
			c := startCluster(t, spec, spotNode("m1"))
			c.createPods(5)
			c.eventually(2, 0, 3)
			tt.event(c)
			c.eventually(tt.m1, tt.o1, tt.waiting)
		})
	}
}

func TestEventsThatCannotHelpLeaveWaitingPodsAsleep(t *testing.T) {
	c := startCluster(t, strict40, spotNode("m1"))
	c.createPods(5)
	c.eventually(2, 0, 3)
	attempts := func(name string) int {
		info, ok := c.sched.SchedulingQueue.GetPod(name, "default", nil)
		require.True(t, ok)
		return info.Attempts
	}
	before := map[string]int{}
	for _, name := range c.pods("") {
		before[name] = attempts(name)
	}

	for _, name := range c.pods("m1") {
		c.updatePod(name, func(pod *v1.Pod) { pod.Status.Phase = v1.PodRunning })
	}
	node := spotNode("m1")
	node.Status.Phase = v1.NodeRunning
	c.updateNode(node)
	c.createPod(st.MakePod().Namespace("default").Name("unrelated").UID("unrelated").SchedulerName("default-scheduler"))
	c.eventually(3, 0, 3)

	c.updatePolicy(strict80) // has places for two of the three, and ends what the events above have started
	c.eventually(5, 0, 1)
	for _, name := range c.pods("") {
		assert.Equal(t, before[name], attempts(name))
	}
}

// In a full group, the least important pod of the cohort makes room for a more important one. No other pod does.
func TestPreemptionInAFullGroup(t *testing.T) {
	running := func(name string, priority int32, node string) runtime.Object {
		return ownedBy(webPod(name), "rs").Priority(priority).Node(node).Obj()
	}
	c := startCluster(t, strict40, spotNode("m1"), onDemandNode("o1"), replicaSet("rs", 5),
		running("low", 0, "m1"), running("middle", 1, "m1"), running("elsewhere", 0, "o1"),
		st.MakePod().Namespace("default").Name("unrelated").UID("unrelated").Priority(-1).Node("m1").Obj(),
	)
	c.createPod(ownedBy(webPod("high"), "rs").Priority(2).NodeSelector(map[string]string{"spot": "true"}))
	assert.EventuallyWithT(t, func(collect *assert.CollectT) {
		assert.ElementsMatch(collect, []string{"high", "middle", "unrelated"}, c.pods("m1"))
	}, time.Minute, 10*time.Millisecond)
	assert.Equal(t, []string{"elsewhere"}, c.pods("o1"))
}
