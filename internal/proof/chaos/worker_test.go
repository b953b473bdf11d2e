package chaos

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"

	"go.arco.dev/servo/internal/base/event"
	"go.arco.dev/servo/internal/base/fault"
	"go.arco.dev/servo/internal/base/id"
	"go.arco.dev/servo/internal/domain/run"
	"go.arco.dev/servo/internal/engine"
)

// worker claims tasks and ends them in every way there is, good manners not always
// included.
type worker struct {
	*server

	name string
	dice *rand.Rand
}

func (w *worker) work(ctx context.Context) {
	for ctx.Err() == nil {
		for _, lease := range w.claim(ctx) {
			w.execute(ctx, lease)
		}
	}
}

// claim asks with the same claim id until it is answered.
func (w *worker) claim(ctx context.Context) []engine.Lease {
	request := engine.ClaimRequest{
		Worker: w.name, Claim: id.Of[id.Claim](uuid.New()), Pools: []string{"default", "second"}, Max: 1 + w.dice.IntN(3),
		Lease: leaseTime, Wait: time.Second, Start: w.dice.IntN(2) == 0, Meta: event.Meta{Actor: w.name},
	}
	if w.dice.IntN(2) == 0 {
		request.Pools[0], request.Pools[1] = request.Pools[1], request.Pools[0]
	}
	var leases []engine.Lease
	err := w.persist(ctx, w.dice, func(ctx context.Context) error {
		var err error
		leases, err = w.engine.Claim(ctx, request)
		return err
	})
	if err != nil && ctx.Err() == nil {
		w.note(entry{Who: w.name, Kind: kindClaim}, err)
		pause(ctx, 100*time.Millisecond)
	}
	return leases
}

// execute does the task of a lease.
func (w *worker) execute(ctx context.Context, l engine.Lease) {
	if !l.Started {
		if w.misbehaves(3) {
			return // never starts: the lease expires
		}
		e := w.report(ctx, l, actStart, engine.Start{})
		if e.Refused == string(fault.Conflict) {
			w.report(ctx, l, actFail, cancelled())
		}
		if !e.accepted() {
			return
		}
	}
	switch l.Asset {
	case "f/scan":
		if l.FanOuts == 0 && !w.fanOut(ctx, l) {
			return
		}
	case "p/pages":
		w.pages(ctx, l)
		return
	case "k/root":
		w.report(ctx, l, actFail, failure("USER_CODE_EXCEPTION"))
		return
	}
	w.end(ctx, l)
}

// misbehaves is true in a percentage of cases, and never while draining.
func (w *worker) misbehaves(percent int) bool {
	return w.dice.IntN(100) < percent && !w.draining.Load()
}

// fanOut adds a few tasks that the join waits for.
func (w *worker) fanOut(ctx context.Context, l engine.Lease) bool {
	fan := engine.FanOut{Barrier: true}
	for i := range 1 + w.dice.IntN(maxFanOut) {
		fan.Tasks = append(fan.Tasks, engine.FanOutTask{Asset: "f/fetch", Partition: strconv.Itoa(i)})
	}
	e := w.report(ctx, l, actFanOut, fan)
	if e.Refused == string(fault.Conflict) { // the run is being cancelled
		w.report(ctx, l, actFail, cancelled())
	}
	return e.accepted()
}

// pages continues from the cursor, page by page, and yields the task in between.
func (w *worker) pages(ctx context.Context, l engine.Lease) {
	page, _ := strconv.Atoi(strings.TrimPrefix(l.Cursor, "page-"))
	for cursor := l.Cursor; page < cursorEnd; {
		page++
		next := fmt.Sprintf("page-%d", page)
		if w.dice.IntN(4) == 0 {
			w.report(ctx, l, actYield, engine.Yield{Cursor: &next})
			return
		}
		if e := w.report(ctx, l, actAdvance, engine.Advance{Expected: cursor, Next: next}); !e.accepted() {
			return
		}
		cursor = next
	}
	w.end(ctx, l)
}

func failure(code string) engine.Fail { return engine.Fail{Failure: run.Failure{Code: code}} }

// end ends the attempt.
func (w *worker) end(ctx context.Context, l engine.Lease) {
	complete := engine.Complete{Result: []byte(fmt.Sprintf(`{"token": %d}`, l.Token))}
	if w.draining.Load() {
		w.report(ctx, l, actComplete, complete)
		return
	}
	switch roll := w.dice.IntN(100); {
	case roll < 66:
		w.report(ctx, l, actComplete, complete)
	case roll < 69:
		complete.Status = run.PartialSuccess
		w.report(ctx, l, actComplete, complete)
	case roll < 78:
		w.report(ctx, l, actFail, failure("NETWORK_ERROR"))
	case roll < 80:
		w.report(ctx, l, actFail, failure("USER_CODE_EXCEPTION"))
	case roll < 84:
		w.report(ctx, l, actYield, engine.Yield{})
	case roll < 86:
		w.report(ctx, l, actFail, failure(run.CodeInterrupted))
	case roll < 93:
		if w.beat(ctx, l, time.Duration(w.dice.Int64N(int64(4*time.Second)))) {
			w.report(ctx, l, actComplete, complete)
		} else {
			w.report(ctx, l, actFail, cancelled())
		}
	case roll < 96: // a result that may come too late
		pause(ctx, leaseTime+time.Duration(w.dice.Int64N(int64(2*time.Second))))
		w.report(ctx, l, actComplete, complete)
	case roll < 98:
		pause(ctx, time.Duration(w.dice.Int64N(int64(leaseTime))))
		w.report(ctx, l, actComplete, complete)
	default: // silence
	}
}

// beat keeps a lease alive for a while. It reports whether to continue: a worker that was asked
// to stop, or has lost its lease, should not.
func (w *worker) beat(ctx context.Context, l engine.Lease, d time.Duration) bool {
	for end := time.Now().Add(d); time.Now().Before(end) && ctx.Err() == nil; {
		pause(ctx, heartbeatEvery)
		call, cancel := context.WithTimeout(ctx, time.Second)
		pulses, err := w.engine.Heartbeats(call, []engine.Heartbeat{{Key: l.TaskKey, Token: l.Token}})
		cancel()
		if err == nil && (pulses[0].ShouldCancel || !pulses[0].Alive && w.dice.IntN(2) == 0) {
			return false
		}
	}
	return true
}

// report sends a report repeatedly until it is answered, and notes the answer.
func (w *worker) report(ctx context.Context, l engine.Lease, action string, a engine.Action) entry {
	e := entry{
		Who: w.name, Kind: kindReport, Trace: uuid.NewString(), Tenant: l.Tenant, Run: l.Run, Task: l.Task, Token: l.Token, Action: action,
	}
	request := engine.Report{TaskKey: l.TaskKey, Token: l.Token, Action: a, Meta: event.Meta{Actor: w.name, Trace: e.Trace}}
	if advance, ok := a.(engine.Advance); ok {
		e.Cursor = advance.Next
	}
	err := w.persist(ctx, w.dice, func(ctx context.Context) error {
		answer, err := w.engine.ReportOne(ctx, request)
		e.State, e.Late, e.Repeat, e.Added = answer.State, answer.Late, answer.Repeat, answer.Added
		return err
	})
	if ctx.Err() != nil {
		e.Refused = string(fault.Unavailable) // the server stops: the outcome is unknown
		return e
	}
	return w.note(e, err)
}
