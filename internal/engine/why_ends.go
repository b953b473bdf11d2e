package engine

import (
	"context"
	"fmt"
	"strings"

	"go.arco.dev/servo/internal/base/id"
	"go.arco.dev/servo/internal/domain/run"
	"go.arco.dev/servo/internal/store"
)

// explainRun explains how far a run is.
func (q *inquiry) explainRun(ctx context.Context, tx *store.Tx) (err error) {
	if q.now, err = tx.Clock(ctx); err != nil {
		return err
	}
	r := q.run
	if q.front != nil { // the blockers of the task that has waited longest delay the run
		if err := q.explainTask(ctx, tx); err != nil {
			return err
		}
		for _, b := range q.why.Blockers {
			b.Values["task"], b.Values["asset"] = q.front.ID.String(), q.front.Asset
		}
		q.why.Next = fmt.Sprintf("task %s is %s: %s", taskTitle(q.front.Asset, q.front.Partition), q.front.State, q.why.Next)
	}
	q.why.Run, q.why.Pipeline, q.why.State, q.why.Since = r.ID, r.Pipeline, r.State.String(), r.CreatedAt
	q.why.Task, q.why.Asset = id.Task{}, ""
	switch r.State {
	case run.RunPending:
		q.why.Next = "admission starts it in its next round"
		return q.starting(ctx, tx)
	case run.RunRunning:
		q.why.Since = r.StartedAt
		if q.front == nil {
			q.why.Next = fmt.Sprintf("its tasks continue: %d of %d have ended, %s", r.Total-r.Remaining, r.Total, q.tasksByState())
		}
	case run.RunCancelling:
		q.why.Next = "it ends when its workers have stopped"
		q.block(BlockedByCancel, "it is being cancelled; "+q.tasksByState(), fmt.Sprintf(
			"wait for the workers' next heartbeats; a task whose worker is silent for %s can be ended: servo tasks force-cancel", q.config.ForceCancelAfter),
			map[string]any{"reason": r.CancelReason, "remaining": int(r.Remaining)})
	default:
		q.why.Since = r.FinishedAt
		q.runEnded()
	}
	return nil
}

// tasksByState counts the tasks that have not ended by state.
func (q *inquiry) tasksByState() string {
	var parts []string
	for _, w := range q.where {
		parts = append(parts, fmt.Sprintf("%d %s", w.Tasks, w.State))
	}
	if len(parts) == 0 {
		return "no task is left"
	}
	return strings.Join(parts, ", ")
}

func (q *inquiry) runEnded() {
	r := q.run
	q.why.Next = "nothing: it has ended"
	switch r.State {
	case run.RunFailed:
		message, values := fmt.Sprintf("%d of its tasks failed and %d were skipped", r.Failed, r.Skipped), map[string]any{"failed": int(r.Failed), "skipped": int(r.Skipped)}
		if c := q.cause; c != nil {
			message += fmt.Sprintf(", the first of them %s%s", taskTitle(c.Asset, c.Partition), failedWith(c.Failure))
			values["task"], values["asset"] = c.ID.String(), c.Asset
		}
		q.block(EndedByFailure, message, "fix the cause and retry the run: servo runs retry "+r.ID.String(), values)
	case run.RunTimedOut:
		q.block(EndedByTime, joinReason("it took longer than it may", r.CancelReason), "raise the limit, or retry the run: servo runs retry "+r.ID.String(),
			map[string]any{"reason": r.CancelReason})
	case run.RunCancelled:
		q.block(EndedByCancel, joinReason("it was cancelled", r.CancelReason), "retry the run: servo runs retry "+r.ID.String(),
			map[string]any{"reason": r.CancelReason})
	default:
	}
}

func joinReason(what, reason string) string {
	if reason == "" {
		return what
	}
	return what + ": " + reason
}

func failedWith(f *run.Failure) string {
	if f == nil {
		return ""
	}
	return ": " + joinReason(f.Code, f.Message)
}

