package run

import (
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"go.arco.dev/servo/internal/base/event"
	"go.arco.dev/servo/internal/base/fault"
	"go.arco.dev/servo/internal/base/id"
	"go.arco.dev/servo/internal/domain/output"
)

// maxFruitless is how many deliveries in a row may end without failure and without progress before
// the task fails as poison.
const maxFruitless = 10

// The limits of worker reports.
const (
	MaxCursorLength = 4 << 10
	MaxResultLength = 64 << 10
	maxWorkerLength = 200

	MaxInstanceLength = 200
)

// Command is a request to change a task, with the facts that decide it.
type Command interface {
	On() TaskCommand
}

// Facts are the inputs of a decision besides the task and the command.
type Facts struct {
	Now        time.Time
	Cancelling bool // a cancel of the run was requested
}

// The commands. Commands of workers carry the token of their lease.
type (
	// DependenciesMet reports that the last upstream has succeeded.
	DependenciesMet struct{}
	// Admit moves a ready task into its pool's queue.
	Admit struct{}
	// Withdraw removes a task from the queue of a pool that its tenant may no longer use.
	Withdraw struct{ Reason string }
	// Claim leases a queued task to a worker, and starts it if requested.
	Claim struct {
		Token  int64
		Worker string
		Claim  id.Claim
		Start  bool
	}
	// Start reports that an instance of the worker executes the task. Instance is empty if there can
	// be only one: only the claiming process knows a pulled lease, and a server represents its endpoint.
	Start struct {
		Token    int64
		Instance string
	}
	// Advance moves the cursor if it still has the expected value.
	Advance struct {
		Token          int64
		Expected, Next string
	}
	// FanOut adds tasks to the run; Ordinal counts the task's fan-outs from 0.
	FanOut struct {
		Token   int64
		Ordinal int32
		Tasks   []id.Task
	}
	// Yield returns the task to the queue, at Cursor if set.
	Yield struct {
		Token  int64
		Cursor *string
	}
	// Succeed completes the task. Output is the version of its declared output, with the state that its
	// pointers decided; nil without one.
	Succeed struct {
		Token   int64
		Outcome Outcome
		Result  json.RawMessage
		Output  *output.Materialization
	}
	// Fail ends the attempt in failure. Retry is the worker's hint, After the delay that the
	// endpoint requested; 0 leaves it to the policy.
	Fail struct {
		Token   int64
		Failure Failure
		Retry   *bool
		After   time.Duration
		Policy  RetryPolicy
	}
	// Expire ends an attempt whose lease was not renewed.
	Expire struct{ Policy RetryPolicy }
	// TimeOut ends an attempt that has exceeded its deadline.
	TimeOut struct{ Policy RetryPolicy }
	// RetryDue makes a task ready whose backoff has ended.
	RetryDue struct{}
	// Skip ends a task that can never run: Upstream did not succeed, or its output is in quarantine and
	// has no good version.
	Skip struct {
		Upstream    id.Task
		Quarantined bool
	}
	// Cancel ends a task without a lease, and asks the worker of a leased one to stop.
	Cancel struct{}
	// ForceCancel ends a task whose worker was asked to stop and has not responded for Silence.
	// SeenAt is its last heartbeat, if there was one.
	ForceCancel struct {
		SeenAt  time.Time
		Silence time.Duration
		Reason  string
	}
)

// On returns the command's name in the state machine.
func (DependenciesMet) On() TaskCommand { return OnDependenciesMet }
func (Admit) On() TaskCommand           { return OnAdmit }
func (Withdraw) On() TaskCommand        { return OnWithdraw }
func (Claim) On() TaskCommand           { return OnClaim }
func (Start) On() TaskCommand           { return OnStart }
func (Advance) On() TaskCommand         { return OnAdvance }
func (FanOut) On() TaskCommand          { return OnFanOut }
func (Yield) On() TaskCommand           { return OnYield }
func (Succeed) On() TaskCommand         { return OnSucceed }
func (Fail) On() TaskCommand            { return OnFail }
func (Expire) On() TaskCommand          { return OnExpire }
func (TimeOut) On() TaskCommand         { return OnTimeOut }
func (RetryDue) On() TaskCommand        { return OnRetryDue }
func (Skip) On() TaskCommand            { return OnSkip }
func (Cancel) On() TaskCommand          { return OnCancel }
func (ForceCancel) On() TaskCommand     { return OnForceCancel }

