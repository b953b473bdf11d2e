package run

import (
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"go.arco.dev/servo/internal/base/event"
	"go.arco.dev/servo/internal/base/fault"
	"go.arco.dev/servo/internal/base/id"
)

// running is a task in its first attempt, with token 7.
func running() Task {
	return Task{
		State: Running, Version: 3, Attempt: 1, Token: 7, Timeout: 60, Worker: "w",
		StartedAt: epoch, Deadline: epoch.Add(time.Minute), ExpiresAt: epoch.Add(time.Minute),
	}
}

// after decides and evolves.
func after(t *testing.T, task Task, cmd Command, facts Facts) Task {
	t.Helper()
	body, err := task.Decide(cmd, facts)
	require.NoError(t, err)
	if move, ok := cmd.(Advance); ok {
		return task.Moved(move)
	}
	if body == nil {
		return task
	}
	next, err := task.Evolve(event.Event{Version: task.Version + 1, At: facts.Now, Body: body})
	require.NoError(t, err)
	return next
}

func TestDecide(t *testing.T) {
	t.Parallel()
	now := Facts{Now: epoch.Add(10 * time.Second)}
	late := Facts{Now: epoch.Add(10 * time.Minute)}
	policy := Resolve("")
	no := false

	t.Run("only the token fences", func(t *testing.T) {
		t.Parallel()
		for _, cmd := range []Command{
			Start{Token: 6}, Advance{Token: 6}, FanOut{Token: 6}, Yield{Token: 6}, Succeed{Token: 6}, Fail{Token: 6},
		} {
			_, err := running().Decide(cmd, now)
			require.True(t, fault.Is(err, fault.Stale), "%T", cmd)
		}
		require.Equal(t, Succeeded, after(t, running(), Succeed{Token: 7, Outcome: Success}, late).State,
			"an expired lease remains with its worker while no other has claimed the task")
	})

	t.Run("one instance executes an attempt", func(t *testing.T) {
		t.Parallel()
		dispatched := running()
		dispatched.State, dispatched.StartedAt = Dispatched, time.Time{}
		first := after(t, dispatched, Start{Token: 7, Instance: "a"}, now)
		require.Equal(t, "a", first.Instance)
		for _, instance := range []string{"a", ""} { // a repeat, and the server that has sent the task
			body, err := first.Decide(Start{Token: 7, Instance: instance}, late)
			require.NoError(t, err)
			require.Nil(t, body)
		}
		_, err := first.Decide(Start{Token: 7, Instance: "b"}, now)
		require.True(t, fault.Is(err, fault.Stale), err)

		spoken := after(t, dispatched, Start{Token: 7}, now) // by the server
		named := after(t, spoken, Start{Token: 7, Instance: "b"}, late)
		require.Equal(t, "b", named.Instance)
		require.Equal(t, spoken.StartedAt, named.StartedAt)
		require.Equal(t, spoken.Deadline, named.Deadline)
		_, err = named.Decide(Start{Token: 7, Instance: "a"}, now)
		require.True(t, fault.Is(err, fault.Stale), err)
		require.Empty(t, after(t, named, Succeed{Token: 7, Outcome: Success}, now).Instance)
		_, err = dispatched.Decide(Start{Token: 7, Instance: strings.Repeat("x", MaxInstanceLength+1)}, now)
		require.True(t, fault.Is(err, fault.LimitExceeded), err)
	})

	t.Run("failures are counted apart from attempts", func(t *testing.T) {
		t.Parallel()
		task := running()
		task.State = Dispatched
		for range maxFruitless - 1 {
			task = after(t, task, Expire{Policy: policy}, late)
			require.Equal(t, Queued, task.State)
			task = after(t, task, Claim{Token: task.Token + 1, Worker: "w"}, now)
			task.ExpiresAt = epoch
		}
		require.EqualValues(t, maxFruitless, task.Attempt)
		require.Zero(t, task.Failures)
		task = after(t, task, Expire{Policy: policy}, late)
		require.Equal(t, Failed, task.State)
		require.Equal(t, Poison, task.Outcome)
	})

	t.Run("progress makes a delivery fruitful", func(t *testing.T) {
		t.Parallel()
		task := running()
		task.Fruitless = maxFruitless - 1
		task = after(t, task, Advance{Token: 7, Expected: "", Next: "1"}, now)
		require.Equal(t, Ready, after(t, task, Yield{Token: 7}, now).State)
		task.Fruitless = maxFruitless - 1
		cursor := "2"
		moved := after(t, task, Yield{Token: 7, Cursor: &cursor}, now)
		require.Equal(t, Ready, moved.State)
		require.Zero(t, moved.Fruitless)
		require.Equal(t, "2", moved.Cursor)
	})

	t.Run("a cursor moves once, from where it is", func(t *testing.T) {
		t.Parallel()
		task := after(t, running(), Advance{Token: 7, Expected: "", Next: "30"}, now)
		require.Equal(t, "30", task.Cursor)
		body, err := task.Decide(Advance{Token: 7, Expected: "", Next: "30"}, now)
		require.NoError(t, err)
		require.Nil(t, body, "a repeat changes nothing")
		_, err = task.Decide(Advance{Token: 7, Expected: "0", Next: "60"}, now)
		require.True(t, fault.Is(err, fault.Conflict))
	})

	t.Run("every end of a lease records the cursor that was moved", func(t *testing.T) {
		t.Parallel()
		claimed := running()
		claimed.Cursor, claimed.ClaimCursor, claimed.Fruitless = "3", "3", maxFruitless-1
		cancelling := Facts{Now: late.Now, Cancelling: true}
		for _, end := range []struct {
			cmd   Command
			facts Facts
		}{
			{Yield{Token: 7}, now},
			{Succeed{Token: 7, Outcome: Success}, now},
			{Succeed{Token: 7, Outcome: Success}, cancelling},
			{Fail{Token: 7, Failure: Failure{Code: "NETWORK_ERROR"}, Policy: policy}, now},
			{Fail{Token: 7, Failure: Failure{Code: "NETWORK_ERROR"}, Policy: policy}, cancelling},
			{Fail{Token: 7, Failure: Failure{Code: "USER_CODE_EXCEPTION"}, Policy: policy}, now},
			{Fail{Token: 7, Failure: Failure{Code: CodeInterrupted}, Policy: policy}, now},
			{Fail{Token: 7, Failure: Failure{Code: "WORKER_CRASH"}, Policy: policy}, now},
			{Expire{Policy: policy}, late},
			{Expire{Policy: policy}, cancelling},
			{TimeOut{Policy: policy}, Facts{Now: epoch.Add(24 * time.Hour)}},
			{TimeOut{Policy: policy}, Facts{Now: epoch.Add(24 * time.Hour), Cancelling: true}},
			{ForceCancel{}, cancelling},
		} {
			moved := after(t, claimed, Advance{Token: 7, Expected: "3", Next: "4"}, now)
			require.Equal(t, claimed.Version, moved.Version, "a move is no event")
			body, err := moved.Decide(end.cmd, end.facts)
			require.NoError(t, err)
			ended, err := claimed.Evolve(event.Event{Version: claimed.Version + 1, At: end.facts.Now, Body: body}) // replay has seen no move
			require.NoError(t, err)
			require.Equal(t, "4", ended.Cursor, "%T", end.cmd)
			require.Zero(t, ended.Fruitless, "%T: progress", end.cmd)
			require.Empty(t, ended.ClaimCursor)
		}
		back := "3"
		ended := after(t, after(t, claimed, Advance{Token: 7, Expected: "3", Next: "4"}, now), Yield{Token: 7, Cursor: &back}, now)
		require.Equal(t, Poison, ended.Outcome, "back where it was at the claim: no progress")
	})

	t.Run("max_attempts limits failures", func(t *testing.T) {
		t.Parallel()
		task := running()
		fail := Fail{Token: 7, Failure: Failure{Code: "NETWORK_ERROR"}, Policy: Resolve("NETWORK_ERROR")}
		for failures := int32(1); failures < 3; failures++ {
			task = after(t, task, fail, now)
			require.Equal(t, RetryWait, task.State)
			require.Equal(t, failures, task.Failures)
			require.Equal(t, now.Now.Add(fail.Policy.Delay(failures, task.ID)), task.DueAt)
			require.WithinRange(t, task.DueAt, now.Now.Add(4*time.Minute<<(failures-1)), now.Now.Add(5*time.Minute<<(failures-1)))
			task.State, task.Token = Running, 7
		}
		task = after(t, task, fail, now)
		require.Equal(t, Failed, task.State)
		require.EqualValues(t, 3, task.Failures)
	})

	t.Run("the class decides, and a hint can only prevent a retry", func(t *testing.T) {
		t.Parallel()
		yes := true
		cases := map[string]struct {
			fail Fail
			want TaskState
		}{
			"transient":                  {Fail{Failure: Failure{Code: "TRANSIENT_NETWORK"}}, RetryWait},
			"transient, hint no":         {Fail{Failure: Failure{Code: "NETWORK_ERROR"}, Retry: &no}, Failed},
			"user code":                  {Fail{Failure: Failure{Code: "USER_CODE_EXCEPTION"}}, Failed},
			"user code, hint yes":        {Fail{Failure: Failure{Code: "USER_CODE_EXCEPTION"}, Retry: &yes}, Failed},
			"unknown code":               {Fail{Failure: Failure{Code: "OUT_OF_COFFEE"}}, Failed},
			"listed in retry_on":         {Fail{Failure: Failure{Code: "OUT_OF_COFFEE"}, Policy: RetryPolicy{RetryOn: []string{"OUT_OF_COFFEE"}}}, RetryWait},
			"listed in no_retry_on":      {Fail{Failure: Failure{Code: "NETWORK_ERROR"}, Policy: RetryPolicy{NoRetryOn: []string{"NETWORK_ERROR"}}}, Failed},
			"internal":                   {Fail{Failure: Failure{Code: "INTERNAL_ERROR"}}, RetryWait},
			"not implemented":            {Fail{Failure: Failure{Code: "NOT_IMPLEMENTED"}}, Failed},
			"interrupted is not counted": {Fail{Failure: Failure{Code: "INTERRUPTED"}}, Ready},
		}
		for name, c := range cases {
			c.fail.Token = 7
			c.fail.Policy = Resolve(c.fail.Failure.Code, c.fail.Policy)
			require.Equal(t, c.want, after(t, running(), c.fail, now).State, name)
		}
	})

	t.Run("a run under cancel ends its tasks, whatever comes", func(t *testing.T) {
		t.Parallel()
		cancelling := Facts{Now: late.Now, Cancelling: true}
		for _, cmd := range []Command{
			Yield{Token: 7},
			Fail{Token: 7, Failure: Failure{Code: "NETWORK_ERROR"}, Policy: policy},
			Fail{Token: 7, Failure: Failure{Code: "INTERRUPTED"}},
			Expire{Policy: policy},
			TimeOut{Policy: policy},
		} {
			require.Equal(t, Cancelled, after(t, running(), cmd, cancelling).State, "%T", cmd)
		}
		done := after(t, running(), Succeed{Token: 7, Outcome: Success, Result: []byte(`{"rows":1}`)}, cancelling)
		require.Equal(t, Cancelled, done.State)
		require.True(t, done.LateResult)
		require.JSONEq(t, `{"rows":1}`, string(done.Result))
	})

	t.Run("a live lease does not expire and a deadline is not early", func(t *testing.T) {
		t.Parallel()
		_, err := running().Decide(Expire{Policy: policy}, now)
		require.True(t, fault.Is(err, fault.Conflict))
		_, err = running().Decide(TimeOut{Policy: policy}, now)
		require.True(t, fault.Is(err, fault.Conflict))
		require.Equal(t, Ready, after(t, running(), Expire{Policy: policy}, late).State)
	})

	t.Run("the death of a worker is retried at once and uses up no attempt, and the last one ends the task", func(t *testing.T) {
		t.Parallel()
		once := Resolve(CodeHeartbeatLost, RetryPolicy{MaxAttempts: 1, MaxDeaths: 2})
		crash := Fail{Token: 7, Failure: Failure{Code: CodeWorkerCrash, Message: "killed"}, Policy: once}
		for _, cmd := range []Command{Expire{Policy: once}, crash} {
			task := after(t, running(), cmd, late)
			require.Equal(t, Ready, task.State, "%T", cmd)
			require.EqualValues(t, 1, task.Deaths)
			require.Zero(t, task.Failures)
			require.Zero(t, task.Fruitless)
			again := running()
			again.Deaths = task.Deaths
			again = after(t, again, cmd, late)
			require.Equal(t, Failed, again.State, "%T", cmd)
			require.Zero(t, again.Failures)
			require.Contains(t, again.Failure.Message, "max_deaths is 2")
		}
		never := false
		crash.Retry = &never
		require.Equal(t, Failed, after(t, running(), crash, late).State, "the worker reports that it must not be retried")
		again := Resolve(CodeHeartbeatLost, RetryPolicy{NoRetryOn: []string{CodeHeartbeatLost}})
		require.Equal(t, Failed, after(t, running(), Expire{Policy: again}, late).State, "the policy excludes it")
	})

	t.Run("a timeout grows by the policy", func(t *testing.T) {
		t.Parallel()
		task := after(t, running(), TimeOut{Policy: Resolve("TIMEOUT", RetryPolicy{TimeoutGrowth: 1.5})}, late)
		require.Equal(t, RetryWait, task.State)
		require.EqualValues(t, 90, task.Timeout)
	})

	t.Run("a worker that stops its task at the deadline reports the same as the reaper", func(t *testing.T) {
		t.Parallel()
		growing := Resolve("TIMEOUT", RetryPolicy{TimeoutGrowth: 1.5})
		stopped := Fail{Token: 7, Failure: Failure{Code: "TIMEOUT"}, Policy: growing}
		require.EqualValues(t, 90, after(t, running(), stopped, late).Timeout)
		require.EqualValues(t, 60, after(t, running(), stopped, now).Timeout, "a call of its own that timed out")
		once := growing
		once.MaxAttempts = 1
		require.Equal(t, TimedOut, after(t, running(), Fail{Token: 7, Failure: stopped.Failure, Policy: once}, late).Outcome)
		require.Equal(t, UserError, after(t, running(), Fail{Token: 7, Failure: stopped.Failure, Policy: once}, now).Outcome)
	})

	t.Run("what cannot be stored is refused with its field", func(t *testing.T) {
		t.Parallel()
		cases := map[string]Command{
			"result":        Succeed{Token: 7, Outcome: Success, Result: []byte(`{`)},
			"status":        Succeed{Token: 7, Outcome: "GREAT"},
			"error.code":    Fail{Token: 7},
			"error.message": Fail{Token: 7, Failure: Failure{Code: "X", Message: "a\x00b"}},
			"error.details": Fail{Token: 7, Failure: Failure{Code: "X", Details: []byte("nope")}},
			"next":          Advance{Token: 7, Next: strings.Repeat("x", MaxCursorLength+1)},
			"ordinal":       FanOut{Token: 7, Ordinal: 3},
		}
		for field, cmd := range cases {
			_, err := running().Decide(cmd, now)
			f, ok := fault.As(err)
			require.True(t, ok, "%s: %v", field, err)
			require.Equal(t, field, f.Violation.Field)
			require.NotEmpty(t, f.Violation.Remedy, field)
		}
	})
}

