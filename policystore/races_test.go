package policystore_test

import (
	"errors"
	"slices"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"

	"github.com/placement-policy/scheduler-plugin/policystore"
)

// event is something that the store is told.
type event struct {
	name string
	do   func(*world)
}

// interleavings returns each sequence in which the events of two sources may come, each source in its own order.
func interleavings(a, b []event) (all [][]event) {
	if len(a) == 0 || len(b) == 0 {
		return [][]event{slices.Concat(a, b)}
	}
	for _, rest := range interleavings(a[1:], b) {
		all = append(all, slices.Concat(a[:1], rest))
	}
	for _, rest := range interleavings(a, b[1:]) {
		all = append(all, slices.Concat(b[:1], rest))
	}
	return all
}

func TestRaces(t *testing.T) {
	strict40 := must(policystore.Strict, "40%")

	// The first four are between informer and scheduling cycle, about one pod.
	shows := func(name string, edits ...func(*v1.Pod)) event {
		return event{"informer shows it " + name, func(w *world) { w.UpdatePod(nil, newPod("pod", edits...)) }}
	}
	deletes := event{"informer deletes it", func(w *world) { w.RemovePod("pod") }}
	reserve := event{"Reserve", func(w *world) { require.NoError(w.t, w.AssumePod(newPod("pod"), newNode("m1", nil))) }}
	unreserve := event{"Unreserve", func(w *world) { w.ForgetPod(newPod("pod")) }}
	for _, race := range []struct {
		name                string
		informer, scheduler []event
		want                string
	}{
		{"1 an update that is older than the reservation does not undo it",
			[]event{shows("pending"), shows("with a new label", labelled("new", ""))}, []event{reserve}, "1/0"},
		{"2 bind is reported as failed but stored",
			[]event{shows("pending"), shows("bound", onNode("m1"))}, []event{reserve, unreserve}, "1/0"},
		{"3 the pod is deleted in its scheduling cycle",
			[]event{shows("pending"), deletes}, []event{reserve, unreserve}, "0/0"},
		{"3 the pod terminates in its scheduling cycle",
			[]event{shows("pending"), shows("terminating", terminating), deletes}, []event{reserve, unreserve}, "0/0"},
		{"4 the pod is bound to another node than the reserved one",
			[]event{shows("pending"), shows("bound", onNode("o1"))}, []event{reserve}, "0/1"},
		{"8 the pod has lost its gates when it is reserved, but still shows them",
			[]event{shows("gated", gated), shows("gated, with a new label", gated, labelled("new", ""))}, []event{reserve}, "1/0"},
	} {
		t.Run(race.name, func(t *testing.T) {
			for _, order := range interleavings(race.informer, race.scheduler) {
				w := newCluster(t, must(policystore.Strict, "100%"))
				var names []string
				for _, e := range order {
					e.do(w)
					names = append(names, e.name)
					require.Containsf(t, []string{"0/0", "1/0", "0/1"}, w.split(), "after %v", names)
				}
				require.Equalf(t, race.want, w.split(), "after %v", names)
				if race.want != "0/0" {
					w.RemovePod("pod")
				}
			}
		})
	}

	t.Run("5 the first decision after a restart counts what runs", func(t *testing.T) {
		before := newCluster(t, strict40)
		before.run(10)
		before.remove(before.on("m1")[0])
		pod := before.pods[before.create(3)[0]]

		after := newWorld(t)
		for name, pod := range before.pods {
			after.pods[name] = pod
			after.AddPod(pod)
		}
		after.addNodes(100, nil, "o1")
		after.addNodes(100, spot, "m1")
		after.set(strict40)

		want := frozen(before.Policy(web))
		assert.Equal(t, want, frozen(after.Policy(web)))
		after.requireSplit("3/6")
		d, _ := after.Decide(pod)
		assert.Equal(t, target, d.Preferred)
	})

	t.Run("6 a node with pods on it, bound or reserved, changes or goes", func(t *testing.T) {
		w := newCluster(t, strict40)
		w.run(5)
		w.create(5)
		w.schedule()
		w.requireSplit("4/6")
		for _, step := range []struct {
			event string
			do    func()
			want  string
		}{
			{"the label goes", func() { w.UpdateNode(newNode("m1", nil)) }, "0/10"},
			{"the label comes", func() { w.UpdateNode(newNode("m1", spot)) }, "4/6"},
			{"an unrelated label comes", func() { w.UpdateNode(newNode("m1", map[string]string{"pool": "spot", "zone": "a"})) }, "4/6"},
			{"it is deleted", func() { w.RemoveNode("m1") }, "0/6"},
			{"its pods are bound all the same", w.bind, "0/6"},
			{"a pod on it is deleted", func() { w.remove(w.on("m1")[0]) }, "0/6"},
			{"it comes back", func() { w.AddNode(newNode("m1", spot)) }, "3/6"},
			{"it is deleted and comes back without the label", func() { w.RemoveNode("m1"); w.AddNode(newNode("m1", nil)) }, "0/9"},
		} {
			step.do()
			require.Equal(t, step.want, w.split(), step.event)
		}
	})

	t.Run("7 a policy is edited while pods run", func(t *testing.T) {
		w := newWorld(t)
		w.addNodes(10, map[string]string{"pool": "spot", "arch": "arm"}, "spot-arm")
		w.addNodes(10, spot, "spot-x86")
		w.addNodes(10, nil, "o1")
		w.create(1, onNode("spot-arm"), labelled("tier", "a"))
		w.create(3, onNode("spot-x86"), labelled("tier", "a"))
		w.create(6, onNode("o1"))
		type policy = policystore.Policy
		selector := func(key, value string) *metav1.LabelSelector {
			return &metav1.LabelSelector{MatchLabels: map[string]string{key: value}}
		}
		rival := must(policystore.Strict, "40%")
		rival.Name, rival.Weight = "web-rival", 5
		w.set(rival)

		edited := strict40
		for _, step := range []struct {
			edit   string
			do     func(*policy)
			want   string
			target int
		}{
			{"weight", func(p *policy) { p.Weight = 10 }, "4/6", 4},
			{"target", func(p *policy) { p.TargetSize = ptr.To(intstr.FromString("80%")) }, "4/6", 8},
			{"podSelector", func(p *policy) { p.PodSelector = selector("tier", "a") }, "4/0", 3},
			{"nodeSelector", func(p *policy) { p.NodeSelector = selector("arch", "arm") }, "1/3", 3},
			{"action", func(p *policy) { p.Action = policystore.MustNot }, "3/1", 3},
			{"podSelector again", func(p *policy) { p.PodSelector = &metav1.LabelSelector{} }, "9/1", 8},
			{"mode", func(p *policy) { p.EnforcementMode = policystore.BestEffort }, "9/1", 8},
			{"weight, to below another policy's", func(p *policy) { p.Weight = 4 }, "0/0", 0},
			{"weight, to another policy's, which is Strict", func(p *policy) { p.Weight = 5 }, "0/0", 0},
			{"mode, at equal weight, so that its name comes first", func(p *policy) { p.EnforcementMode = policystore.Strict }, "9/1", 8},
		} {
			step.do(&edited)
			w.set(edited)
			require.Equal(t, step.want, w.split(), step.edit)
			if step.target > 0 {
				info, _ := w.Policy(web)
				require.Equal(t, step.target, info.Cohorts[0].Target, step.edit)
				d, _ := w.Decide(w.pods[w.on("spot-arm")[0]])
				require.Equal(t, edited.EnforcementMode, d.EnforcementMode(), step.edit)
			}
		}
	})

	t.Run("8 a pod changes while it is reserved", func(t *testing.T) {
		for name, change := range map[string]struct {
			edit       func(*v1.Pod)
			want       string
			qualifying []int // of each cohort
		}{
			"its labels leave the policy":  {labelled("app", "debug"), "3/6", []int{9}},
			"its labels change the cohort": {labelled("pod-template-hash", "new"), "4/6", []int{9, 1}},
			"it terminates":                {terminating, "3/6", []int{9}},
			"it completes":                 {finished, "3/6", []int{9}},
			"it fails":                     {func(pod *v1.Pod) { pod.Status.Phase = v1.PodFailed }, "3/6", []int{9}},
		} {
			w := newCluster(t, strict40)
			w.create(3, onNode("m1"))
			w.create(6, onNode("o1"))
			pod := w.create(1)[0]
			w.schedule()
			w.requireSplit("4/6")
			w.update(change.edit, pod)
			require.Equal(t, change.want, w.split(), name)
			info, _ := w.Policy(web)
			var qualifying []int
			for _, cohort := range info.Cohorts {
				qualifying = append(qualifying, cohort.Qualifying)
			}
			require.Equal(t, change.qualifying, qualifying, name)
			w.ForgetPod(w.pods[pod])
			require.Equal(t, "3/6", w.split(), name)
		}
	})

	t.Run("8 a pod counts when it has lost its scheduling gates", func(t *testing.T) {
		w := newCluster(t, strict40)
		w.run(2)
		pod := w.create(1, gated)[0]
		qualifying := func() int {
			info, _ := w.Policy(web)
			return info.Cohorts[0].Qualifying
		}
		assert.Equal(t, 2, qualifying())
		w.update(func(pod *v1.Pod) { pod.Spec.SchedulingGates = nil }, pod)
		assert.Equal(t, 3, qualifying())
		w.schedule()
		w.requireSplit("1/2")
	})

	t.Run("8 pods have lost their gates, which no event has shown yet", func(t *testing.T) {
		w := newCluster(t, strict40)
		w.SetWorkloadSize("rs", 10)
		defer w.RemoveWorkload("rs")
		gatedPods := w.create(10, gated, controlledBy("rs"))
		for i, name := range gatedPods {
			pod := newPod(name, controlledBy("rs"))
			d, _ := w.Decide(pod)
			require.Equal(t, []int{i + 1, 10, 4}, []int{d.Qualifying, d.Size, d.Quota(target)})
			require.Equal(t, i < 4, d.Allows(target))
			err := w.AssumePod(pod, newNode("m1", nil))
			require.Equal(t, i < 4, err == nil)
			if err != nil {
				require.NoError(t, w.AssumePod(pod, newNode("o1", nil)))
			}
			w.update(labelled("new", ""), name) // an event that is late
		}
		w.requireSplit("4/6")
		w.ForgetPod(w.pods[gatedPods[0]])
		d, _ := w.Decide(w.pods[gatedPods[1]])
		assert.Equal(t, []int{10, 2, 6}, []int{d.Qualifying, d.Placed(target), d.Placed(other)}, "the gates do not come back")
	})

	t.Run("9 two profiles compete for the last place", func(t *testing.T) {
		w := newCluster(t, strict40)
		w.create(3, onNode("m1"))
		w.create(6, onNode("o1"))
		pods := w.create(2)
		for range 100 {
			for _, pod := range pods {
				d, _ := w.Decide(w.pods[pod])
				require.True(t, d.Allows(target))
			}
			errs := make([]error, 2)
			var wg sync.WaitGroup
			for i, pod := range pods {
				wg.Go(func() { errs[i] = w.AssumePod(w.pods[pod], newNode("m1", nil)) })
			}
			wg.Wait()
			if errs[0] != nil {
				slices.Reverse(errs)
				slices.Reverse(pods)
			}
			require.NoError(t, errs[0])
			var quota *policystore.QuotaError
			require.True(t, errors.As(errs[1], &quota))
			require.Equal(t, target, quota.Group)
			require.EqualError(t, quota, "placement policy default/web: group target full (4 of 4 pods; 11 qualify)")
			w.requireSplit("4/6")
			require.NoError(t, w.AssumePod(w.pods[pods[1]], newNode("o1", nil)))
			w.requireSplit("4/7")
			w.ForgetPod(w.pods[pods[0]])
			w.ForgetPod(w.pods[pods[1]])
		}
	})

	for name, spoil := range map[string]func(*world) error{
		"11 a policy becomes invalid":    func(w *world) error { return w.SetPolicy(must(policystore.Strict, "400%")) },
		"11 a policy becomes unreadable": func(w *world) error { err := errors.New("not a policy"); w.RejectPolicy(web, err); return err },
		"11 a policy is rejected for no given reason": func(w *world) error {
			w.RejectPolicy(web, nil)
			info, _ := w.Policy(web)
			require.EqualError(w.t, info.Err, "rejected for no given reason")
			return info.Err
		},
	} {
		t.Run(name, func(t *testing.T) {
			next := must(policystore.BestEffort, "20%")
			next.Name = "next"
			w := newCluster(t, strict40, next)
			w.create(4, onNode("m1"))
			w.create(6, onNode("o1"))
			pod := w.pods[w.create(1)[0]]

			err := spoil(w)
			info, _ := w.Policy(web)
			assert.Equal(t, err, info.Err)
			assert.Empty(t, info.Cohorts)
			d, _ := w.Decide(pod)
			assert.Equal(t, "next", d.Policy.Name, "the next policy governs its pods")
			assert.Equal(t, []int{11, 4, 6}, []int{d.Qualifying, d.Placed(target), d.Placed(other)})

			w.set(strict40)
			w.requireSplit("4/6")
			info, _ = w.Policy(web)
			assert.NoError(t, info.Err)
		})
	}
}