// Decide decides a command: it returns the event to record, nil if nothing changes, or a fault that
// names the state and the command. Every command may be called in every state; the transition table
// refuses those that do not exist.
func (t Task) Decide(cmd Command, facts Facts) (event.Body, error) {
	if token, fenced := tokenOf(cmd); fenced && (!t.State.Leased() || token != t.Token) {
		return nil, t.stale(token)
	}
	if _, err := allowed(taskTransitions, t.State, cmd.On()); err != nil {
		return nil, err
	}
	switch c := cmd.(type) {
	case DependenciesMet:
		if t.Needs == NeedsBarrier {
			return TaskSucceeded{Outcome: Success}, nil
		}
		return TaskReadied{}, nil
	case RetryDue:
		return TaskReadied{}, nil
	case Admit:
		return TaskQueued{}, nil
	case Withdraw:
		return TaskWithdrawn(c), nil
	case Claim:
		return t.claim(c, facts)
	case Start:
		return t.start(c, facts)
	case Advance:
		return nil, t.advance(c)
	case FanOut:
		return t.fanOut(c, facts)
	case Yield:
		return t.yield(c, facts)
	case Succeed:
		return t.succeed(c, facts)
	case Fail:
		return t.fail(c, facts)
	case Expire:
		return t.expire(c, facts)
	case TimeOut:
		return t.timeOut(c, facts)
	case Skip:
		return TaskSkipped(c), nil
	case Cancel:
		return t.cancel()
	case ForceCancel:
		return t.forceCancel(c, facts)
	}
	return nil, fmt.Errorf("unknown command %T", cmd)
}

// tokenOf returns the fencing token of a worker's command.
func tokenOf(cmd Command) (token int64, fenced bool) {
	switch c := cmd.(type) {
	case Start:
		return c.Token, true
	case Advance:
		return c.Token, true
	case FanOut:
		return c.Token, true
	case Yield:
		return c.Token, true
	case Succeed:
		return c.Token, true
	case Fail:
		return c.Token, true
	}
	return 0, false
}

func (t Task) stale(token int64) error {
	return fault.New(fault.Stale, fmt.Sprintf("the lease with token %d has ended: the task is %s at attempt %d", token, t.State, t.Attempt),
		fault.Field("lease"), fault.Remedy("stop this task and claim another"),
		fault.Value("state", t.State.String()), fault.Value("attempt", t.Attempt))
}

func (t Task) claim(c Claim, facts Facts) (event.Body, error) {
	if len(c.Worker) > maxWorkerLength {
		return nil, tooLong("worker_id", len(c.Worker), maxWorkerLength)
	}
	claimed := TaskClaimed{Attempt: t.Attempt + 1, Token: c.Token, Worker: c.Worker, Claim: c.Claim, Started: c.Start}
	if c.Start {
		claimed.Deadline = t.deadline(facts.Now)
	}
	return claimed, nil
}

func (t Task) deadline(now time.Time) time.Time {
	return now.Add(time.Duration(t.Timeout) * time.Second)
}

// start refuses a second instance: the envelope of a push pool was delivered to two, and one executes
// it.
func (t Task) start(c Start, facts Facts) (event.Body, error) {
	if len(c.Instance) > MaxInstanceLength {
		return nil, tooLong("instance", len(c.Instance), MaxInstanceLength)
	}
	if err := storable("instance", c.Instance); err != nil {
		return nil, err
	}
	if t.Instance != "" && c.Instance != "" && c.Instance != t.Instance {
		return nil, fault.New(fault.Stale, "another instance of the worker executes this attempt", fault.Field("instance"),
			fault.Remedy("skip the task: the envelope was delivered twice"), fault.Value("state", t.State.String()), fault.Value("attempt", t.Attempt))
	}
	if t.CancelRequested {
		return nil, fault.New(fault.Conflict, "the run is being cancelled", fault.Field("lease"),
			fault.Remedy("report the task as failed with code CANCELLED"), fault.Value("should_cancel", true))
	}
	switch {
	case t.State != Running:
		return TaskStarted{Deadline: t.deadline(facts.Now), Instance: c.Instance}, nil
	case t.Instance == c.Instance || c.Instance == "":
		return nil, nil
	}
	return TaskStarted{Deadline: t.Deadline, Instance: c.Instance}, nil // the server had started it for the endpoint
}

// advance checks a move of the cursor; see Moved.
func (t Task) advance(c Advance) error {
	if len(c.Next) > MaxCursorLength {
		return tooLong("next", len(c.Next), MaxCursorLength)
	}
	if err := storable("next", c.Next); err != nil {
		return err
	}
	if t.Cursor == c.Next || t.Cursor == c.Expected { // the first: a repeat, or a page that another attempt has completed
		return nil
	}
	return fault.New(fault.Conflict, fmt.Sprintf("cursor mismatch: expected %.100q, found %.100q", c.Expected, t.Cursor), fault.Field("expected"),
		fault.Remedy("reload the task and continue from the current cursor"), fault.Value("cursor", t.Cursor))
}