func TestResolve(t *testing.T) {
	t.Parallel()

	t.Run("each field comes from the strongest layer that sets it", func(t *testing.T) {
		t.Parallel()
		got := Resolve("RATE_LIMITED",
			RetryPolicy{MaxDelay: time.Minute},              // config
			RetryPolicy{MaxDelay: time.Hour, Multiplier: 3}, // pipeline
			RetryPolicy{Multiplier: 4, RetryOn: []string{"X"}},
		)
		require.Equal(t, RetryPolicy{
			MaxAttempts: 5, MaxDeaths: 3, InitialDelay: 15 * time.Minute, MaxDelay: time.Minute, Multiplier: 3,
			Jitter: DefaultJitter, RetryOn: []string{"X"}, TimeoutGrowth: 1,
		}, got)
	})

	t.Run("a delay never exceeds the maximum and never shrinks without jitter", func(t *testing.T) {
		t.Parallel()
		rapid.Check(t, func(t *rapid.T) {
			p := Resolve("", RetryPolicy{
				InitialDelay: time.Duration(rapid.Int64Range(1, int64(time.Hour)).Draw(t, "initial")),
				Multiplier:   rapid.Float64Range(1, 10).Draw(t, "multiplier"),
			})
			p.Jitter = 0
			task := id.Of[id.Task](uuid.UUID(rapid.SliceOfN(rapid.Byte(), 16, 16).Draw(t, "task")))
			previous := time.Duration(0)
			for n := int32(1); n < 2000; n = n*3/2 + 1 {
				d := p.Delay(n, task)
				require.GreaterOrEqual(t, d, previous)
				require.LessOrEqual(t, d, p.MaxDelay)
				jittered := p
				jittered.Jitter = 0.5
				require.LessOrEqual(t, jittered.Delay(n, task), d)
				require.GreaterOrEqual(t, jittered.Delay(n, task), d/2-time.Microsecond)
				previous = d
			}
		})
	})
}

