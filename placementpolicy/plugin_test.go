package placementpolicy

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"

	st "github.com/placement-policy/scheduler-plugin/internal/fwktest"
	"github.com/placement-policy/scheduler-plugin/policystore"
)

// A pod may be placed by the result of another one of the same signature only if no placement changes what comes next.
func TestSignPod(t *testing.T) {
	signedAs := func(s string) []fwk.SignFragment { return []fwk.SignFragment{{Key: "placementpolicy", Value: s}} }
	spec := func(mode, action, size string) string {
		return `{enforcementMode: ` + mode + `, ` + selectors + `, policy: {action: ` + action + `, targetSize: ` + size + `}}`
	}
	tests := []struct {
		name string
		spec string
		pod  *st.PodWrapper
		sync bool
		want []fwk.SignFragment
		code fwk.Code
	}{
		{"no policy governs the pod", strict40, webPod("p").Label("app", "db"), true, nil, fwk.Success},
		{"a share of the pods belongs in each group", strict40, webPod("p"), true, nil, fwk.Unschedulable},
		{
			"all pods belong in the target group",
			spec("Strict", "Must", "100%"),
			webPod("p"),
			true,
			signedAs("default/web-on-spot target"),
			fwk.Success,
		},
		{
			"no pod belongs in the target group",
			spec("Strict", "MustNot", "0%"),
			webPod("p"),
			true,
			signedAs("default/web-on-spot other"),
			fwk.Success,
		},
		{"100 % is only preferred", spec("BestEffort", "Must", "100%"), webPod("p"), true, nil, fwk.Unschedulable},
		{"the policies are not known yet", strict40, webPod("p").Label("app", "db"), false, nil, fwk.Unschedulable},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			w := newUnsyncedWorld(t)
			w.setPolicy("web-on-spot", tt.spec)
			if tt.sync {
				w.sync()
			}
			got, status := w.SignPod(w.ctx, tt.pod.Obj())
			assert.Equal(t, tt.want, got)
			assert.Equal(t, tt.code, status.Code(), status)
		})
	}
}

// A pod that waits for the other group, since the target group is full.
func TestIsSchedulableAfterNodeChange(t *testing.T) {
	tests := []struct {
		name     string
		pod      *st.PodWrapper
		old, new *v1.Node
		sync     bool
		want     fwk.QueueingHint
	}{
		{"a new node of the open group", webPod("p"), nil, onDemandNode("n"), true, fwk.Queue},
		{"a new node of the full group", webPod("p"), nil, spotNode("n"), true, fwk.QueueSkip},
		{"a node moves to the open group", webPod("p"), spotNode("n"), onDemandNode("n"), true, fwk.Queue},
		{"a node moves to the full group", webPod("p"), onDemandNode("n"), spotNode("n"), true, fwk.QueueSkip},
		{
			"a node gets a label, and stays in the open group",
			webPod("p"),
			onDemandNode("n"),
			st.MakeNode().Name("n").Label("a", "b").Obj(),
			true,
			fwk.QueueSkip,
		},
		{"no policy governs the pod any more", webPod("p").Label("app", "db"), nil, spotNode("n"), true, fwk.Queue},
		{"the policies are not known yet", webPod("p"), nil, spotNode("n"), false, fwk.Queue},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			w := newUnsyncedWorld(t)
			w.setPolicy("web-on-spot", strict40)
			if tt.sync {
				w.sync()
			}
			var old any
			if tt.old != nil {
				old = tt.old
			}
			got, err := w.isSchedulableAfterNodeChange(klog.Background(), tt.pod.Obj(), old, tt.new)
			require.NoError(t, err)
			assert.Equal(t, tt.want, got)
		})
	}
}

func TestTheFirstDecisionWaitsForAllThatWasThereAtTheStart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newUnsyncedWorld(t)
		w.setPolicy("web-on-spot", strict40)
		decided := make(chan *fwk.Status)
		go func() { decided <- w.filter(webPod("p").Obj(), "m1")[0] }()
		synctest.Wait()

		w.addPodsOn("m1", 10)
		w.sync()
		assert.Equal(
			t,
			"placement policy default/web-on-spot: group target full (10 of 4 pods; 11 qualify)",
			(<-decided).Message(),
		)
	})
}

