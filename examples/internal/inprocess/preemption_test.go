package inprocess

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/kubernetes/pkg/scheduler/apis/config"
	st "k8s.io/kubernetes/pkg/scheduler/testing"
)

// All nodes are full of pods of low priority. The API server takes nominations, but the events of these are late.
func TestNoPodIsEvictedInVainWhileNominationsAreOnTheirWay(t *testing.T) {
	tests := []struct {
		name          string
		size          string
		pods          int
		onlyTarget    bool
		target, other int // of the nodes, and where pods are evicted
	}{
		{"all pods can only go to the target group", "1", 10, true, 1, 0},
		{"the pods can go anywhere", "10%", 20, false, 2, 18},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			full := map[v1.ResourceName]string{v1.ResourceCPU: "1", v1.ResourcePods: "10"}
			var objects []runtime.Object
			for i := range 20 {
				for _, group := range []string{"m", "a"} {
					node := fmt.Sprint(group, i)
					objects = append(objects,
						st.MakeNode().Name(node).Label("spot", fmt.Sprint(group == "m")).Capacity(full).Obj(),
						st.MakePod().Namespace("default").Name("low-"+node).UID("low-"+node).Req(full).Node(node).Obj())
				}
			}
			c := newCluster(
				t,
				func(*config.KubeSchedulerProfile) {},
				`{enforcementMode: Strict, `+selectors+`, policy: {targetSize: `+tt.size+`}}`,
				objects...)
			c.client.PrependReactor("patch", "pods", func(action clienttesting.Action) (bool, runtime.Object, error) {
				return action.GetSubresource() == "status", &v1.Pod{}, nil
			})
			for i := range tt.pods {
				pod := webPod(fmt.Sprint("web-", i)).Priority(100).Req(map[v1.ResourceName]string{v1.ResourceCPU: "1"})
				if tt.onlyTarget {
					pod = pod.NodeSelector(map[string]string{"spot": "true"})
				}
				c.createPod(pod)
			}
			c.eventuallyQueued(tt.pods)
			c.run()
			c.eventuallyInGroups(tt.target, tt.other)
			waiting := tt.pods - tt.target - tt.other
			assert.EventuallyWithT(t, func(collect *assert.CollectT) {
				assert.Len(collect, c.sched.SchedulingQueue.UnschedulablePods(), waiting)
			}, time.Minute, 10*time.Millisecond)
			evicted := 0
			for _, action := range c.client.Actions() {
				if action.Matches("delete", "pods") {
					evicted++
				}
			}
			assert.Equal(t, tt.target+tt.other, evicted)
		})
	}
}