func (t Task) fanOut(c FanOut, facts Facts) (event.Body, error) {
	switch {
	case facts.Cancelling:
		return nil, fault.New(fault.Conflict, "the run is being cancelled", fault.Field("lease"),
			fault.Remedy("report the task as failed with code CANCELLED"), fault.Value("should_cancel", true))
	case c.Ordinal < t.FanOuts: // a repeat: the engine returns the tasks that were added then
		return nil, nil
	case c.Ordinal > t.FanOuts:
		return nil, fault.Invalid("ordinal", fmt.Sprintf("is %d, the next fan-out of this task is %d", c.Ordinal, t.FanOuts), "number the fan-outs of a task from 0 without gaps")
	}
	return TaskFannedOut{Ordinal: c.Ordinal, Tasks: c.Tasks}, nil
}

// yield gives the task back at the cursor that the worker names.
func (t Task) yield(c Yield, facts Facts) (event.Body, error) {
	if c.Cursor != nil {
		if len(*c.Cursor) > MaxCursorLength {
			return nil, tooLong("cursor", len(*c.Cursor), MaxCursorLength)
		}
		if err := storable("cursor", *c.Cursor); err != nil {
			return nil, err
		}
		t.Cursor = *c.Cursor
	}
	return t.giveBack(ReturnYielded, facts)
}

// giveBack ends an attempt that neither failed nor succeeded. A cursor that moved is progress.
func (t Task) giveBack(reason ReturnReason, facts Facts) (event.Body, error) {
	cursor := t.progress()
	if facts.Cancelling {
		return TaskCancelled{Cursor: cursor}, nil
	}
	fruitless := t.Fruitless + 1
	if cursor != nil {
		fruitless = 0
	}
	if fruitless >= maxFruitless {
		return TaskFailed{Outcome: Poison, Failures: t.Failures, Failure: Failure{
			Code:    CodePoison,
			Message: fmt.Sprintf("%d deliveries in a row ended without progress, the last as %s", fruitless, reason),
		}}, nil
	}
	return TaskReturned{Reason: reason, Fruitless: fruitless, Cursor: cursor}, nil
}

func (t Task) succeed(c Succeed, facts Facts) (event.Body, error) {
	if len(c.Result) > MaxResultLength {
		return nil, tooLong("result", len(c.Result), MaxResultLength)
	}
	if err := storableJSON("result", c.Result); err != nil {
		return nil, err
	}
	if !slices.Contains([]Outcome{Success, PartialSuccess}, c.Outcome) {
		return nil, fault.Invalid("status", fmt.Sprintf("unknown status %q", c.Outcome), "send SUCCESS or PARTIAL_SUCCESS")
	}
	if facts.Cancelling {
		return TaskCancelled{LateResult: true, Result: c.Result, Cursor: t.progress()}, nil
	}
	if c.Output != nil && c.Output.State == output.Quarantined {
		c.Outcome = Quarantined
	}
	return TaskSucceeded{Outcome: c.Outcome, Result: c.Result, Output: c.Output, Cursor: t.progress()}, nil
}

func (t Task) fail(c Fail, facts Facts) (event.Body, error) {
	if err := c.Failure.Validate(); err != nil {
		return nil, err
	}
	if facts.Cancelling {
		return TaskCancelled{Failure: &c.Failure, Cursor: t.progress()}, nil
	}
	switch {
	case canonicalCode(c.Failure.Code) == CodeInterrupted:
		return t.giveBack(ReturnInterrupted, facts)
	case c.Failure.IsWorkerDeath():
		return t.workerDied(c.Failure, UserError, c.Retry, c.Policy), nil
	}
	decided := t.failed(c.Failure, t.outcomeOf(c.Failure, facts), c.Retry, c.Policy, facts)
	if again, is := decided.(TaskRetrying); is && c.After > 0 {
		again.DueAt = facts.Now.Add(c.Policy.DelayAsked(c.After, again.Failures, t.ID))
		return again, nil
	}
	return decided, nil
}

// outcomeOf distinguishes a worker that stopped its task at the deadline from one whose own call
// timed out: for the first, the reaper would have recorded the same outcome a moment later.
func (t Task) outcomeOf(failure Failure, facts Facts) Outcome {
	if canonicalCode(failure.Code) == CodeTimeout && !t.Deadline.IsZero() && !facts.Now.Before(t.Deadline) {
		return TimedOut
	}
	return UserError
}

// failed counts a failure and decides between another attempt and the end.
func (t Task) failed(failure Failure, outcome Outcome, hint *bool, policy RetryPolicy, facts Facts) event.Body {
	failures := t.Failures + 1
	if int(failures) >= policy.MaxAttempts || !policy.retries(failure.Code, hint) {
		return TaskFailed{Outcome: outcome, Failures: failures, Failure: failure, Cursor: t.progress()}
	}
	timeout := t.Timeout
	if outcome == TimedOut {
		timeout = int32(min(float64(timeout)*max(policy.TimeoutGrowth, 1), maxTimeoutSeconds))
	}
	return TaskRetrying{Failures: failures, Failure: failure, DueAt: facts.Now.Add(policy.Delay(failures, t.ID)), Timeout: timeout, Cursor: t.progress()}
}