func TestWithoutAllThatWasThereAtTheStartPodsFailAndComeBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newUnsyncedWorld(t)
		_, status := w.preFilter(webPod("p").Obj())
		assert.Equal(t, fwk.Error, status.Code())
		assert.ErrorIs(t, status.AsError(), context.DeadlineExceeded)
	})
}

// apiServer answers requests in place of a server.
type apiServer func(*http.Request) (*http.Response, error)

func (s apiServer) RoundTrip(r *http.Request) (*http.Response, error) { return s(r) }

func answer(code int, body string) (*http.Response, error) {
	return &http.Response{
		StatusCode: code,
		Header:     http.Header{"Content-Type": {"application/json"}},
		Body:       io.NopCloser(strings.NewReader(body)),
	}, nil
}

// refuse answers as an API server does that does not do what it is asked to.
func refuse(code int, reason metav1.StatusReason) apiServer {
	return func(*http.Request) (*http.Response, error) {
		body, err := json.Marshal(
			metav1.Status{Status: metav1.StatusFailure, Reason: reason, Code: int32(code), Message: "no"},
		)
		if err != nil {
			return nil, err
		}
		return answer(code, string(body))
	}
}

// serve answers lists and watches of the policies, which do not change.
func serve(policies ...*unstructured.Unstructured) apiServer {
	return func(r *http.Request) (*http.Response, error) {
		if r.Header.Get("Accept") != "application/json" {
			return refuse(http.StatusNotAcceptable, metav1.StatusReasonNotAcceptable)(r)
		}
		list := &unstructured.UnstructuredList{Object: map[string]any{
			"apiVersion": "placement-policy.scheduling.x-k8s.io/v1alpha1",
			"kind":       "PlacementPolicyList",
			"metadata":   map[string]any{"resourceVersion": "1"},
		}}
		for _, policy := range policies {
			list.Items = append(list.Items, *policy)
		}
		if r.URL.Query().Get("watch") == "" {
			body, err := list.MarshalJSON()
			if err != nil {
				return nil, err
			}
			return answer(http.StatusOK, string(body))
		}
		stream, events := io.Pipe()
		go func() {
			if r.URL.Query().Get("sendInitialEvents") == "true" {
				out := json.NewEncoder(events)
				for _, policy := range list.Items {
					_ = out.Encode(map[string]any{"type": "ADDED", "object": policy.Object})
				}
				end := &unstructured.Unstructured{
					Object: map[string]any{"apiVersion": list.GetAPIVersion(), "kind": "PlacementPolicy"},
				}
				end.SetResourceVersion("1")
				end.SetAnnotations(map[string]string{metav1.InitialEventsAnnotationKey: "true"})
				_ = out.Encode(map[string]any{"type": "BOOKMARK", "object": end.Object})
			}
			<-r.Context().Done()
			events.CloseWithError(r.Context().Err())
		}()
		return &http.Response{
			StatusCode: http.StatusOK,
			Header:     http.Header{"Content-Type": {"application/json"}},
			Body:       stream,
		}, nil
	}
}

// newHandle returns the handle of a scheduler in front of the API server.
func newHandle(server apiServer) *fakeHandle {
	factory := informers.NewSharedInformerFactory(fake.NewClientset(), 0)
	return newFakeHandle(factory, &rest.Config{
		Host:      "http://apiserver",
		Transport: server,
		ContentConfig: rest.ContentConfig{
			ContentType:        runtime.ContentTypeProtobuf,
			AcceptContentTypes: runtime.ContentTypeProtobuf,
		}, // as in a scheduler's configuration
	})
}

