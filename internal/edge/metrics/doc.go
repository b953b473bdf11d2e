// Package metrics exports metrics for Prometheus: committed tasks, attempts, runs, locks, refusals and
// rounds of admission, and at each scrape the waiting and running tasks. The number of labels per
// tenant and asset is bounded, so that 50,000 tenants do not create 50,000 times the series. Counting
// happens in memory, between a commit and its answer; only a scrape reads the database.
package metrics
