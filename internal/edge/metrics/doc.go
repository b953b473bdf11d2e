// Package metrics counts what the engine does, for Prometheus: tasks, attempts, runs, locks,
// refusals and rounds of admission as they are committed, and what waits and runs when it is
// asked. Labels that tenants bring along are capped, so that 50,000 tenants are not 50,000
// times the series. It decides nothing, and never touches the database but to be read by
// whoever scrapes: counting happens in memory, between a commit and its answer.
package metrics
