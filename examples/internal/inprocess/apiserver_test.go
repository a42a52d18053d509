package inprocess

import (
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/assert"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/placement-policy/scheduler-plugin/placementpolicy/v1alpha1"
)

// serve answers what the plugin itself asks an API server, from what the clients have: it lists and watches policies,
// gets pods, and takes status writes, but does not keep them. It returns how a client reaches it.
func serve(t *testing.T, client kubernetes.Interface, dynamicClient dynamic.Interface) *rest.Config {
	policies := dynamicClient.Resource(v1alpha1.Resource())
	const ofNamespace = "/apis/placement-policy.scheduling.x-k8s.io/v1alpha1/namespaces/{namespace}/placementpolicies/{name}"
	mux := http.NewServeMux()
	mux.HandleFunc("GET /apis/placement-policy.scheduling.x-k8s.io/v1alpha1/placementpolicies",
		func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Query().Get("watch") != "" {
				watchPolicies(w, r, policies)
				return
			}
			list, err := policies.List(r.Context(), metav1.ListOptions{})
			answer(w, list, err)
		})
	for _, method := range []string{http.MethodPut, http.MethodPatch} {
		mux.HandleFunc(method+" "+ofNamespace+"/status", func(w http.ResponseWriter, r *http.Request) {
			policy, err := policies.Namespace(
				r.PathValue("namespace"),
			).Get(
				r.Context(),
				r.PathValue("name"),
				metav1.GetOptions{},
			)
			answer(w, policy, err)
		})
	}
	mux.HandleFunc("GET /api/v1/namespaces/{namespace}/pods/{name}", func(w http.ResponseWriter, r *http.Request) {
		pod, err := client.CoreV1().Pods(
			r.PathValue("namespace"),
		).Get(
			r.Context(),
			r.PathValue("name"),
			metav1.GetOptions{},
		)
		answer(w, pod, err)
	})
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		assert.Fail(t, "the plugin asks what the tests do not answer", "%s %s", r.Method, r.URL)
		http.NotFound(w, r)
	})
	server := httptest.NewServer(mux)
	t.Cleanup(func() {
		server.CloseClientConnections() // of watches, which do not end by themselves
		server.Close()
	})
	return &rest.Config{Host: server.URL}
}

func answer(w http.ResponseWriter, object any, err error) {
	w.Header().Set("Content-Type", "application/json")
	if err != nil {
		status := apierrors.NewInternalError(err).Status()
		if known := apierrors.APIStatus(nil); errors.As(err, &known) {
			status = known.Status()
		}
		w.WriteHeader(int(status.Code))
		object = status
	}
	_ = json.NewEncoder(w).Encode(object) // fails if the client has gone
}

// watchPolicies streams what there is, marks the end of that, and then streams each change.
func watchPolicies(w http.ResponseWriter, r *http.Request, policies dynamic.ResourceInterface) {
	changes, err := policies.Watch(r.Context(), metav1.ListOptions{})
	if err != nil {
		answer(w, nil, err)
		return
	}
	defer changes.Stop()
	list, err := policies.List(r.Context(), metav1.ListOptions{})
	if err != nil {
		answer(w, nil, err)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	send := func(kind watch.EventType, policy any) {
		_ = json.NewEncoder(w).Encode(map[string]any{"type": kind, "object": policy})
		w.(http.Flusher).Flush()
	}
	for i := range list.Items {
		send(watch.Added, &list.Items[i])
	}
	end := &unstructured.Unstructured{}
	end.SetGroupVersionKind(v1alpha1.SchemeGroupVersion.WithKind("PlacementPolicy"))
	end.SetResourceVersion("1")
	end.SetAnnotations(map[string]string{metav1.InitialEventsAnnotationKey: "true"})
	send(watch.Bookmark, end)
	for {
		select {
		case event := <-changes.ResultChan():
			send(event.Type, event.Object)
		case <-r.Context().Done():
			return
		}
	}
}