func TestClassOf(t *testing.T) {
	t.Parallel()
	for class, codes := range map[Class][]string{
		ClassTransient:      {"NETWORK_ERROR", "TRANSIENT_NETWORK", "RATE_LIMITED", "RATE_LIMIT_EXCEEDED", "SERVICE_UNAVAILABLE", "TIMEOUT"},
		ClassInfrastructure: {"OUT_OF_MEMORY", "DISK_FULL", "WORKER_CRASH", "HEARTBEAT_LOST", "STALE_EXECUTION", "INTERRUPTED"},
		ClassUserCode:       {"USER_CODE_EXCEPTION", "IMPORT_ERROR", "CHECK_FAILED", "MY_OWN"},
		ClassInput:          {"MISSING_INPUT", "SCHEMA_VIOLATION", "DATA_CORRUPTION"},
		ClassConfiguration: {
			"AUTHENTICATION_FAILED", "AUTHORIZATION_FAILED", "INVALID_CONFIGURATION", "RESOURCE_NOT_FOUND",
			"INVALID_MANIFEST", "INVALID_PARTITION", "CYCLE_DETECTED",
		},
		ClassSystem:    {"INTERNAL_ERROR", "NOT_IMPLEMENTED"},
		ClassCancelled: {"CANCELLED"},
	} {
		for _, code := range codes {
			require.Equal(t, class, ClassOf(code), code)
		}
	}

	t.Run("tasks that failed together are not due together, and each is due at the same time again", func(t *testing.T) {
		t.Parallel()
		const tasks, bins = 800, 8
		p := Resolve("", RetryPolicy{InitialDelay: time.Minute})
		for failures := int32(1); failures <= 4; failures++ {
			var mint [16]byte // ids that differ in their last bytes only
			var counts [bins]int
			seen := map[time.Duration]bool{}
			full := time.Minute << (failures - 1)
			for i := range tasks {
				mint[14], mint[15] = byte(i>>8), byte(i)
				task := id.Of[id.Task](uuid.UUID(mint))
				d := p.Delay(failures, task)
				require.Equal(t, d, p.Delay(failures, task))
				require.LessOrEqual(t, d, full)
				require.Greater(t, d, full*8/10-time.Microsecond)
				seen[d] = true
				counts[min(bins-1, int(bins*(full-d)/(full/5)))]++
			}
			require.Greater(t, len(seen), tasks*99/100)
			for _, n := range counts {
				require.InDelta(t, tasks/bins, n, 40, "%v", counts)
			}
		}
	})
}
