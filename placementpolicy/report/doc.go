// Package report tells operators what a [policystore.Store] knows of placement policies: by their status, by events on
// them, and by metrics. Any program that has a store may use it; it works beside what the program does.
//
//	r := report.New(report.Options{Store: store, Policies: informer.GetStore(), Synced: feeder.Synced, Client: client})
//	go r.Run(ctx)
//
// # Who writes what
//
// Several replicas of a program may run, each with a store. What follows from the spec and from what the API server
// has (the conditions Accepted and Conflicted) any of them writes; most often the one that schedules is first. Where
// pods are only that one knows for certain, since it has reserved nodes for some: so the others leave the rest alone.
// A replica schedules from its first call of [Reporter.Schedules] on, for good: a scheduler that loses its lease
// ends.
//
// Statuses are applied (server-side apply), by [FieldManager], and by another manager what any replica may write.
// Metrics are of the program's own store, whether it schedules or not.
package report