// leased explains a task that a worker holds.
func (q *inquiry) leased(ctx context.Context, tx *store.Tx) error {
	t := q.task
	if dead, err := q.deadDispatcher(ctx, tx); err != nil || dead {
		return err
	}
	seen := "has sent no heartbeat yet"
	if !t.SeenAt.IsZero() {
		seen = "sent its last heartbeat " + q.ago(t.SeenAt)
	}
	if t.State == run.Dispatched {
		q.why.Next = fmt.Sprintf("worker %s starts it; otherwise it is queued again after %s", t.Worker, q.at(t.ExpiresAt))
	} else {
		q.why.Next = fmt.Sprintf("worker %s has executed it since %s and %s; it times out at %s", t.Worker, q.at(t.StartedAt), seen, q.at(t.Deadline))
	}
	values := map[string]any{"worker": t.Worker, "expires_at": q.at(t.ExpiresAt)}
	if !t.SeenAt.IsZero() {
		values["seen_at"] = q.at(t.SeenAt)
	}
	switch {
	case !t.ExpiresAt.After(q.now):
		q.block(BlockedBySilence, fmt.Sprintf("worker %s %s, and its lease is over", t.Worker, seen),
			"nothing to do: the reaper ends the attempt within seconds, and another worker gets the task if it may be retried", values)
	case !t.SeenAt.IsZero() && q.now.Sub(t.SeenAt) > t.ExpiresAt.Sub(t.SeenAt)/2: // more than one heartbeat is missing
		q.block(BlockedBySilence, fmt.Sprintf("worker %s is silent: its last heartbeat came %s; its leases end at %s", t.Worker, q.ago(t.SeenAt), q.at(t.ExpiresAt)),
			"check the worker; if it sends no heartbeat until then, the task is ready again at once for another worker", values)
	}
	if t.CancelRequested {
		q.block(BlockedByCancel, fmt.Sprintf("its run is being cancelled, and worker %s is notified with its next heartbeat", t.Worker), fmt.Sprintf(
			"wait; once the worker is silent for %s: servo tasks force-cancel %s %s", q.config.ForceCancelAfter, q.run.ID, t.ID), values)
	}
	return nil
}

// deadDispatcher explains a task that a server holds to send it to a push pool, and that server is
// silent.
func (q *inquiry) deadDispatcher(ctx context.Context, tx *store.Tx) (dead bool, err error) {
	t := q.task
	server := DispatchingServer(t.Worker)
	if server == "" || t.State != run.Dispatched {
		return false, nil
	}
	live, err := tx.ServerLives(ctx, server, q.now)
	if err != nil || live {
		return false, err
	}
	q.why.Next = "it is queued again when its lease ends, at " + q.at(t.ExpiresAt)
	q.block(BlockedBySilence, fmt.Sprintf("server %s, which sends the tasks of push pool %s, is silent; its leases end at %s", server, t.Pool, q.at(t.ExpiresAt)),
		"check that server; another server sends the task after that", map[string]any{"server": server, "pool": t.Pool, "expires_at": q.at(t.ExpiresAt)})
	return true, nil
}

// retrying explains a task that waits for its next attempt.
func (q *inquiry) retrying(ctx context.Context) error {
	t := q.task
	q.why.Next = "the reaper makes it ready again"
	if !t.DueAt.After(q.now) {
		return nil
	}
	message := fmt.Sprintf("attempt %d failed%s; the next one is due at %s", t.Attempt, failedWith(t.Failure), q.at(t.DueAt))
	values := map[string]any{"retry_at": q.at(t.DueAt), "attempt": int(t.Attempt), "failures": int(t.Failures)}
	if t.Failure != nil {
		values["failure"] = t.Failure.Code
		key := store.DeploymentKey{Tenant: q.run.Tenant, Deployment: q.run.Deployment}
		codes, err := q.deploymentsOf(ctx, []store.DeploymentKey{key})
		if err != nil {
			return err
		}
		if d := codes[q.run.Deployment]; d != nil {
			most := policyFor(d, q.run.Run, t.Asset, t.Failure.Code).MaxAttempts
			values["max_attempts"] = most
			message += fmt.Sprintf(", %d of %d attempts are used", t.Failures, most)
		}
	}
	q.block(BlockedByRetry, message, advice(t.Failure, "nothing to do: it is retried automatically"), values)
	return nil
}

// advice is the action that the failure suggests.
func advice(f *run.Failure, otherwise string) string {
	if f != nil && f.SuggestedAction != "" {
		return f.SuggestedAction
	}
	return otherwise
}

// ended explains how a task has ended.
func (q *inquiry) ended() {
	t := q.task
	q.why.Next = "nothing: it has ended"
	again := "fix the cause and retry the run: servo runs retry " + q.run.ID.String()
	switch t.State {
	case run.Failed:
		values := map[string]any{"outcome": string(t.Outcome), "attempt": int(t.Attempt), "failures": int(t.Failures)}
		if t.Failure != nil {
			values["failure"] = t.Failure.Code
		}
		q.block(EndedByFailure, fmt.Sprintf("attempt %d failed%s", t.Attempt, failedWith(t.Failure)), advice(t.Failure, again), values)
	case run.Skipped:
		message, values := "an upstream task did not succeed", map[string]any{"outcome": string(t.Outcome)}
		for _, u := range q.unmet { // the one that failed, rather than another skipped one
			if u.State == run.Failed || values["task"] == nil {
				message = fmt.Sprintf("upstream %s is %s", taskTitle(u.Asset, u.Partition), u.State)
				values["task"], values["asset"], values["state"] = u.Task.String(), u.Asset, u.State.String()
			}
		}
		q.block(EndedByUpstream, message, again, values)
	case run.Cancelled:
		q.block(EndedByCancel, joinReason("its run was cancelled", q.run.CancelReason), "retry the run: servo runs retry "+q.run.ID.String(),
			map[string]any{"reason": q.run.CancelReason})
	default:
	}
}
