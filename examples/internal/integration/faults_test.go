package integration

import (
	"bytes"
	"context"
	"encoding/pem"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

// faultyAPI stands between a scheduler and the API server. It has no fault until it is told to.
type faultyAPI struct {
	*httptest.Server
	proxy *httputil.ReverseProxy

	bindsFail atomic.Bool   // of three binds one fails, and one is stored but answered with an error
	binds     atomic.Int32  // how many there were meanwhile
	bindsHang atomic.Bool   // until their connection is closed; every second one is stored then
	bindWaits atomic.Bool   // the next bind
	release   chan struct{} // the bind that waits, if it is closed
	down      atomic.Bool   // nothing is answered
	blind     atomic.Bool   // pods are not listed and not watched
	forgetful atomic.Bool   // the next watch of pods is told to list them anew
	policies  chan struct{} // if not nil, policies are kept back until it is closed
}

// serve starts the API, which ends with the world, and returns the path of a kubeconfig for it.
func (f *faultyAPI) serve(w *world) (kubeconfig string) {
	w.t.Helper()
	config, err := clientcmd.LoadFromFile(w.kubeconfig)
	require.NoError(w.t, err)
	server := config.Clusters[config.Contexts[config.CurrentContext].Cluster]
	target, err := url.Parse(server.Server)
	require.NoError(w.t, err)

	f.proxy = httputil.NewSingleHostReverseProxy(target)
	f.proxy.FlushInterval = -1 // for watches
	f.proxy.ErrorLog = log.New(io.Discard, "", 0)
	f.proxy.Transport, err = rest.TransportFor(rest.AnonymousClientConfig(w.RESTConfig()))
	require.NoError(w.t, err)
	f.Server = httptest.NewUnstartedServer(f)
	f.Config.ErrorLog = f.proxy.ErrorLog
	f.StartTLS() // without TLS the scheduler would not send its token
	w.apis = append(w.apis, f)

	server.Server = f.URL
	server.CertificateAuthorityData = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: f.Certificate().Raw})
	kubeconfig = filepath.Join(w.t.TempDir(), "kubeconfig")
	require.NoError(w.t, clientcmd.WriteToFile(*config, kubeconfig))
	return kubeconfig
}

func (f *faultyAPI) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	switch query := r.URL.Query(); {
	case f.down.Load():
		panic(http.ErrAbortHandler) // closes the connection
	case f.blind.Load() && r.URL.Path == "/api/v1/pods":
		panic(http.ErrAbortHandler)
	case f.bindsHang.Load() && strings.HasSuffix(r.URL.Path, "/binding"):
		n := f.binds.Add(1)
		body, _ := io.ReadAll(r.Body) // only after that the server looks whether the connection is closed
		<-r.Context().Done()
		if n%2 == 0 {
			r = r.WithContext(context.WithoutCancel(r.Context()))
			r.Body = io.NopCloser(bytes.NewReader(body))
			f.proxy.ServeHTTP(httptest.NewRecorder(), r)
		}
	case f.policies != nil && strings.HasSuffix(r.URL.Path, "/placementpolicies") && query.Get("limit") != "1": // which only asks whether there is such a resource
		select {
		case <-f.policies:
			f.proxy.ServeHTTP(w, r)
		case <-r.Context().Done():
		}
	case f.forgetful.Load() && r.URL.Path == "/api/v1/pods" && query.Has("watch"):
		f.forgetful.Store(false)
		answer(w, apierrors.NewResourceExpired("forgotten"))
	case strings.HasSuffix(r.URL.Path, "/binding") && f.bindWaits.CompareAndSwap(true, false):
		select {
		case <-f.release:
			f.proxy.ServeHTTP(w, r)
		case <-r.Context().Done():
		}
	case f.bindsFail.Load() && strings.HasSuffix(r.URL.Path, "/binding"):
		switch f.binds.Add(1) % 3 {
		case 0:
			answer(w, apierrors.NewInternalError(assert.AnError))
		case 1:
			f.proxy.ServeHTTP(httptest.NewRecorder(), r)
			answer(w, apierrors.NewInternalError(assert.AnError))
		default:
			f.proxy.ServeHTTP(w, r)
		}
	default:
		f.proxy.ServeHTTP(w, r)
	}
}

func answer(w http.ResponseWriter, err *apierrors.StatusError) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(int(err.ErrStatus.Code))
	status, encodeErr := runtime.Encode(scheme.Codecs.LegacyCodec(v1.SchemeGroupVersion), &err.ErrStatus)
	if encodeErr == nil {
		_, _ = w.Write(status)
	}
}

func TestB7BindsThatFailOrSeemTo(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	api := &faultyAPI{}
	w.startScheduler(schedulerOptions{Kubeconfig: api.serve(w)})
	w.addNodes("m1 m2 o1 o2")
	w.setPolicy("web", strict40)
	api.bindsFail.Store(true)
	w.deploy("web", 100)
	w.requireSplit("web", 40, 60)
	t.Logf("%d binds", api.binds.Load())
	assert.Greater(t, int(api.binds.Load()), 133, "a third of the binds had to be done again")
}

