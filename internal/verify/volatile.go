package verify

// Volatile lists every column that the events do not give, "table.column" or "table.*".
// This is the one place: what is not in it is compared.
func Volatile() []string {
	return []string{
		// renewed by heartbeats, and when the reaper looks again: in no event
		"leases.expires_at",
		"leases.due_at",
		"leases.lease_ms",
		"heartbeats.*",
		// an order, and what was charged: they decide when a task runs, never what becomes of it
		"ready_q.rank",
		"ready_q.held",
		"pool_q.rank",
		"pool_q.cost",
		"leases.cost",
		"shares.*",
		"settlements.*",
		"pool_clocks.*",
		"durations.*",
		// what tenants have used of their rates, and streams that are open now
		"rate_leases.*",
		"rate_streams.*",
		// made by the migration, and never changed
		"installation_secrets.*",
		// who is there now
		"workers.*",
		"servers.*",
		// what attempts wrote to their logs, and how much of it is kept: nothing is decided by it
		"task_logs.*",
		"attempt_logs.*",
		// how far attempts are, in their workers' own words
		"attempt_progress.*",
		"attempt_stages.*",
		// work that goes on in another transaction; checked as an invariant
		"cones.*",
		// whether somebody has looked if a run began in time: what came of it is an event
		"live_runs.late_at",
		// sums of runs, held to their rows and their breaches as an invariant
		"run_totals.*",
		"run_deltas.*",
		// the same sums by hour for a few days, from the same rows in the same statement: for the eye
		"run_hours.*",
		// where a config stands in time: written with the ledger of its slots, which is held to
		// the runs and to itself as an invariant, like the time at which a config is due
		"configs.decided_until",
		"configs.next_slot",
		"configs.due_at",
		"configs.zone_data",
		"configs.range_from",
		"configs.last_slot",
		"configs.last_run_id",
		"configs.last_run_state",
		"configs.last_run_at",
		"configs.last_success_at",
		"configs.failures",
		"slots.*",
		"slot_ranges.*",
		// what runs have told their configs and nobody has taken in yet
		"config_results.*",
		// how far an event from outside has come among those who listen
		"event_inbox.after_id",
		// messages about alerts: written with the alert, and then only a matter of who has heard
		"alert_deliveries.*",
		// where a subscription stands: what its receiver has heard is in no event
		"subscriptions.after_epoch",
		"subscriptions.after_tx",
		"subscriptions.after_position",
		"subscriptions.due_at",
		"subscriptions.lease",
		"subscriptions.tries",
		"subscriptions.failing_since",
		"subscriptions.error",
		"subscriptions.delivered",
		"subscriptions.delivered_at",
		// how the feed names its places since a cluster was restored
		"feed_epochs.*",
		// answers to repeats, forgotten by age
		"idempotency_keys.*",
		"answered_calls.*",
		// who does what must be done by one, now
		"duties.*",
		"duty_renewals.*",
		// the log itself: its versions, positions and bodies are what everything is checked by
		"run_events.*",
		"entity_events.*",
		"platform_events.*",
		// what only servers and workers may know: it is in no event
		"signing_keys.secret",
		"alert_channels.secret",
		"subscriptions.secret",
		"api_keys.digest",
		// when somebody last came with a key: written now and then
		"api_keys.last_used_at",
		// who has asked for what, granted or not: what was done is in the events
		"audit_log.*",
		// the schema's own books
		"migrations.*",
		"migration_checksums.*",
	}
}
