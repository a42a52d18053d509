// Package feeder keeps a [policystore.Store] up to date from informers, for any program that has one: a scheduler, a
// controller, a descheduler, a dashboard.
//
//	informers := informers.NewSharedInformerFactory(client, 0)
//	f, err := feeder.New(ctx, store, informers, feeder.NewPolicyInformer(dynamicClient), feeder.Hooks{})
//	...
//	informers.Start(ctx.Done())
//	go f.Run(ctx)
//	err = f.WaitForSync(ctx) // decisions before that would not count all pods
//
// Policies that cannot be followed are logged, and given to [policystore.Store.RejectPolicy]: they harm no others.
package feeder