func TestNewFails(t *testing.T) {
	noInformers := newHandle(serve())
	noInformers.factory = nil
	noConfig := newHandle(serve())
	noConfig.config = nil
	tests := []struct {
		name   string
		args   runtime.Object
		handle *fakeHandle
		want   string
	}{
		{
			"with arguments",
			&runtime.Unknown{},
			newHandle(serve()),
			"it takes no arguments, but pluginConfig has some (*runtime.Unknown): remove them",
		},
		{"without informers", nil, noInformers, "no informer factory"},
		{"without client configuration", nil, noConfig, "no client configuration"},
		{
			"if the resource is not installed",
			nil,
			newHandle(refuse(http.StatusNotFound, metav1.StatusReasonNotFound)),
			"apply the CustomResourceDefinition in placementpolicy/v1alpha1/placement-policy.scheduling.x-k8s.io_placementpolicies.yaml",
		},
		{
			"if it may not list policies",
			nil,
			newHandle(refuse(http.StatusForbidden, metav1.StatusReasonForbidden)),
			"the client may not list placementpolicies.placement-policy.scheduling.x-k8s.io: grant it list and watch, as examples/deploy does",
		},
		{
			"if it is not known to the API server",
			nil,
			newHandle(refuse(http.StatusUnauthorized, metav1.StatusReasonUnauthorized)),
			"the client may not list placementpolicies.placement-policy.scheduling.x-k8s.io",
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				_, err := New(t.Context(), tt.args, tt.handle)
				assert.ErrorContains(t, err, "creating plugin placementpolicy: ")
				assert.ErrorContains(t, err, tt.want)
			})
		})
	}
}

func TestNewWaitsForAnAPIServer(t *testing.T) {
	silent := apiServer(func(r *http.Request) (*http.Response, error) {
		<-r.Context().Done()
		return nil, r.Context().Err()
	})
	for name, starting := range map[string]apiServer{
		"that is starting":                     func(*http.Request) (*http.Response, error) { return nil, errors.New("connection refused") },
		"that has yet to read the definitions": refuse(http.StatusNotFound, metav1.StatusReasonNotFound),
		"that has yet to read who may do what": refuse(http.StatusForbidden, metav1.StatusReasonForbidden),
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				attempts := 0
				_, err := New(t.Context(), nil, newHandle(func(r *http.Request) (*http.Response, error) {
					if attempts++; attempts < 4 {
						return starting(r)
					}
					return serve()(r)
				}))
				assert.NoError(t, err)
			})
		})
	}
	t.Run("for half a minute", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			start := time.Now()
			_, err := New(t.Context(), nil, newHandle(silent))
			assert.ErrorContains(t, err, "waiting for the API server to list placement policies")
			assert.Equal(t, 30*time.Second, time.Since(start)) // by the fake clock
		})
	})
	t.Run("until the scheduler stops", func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		_, err := New(ctx, nil, newHandle(silent))
		assert.ErrorIs(t, err, context.Canceled)
	})
}

// Objects that an earlier, laxer schema let in do not hide the others.
func TestNewLoadsThePoliciesThatCanBeUsed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		handle := newHandle(serve(
			policyObject(t, "a-wrong-type", `{weight: heavy, podSelector: {}, nodeSelector: {}}`),
			policyObject(t, "b-good", strict40),
			policyObject(t, "c-invalid", invalid),
		))
		plugin, err := New(t.Context(), nil, handle)
		require.NoError(t, err)
		handle.factory.Start(t.Context().Done())
		state, status := (&world{t: t, ctx: t.Context(), Plugin: plugin.(*Plugin)}).preFilter(webPod("p").Obj())
		require.True(t, status.IsSuccess(), status)
		s, err := readPreFilterState(state)
		require.NoError(t, err)
		assert.Equal(t, "b-good", s.decision.Policy.Name)
		time.Sleep(15 * time.Second)
		synctest.Wait()
		assert.Len(t, handle.recorder.recorded(), 2)
	})
}

func TestProfilesOfOneSchedulerShareAStore(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	store := policystore.New()
	factory := NewWithStore(store)
	handle := newHandle(serve())
	otherProfile := newFakeHandle(handle.factory, handle.config)
	otherScheduler := newHandle(serve())

	first, err := factory(ctx, nil, handle)
	require.NoError(t, err)
	second, err := New(ctx, nil, otherProfile)
	require.NoError(t, err)
	third, err := New(ctx, nil, otherScheduler)
	require.NoError(t, err)

	assert.Same(t, store, first.(*Plugin).Store())
	assert.Same(t, store, second.(*Plugin).Store(), "the one of the first profile")
	assert.NotSame(t, store, third.(*Plugin).Store(), "another scheduler")

	cancel()
	assert.Eventually(t, func() bool {
		schedulers.Lock()
		defer schedulers.Unlock()
		return schedulers.shared[handle.factory] == nil && schedulers.shared[otherScheduler.factory] == nil
	}, 10*time.Second, time.Millisecond, "a scheduler that has stopped is forgotten")
}
