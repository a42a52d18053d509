package main

import (
	"errors"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic/fake"
	kubetesting "k8s.io/client-go/testing"
)

func newClient(objects ...runtime.Object) *fake.FakeDynamicClient {
	scheme := runtime.NewScheme()
	_ = v1.AddToScheme(scheme)
	return fake.NewSimpleDynamicClientWithCustomListKinds(scheme, map[schema.GroupVersionResource]string{
		policiesResource:       "PlacementPolicyList",
		namespacedResources[2]: "ReplicaSetList",
		namespacedResources[3]: "StatefulSetList",
	}, objects...)
}

func kind(kind string) metav1.TypeMeta { return metav1.TypeMeta{APIVersion: "v1", Kind: kind} }

func TestOnlyListsWhatMattersInTheNamespace(t *testing.T) {
	client := newClient(
		&v1.Node{TypeMeta: kind("Node"), ObjectMeta: metav1.ObjectMeta{Name: "node-1"}},
		&v1.Pod{TypeMeta: kind("Pod"), ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: "in-a"}},
		&v1.Pod{TypeMeta: kind("Pod"), ObjectMeta: metav1.ObjectMeta{Namespace: "b", Name: "in-b"}},
	)
	w, err := readCluster(t.Context(), client, "a")
	require.NoError(t, err)
	assert.Len(t, w.nodes, 1)
	assert.Len(t, w.pods, 1)
	var asked []string
	for _, action := range client.Actions() {
		asked = append(asked, action.GetVerb()+" "+action.GetResource().Resource+" "+action.GetNamespace())
	}
	assert.ElementsMatch(t, []string{
		"list placementpolicies a", "list pods a", "list replicasets a", "list statefulsets a",
		"list replicationcontrollers a", "list nodes ",
	}, asked)

	w, err = readCluster(t.Context(), client, "")
	require.NoError(t, err)
	assert.Len(t, w.pods, 2)
}

func TestErrorsOfListing(t *testing.T) {
	forbidden := apierrors.NewForbidden(schema.GroupResource{}, "", errors.New("no"))
	for _, test := range []struct {
		resources, namespace string
		refusal              error
		want                 string
	}{
		{
			"nodes replicasets", "shop", forbidden, "you may not list replicasets.apps, nodes: " +
				"have the verb list granted on them in namespace shop, and nodes in the whole cluster, as by\n" +
				"  kubectl create clusterrole placement-reader --verb=list --resource=replicasets.apps,nodes",
		},
		{
			"pods", "", forbidden, "you may not list pods: have the verb list granted on them in all namespaces, as by\n" +
				"  kubectl create clusterrole placement-reader --verb=list --resource=pods",
		},
		{"placementpolicies", "", apierrors.NewNotFound(schema.GroupResource{}, ""), errNoDefinition.Error()},
		{"pods", "shop", errors.New("no route to host"), "listing pods: no route to host"},
	} {
		t.Run(test.resources, func(t *testing.T) {
			client := newClient()
			for _, resource := range strings.Fields(test.resources) {
				client.PrependReactor("list", resource, func(kubetesting.Action) (bool, runtime.Object, error) {
					return true, nil, test.refusal
				})
			}
			_, err := readCluster(t.Context(), client, test.namespace)
			assert.EqualError(t, err, test.want)
		})
	}
}
