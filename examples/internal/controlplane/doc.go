// Package controlplane runs a real Kubernetes control plane on this machine, for the quickstart and for tests: etcd,
// kube-apiserver, kube-controller-manager, kwok in place of the kubelets, and as many schedulers as asked for. Nothing
// has to be installed: each component is a child process that executes the host's own binary again.
//
// So the host calls [Main] before anything else, in main or in TestMain, and hands it the scheduler to run:
//
//	func TestMain(m *testing.M) {
//		controlplane.Main(func() *cobra.Command {
//			return app.NewSchedulerCommand(app.WithPlugin(placementpolicy.Name, placementpolicy.New))
//		})
//		os.Exit(m.Run())
//	}
//
// and then, wherever a cluster is wanted:
//
//	cp, err := controlplane.Start(ctx, controlplane.Options{})
//	if err != nil { ... }
//	defer cp.Stop()
//	err = cp.Apply(ctx, rbacManifests)
//	kubeconfig, err := cp.ServiceAccountKubeconfig(ctx, "kube-system", "my-scheduler")
//	scheduler, err := cp.StartScheduler(ctx, controlplane.SchedulerOptions{Config: config, Kubeconfig: kubeconfig})
//	err = cp.CreateNodes(ctx, &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node-1"}})
//
// Authentication and RBAC are on. A scheduler has only the permissions that the applied manifests grant to its service
// account, so that a missing one shows.
//
// Everything listens on 127.0.0.1 or on a Unix socket, on ports picked by the kernel. All data is in one temporary
// folder. [ControlPlane.Stop] ends the processes and removes the folder. If the host dies without calling it, even by
// SIGKILL, each child sees the end of the pipe that is its standard input, removes the folder, and exits. Children are
// in process groups of their own, so that Ctrl-C in a terminal reaches the host alone, which can then stop them in
// order.
package controlplane