// maxTimeoutSeconds limits timeout growth: a week.
const maxTimeoutSeconds = 7 * 24 * 3600

func (t Task) expire(c Expire, facts Facts) (event.Body, error) {
	if t.ExpiresAt.After(facts.Now) {
		return nil, fault.New(fault.Conflict, "the lease has not expired", fault.Value("expires_at", t.ExpiresAt))
	}
	if facts.Cancelling {
		return TaskCancelled{Failure: &Failure{Code: CodeHeartbeatLost, Message: "no heartbeat from worker " + t.Worker + " after the run was cancelled"}, Cursor: t.progress()}, nil
	}
	if t.State == Dispatched {
		return t.giveBack(ReturnExpired, facts)
	}
	return t.workerDied(Failure{Code: CodeHeartbeatLost, Message: "no heartbeat from worker " + t.Worker}, HeartbeatLost, nil, c.Policy), nil
}

// workerDied ends an attempt whose worker died. The task is ready immediately, because there is
// nothing to wait for. Deaths are counted separately from failures, so that they use no attempts and
// a task that kills its workers still ends.
func (t Task) workerDied(failure Failure, outcome Outcome, hint *bool, policy RetryPolicy) event.Body {
	deaths := t.Deaths + 1
	if int(deaths) >= policy.MaxDeaths || !policy.retries(failure.Code, hint) {
		if failure.Message != "" {
			failure.Message += "; "
		}
		failure.Message += fmt.Sprintf("workers died %d times while they ran the task, max_deaths is %d", deaths, policy.MaxDeaths)
		return TaskFailed{Outcome: outcome, Failures: t.Failures, Failure: failure, Cursor: t.progress()}
	}
	returned := TaskReturned{Reason: ReturnWorkerDied, Fruitless: t.Fruitless, Deaths: deaths, Failure: &failure, Cursor: t.progress()}
	if returned.Cursor != nil {
		returned.Fruitless = 0
	}
	return returned
}

func (t Task) timeOut(c TimeOut, facts Facts) (event.Body, error) {
	if t.Deadline.After(facts.Now) {
		return nil, fault.New(fault.Conflict, "the deadline has not passed", fault.Value("deadline", t.Deadline))
	}
	if facts.Cancelling {
		return TaskCancelled{Failure: &Failure{Code: CodeTimeout, Message: fmt.Sprintf("the run was cancelled, and the task ran longer than %d s", t.Timeout)}, Cursor: t.progress()}, nil
	}
	return t.failed(Failure{Code: CodeTimeout, Message: fmt.Sprintf("ran longer than %d s", t.Timeout)}, TimedOut, nil, c.Policy, facts), nil
}

func (t Task) cancel() (event.Body, error) {
	if !t.State.Leased() {
		return TaskCancelled{}, nil
	}
	if t.CancelRequested {
		return nil, nil
	}
	return TaskCancelRequested{}, nil
}

// forceCancel ends a task whose worker no longer responds. A worker that may still be running is not
// overruled: its task would run concurrently with the next run.
func (t Task) forceCancel(c ForceCancel, facts Facts) (event.Body, error) {
	if len(c.Reason) > MaxReasonLength {
		return nil, tooLong("reason", len(c.Reason), MaxReasonLength)
	}
	if err := storable("reason", c.Reason); err != nil {
		return nil, err
	}
	if !facts.Cancelling {
		return nil, fault.New(fault.Conflict, "cannot force cancel: the run is not being cancelled", fault.Field("run"),
			fault.Remedy("cancel the run first: that asks the worker to stop"), fault.Value("state", t.State.String()))
	}
	seen := t.Since // when it was claimed or started: a sign of life too
	if c.SeenAt.After(seen) {
		seen = c.SeenAt
	}
	if possible := seen.Add(c.Silence); possible.After(facts.Now) {
		return nil, fault.New(fault.Conflict,
			fmt.Sprintf("cannot force cancel: worker %s sent a heartbeat at %s, less than %s ago", t.Worker, seen.UTC().Format(time.RFC3339), c.Silence),
			fault.Field("task"), fault.Remedy("wait until "+possible.UTC().Format(time.RFC3339)+"; the worker may stop before that"),
			fault.Value("state", t.State.String()), fault.Value("worker", t.Worker), fault.Value("seen_at", seen.UTC()),
			fault.Value("possible_at", possible.UTC()))
	}
	return TaskCancelled{Forced: true, Reason: c.Reason, Cursor: t.progress()}, nil
}