// TestBindsThatNobodyTellsOf has binds stored while the scheduler gets neither an answer nor an event, as when the API
// server restarts.
func TestBindsThatNobodyTellsOf(t *testing.T) {
	t.Parallel()
	const pods = 40
	w := newWorld(t)
	api := &faultyAPI{}
	w.startScheduler(schedulerOptions{Kubeconfig: api.serve(w)})
	w.addNodes("m1 o1")
	w.setPolicy("web", strict40)
	api.bindsHang.Store(true)
	w.createPods("web", pods)
	w.eventually(func(c *assert.CollectT) { require.EqualValues(c, pods, api.binds.Load()) })
	api.blind.Store(true)
	api.CloseClientConnections()
	api.bindsHang.Store(false)
	w.requireOn("", 0)
	api.blind.Store(false)
	w.requireSplit("web", pods*4/10, pods*6/10)
}

// TestReservedPod has the bind of a pod wait, for which the scheduler has taken the last place in the target group.
func TestReservedPod(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name    string
		event   func(*world)
		managed int // what is counted then, and after the bind was tried
		other   int
		failed  int // binds
	}{
		{"UpdatedWithoutANode", func(w *world) {
			w.patchPod("reserved-1", "metadata: {annotations: {example.com/seen: here}}")
			w.createPod("marker", "marker") // when this is placed, the scheduler has seen the update
			w.requirePlaced("marker", "")
		}, 4, 6, 0},
		{"B8Deleted", func(w *world) { w.deletePods("reserved-1") }, 3, 6, 1},
		{"BoundToAnotherNode", func(w *world) {
			require.NoError(w.t, w.Client().CoreV1().Pods(w.namespace).Bind(w.ctx, &v1.Binding{
				ObjectMeta: metav1.ObjectMeta{Name: "reserved-1"},
				Target:     v1.ObjectReference{Kind: "Node", Name: w.nodeName("o1")},
			}, metav1.CreateOptions{}))
		}, 3, 7, 1},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			api := &faultyAPI{release: make(chan struct{})}
			w.startScheduler(schedulerOptions{Kubeconfig: api.serve(w)})
			w.addNodes("m1 o1")
			w.setPolicy("web", strict40)
			w.createPods("web", 9)
			w.requireSplit("web", 3, 6)
			requireCounted := func(managed, other int) {
				t.Helper()
				w.eventually(func(c *assert.CollectT) {
					counted, err := w.schedulerCounts()
					require.NoError(c, err)
					assert.Equal(c, []int{managed, other}, []int{counted["web"].Managed, counted["web"].Other})
				})
			}

			api.bindWaits.Store(true)
			w.createPods("reserved", 1)
			requireCounted(4, 6)
			tt.event(w)
			requireCounted(tt.managed, tt.other)
			close(api.release)
			w.eventually(func(c *assert.CollectT) {
				require.Equal(
					c,
					tt.failed,
					w.metric("scheduler_schedule_attempts_total", labels.Set{"result": "error"}),
				)
			})
			w.requireSplit("web", tt.managed, tt.other)
		})
	}
}

// TestB5 takes the API away from the scheduler. Of pods that are deleted meanwhile it learns only by their absence.
func TestB5DeletionsMissedByABrokenWatch(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	api := &faultyAPI{}
	w.startScheduler(schedulerOptions{Kubeconfig: api.serve(w)})
	w.addNodes("m1 o1")
	w.setPolicy("web", strict40)
	w.createPods("web", 10) // which nothing replaces before the scheduler has learnt of the deletions
	w.requireSplit("web", 4, 6)

	api.down.Store(true)
	api.CloseClientConnections()
	gone := w.podsOn("m")[:3]
	w.deletePods(gone...)
	w.eventually(func(c *assert.CollectT) {
		for _, name := range gone {
			_, err := w.Client().CoreV1().Pods(w.namespace).Get(w.ctx, name, metav1.GetOptions{})
			assert.True(c, apierrors.IsNotFound(err), "%s: %v", name, err)
		}
	})
	api.forgetful.Store(true)
	api.down.Store(false)
	w.requireSplit("web", 1, 6)
	w.createPods("more", 3)
	w.requireSplit("web", 4, 6)
	assert.False(t, api.forgetful.Load(), "the pods were listed anew")
}

// TestA1 keeps the policies back from a restarted scheduler until it has begun with the first of the pods that wait for
// it.
func TestA1RestartedSchedulerCountsRunningPods(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.startScheduler(schedulerOptions{})
	w.addNodes("m1")
	w.deploy("web", 10, preferably("m")) // so that a scheduler that does not know better goes on with m1
	w.requireOn("m1", 10)
	w.addNodes("o1")
	w.setPolicy("web", strict40)
	w.requireSplit("web", 10, 0)

	w.scheduler.Kill()
	w.scale("web", 20)
	w.requireOn("", 10)
	api := &faultyAPI{policies: make(chan struct{})}
	w.startScheduler(schedulerOptions{Kubeconfig: api.serve(w)})
	w.eventually(func(c *assert.CollectT) {
		require.GreaterOrEqual(c, w.metric("scheduler_queue_incoming_pods_total", labels.Set{"queue": "active"}), 10)
		require.Less(c, w.metric("scheduler_pending_pods", labels.Set{"queue": "active"}), 10)
	})
	close(api.policies)
	w.requireSplit("web", 10, 10)
}
