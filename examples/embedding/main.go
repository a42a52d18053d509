// Command embedding tells where the pod that it reads would go in the cluster of KUBECONFIG, without a scheduler:
//
//	kubectl run web --image=web --labels=app=web --dry-run=client -o yaml | go run ./examples/embedding
package main

import (
	"context"
	"fmt"
	"io"
	"log"
	"os"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/placement-policy/scheduler-plugin/placementpolicy/feeder"
	"github.com/placement-policy/scheduler-plugin/policystore"
)

func main() {
	config, err := clientcmd.BuildConfigFromFlags("", os.Getenv("KUBECONFIG"))
	if err == nil {
		err = answer(context.Background(), config, os.Stdin, os.Stdout)
	}
	if err != nil {
		log.Fatal(err)
	}
}

func answer(ctx context.Context, config *rest.Config, in io.Reader, out io.Writer) error {
	store := policystore.New()
	objects := informers.NewSharedInformerFactory(kubernetes.NewForConfigOrDie(config), 0)
	policies := feeder.NewPolicyInformer(dynamic.NewForConfigOrDie(config))
	f, err := feeder.New(ctx, store, objects, policies, feeder.Hooks{})
	if err != nil {
		return err
	}
	objects.Start(ctx.Done())
	go f.Run(ctx)
	if err := f.WaitForSync(ctx); err != nil { // from then on the store follows the cluster
		return err
	}
	pod := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceDefault}} // unless it names another
	if err := yaml.NewYAMLOrJSONDecoder(in, 4096).Decode(pod); err != nil {
		return err
	}
	if decision, governed := store.Decide(pod); governed {
		fmt.Fprintf(out, "to group %s, by policy %s\n", decision.GroupName(decision.Preferred), decision.Policy)
	} else {
		fmt.Fprintln(out, "anywhere: no policy governs it")
	}
	return nil
}
