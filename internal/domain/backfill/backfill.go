package backfill

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"go.arco.dev/servo/internal/base/event"
	"go.arco.dev/servo/internal/base/fault"
	"go.arco.dev/servo/internal/base/id"
	"go.arco.dev/servo/internal/domain/partition"
)

// Backfill covers a set of partitions with runs, in rounds: the first covers the whole set, and each
// retry covers what has not succeeded.
type Backfill struct {
	Tenant    id.Tenant
	ID        id.Backfill
	Workspace id.Workspace
	Version   int32
	Settings  Settings

	State  State
	Reason string // why it is paused, failed or cancelled

	Round int32
	Set   partition.Set // the partitions of this round
	Next  int32         // the next chunk of the round
	Open  int32         // runs that have not ended
	// Undone are the partitions that have ended without success and are not part of what is left of the
	// round.
	Undone partition.Set

	// Total = Completed + Failed + Skipped + Pending().
	Total, Completed, Failed, Skipped int64
	// RoundFailed counts the failed partitions of this round, which the threshold applies to.
	RoundFailed int64

	CreatedBy  string
	CreatedAt  time.Time
	PausedAt   time.Time
	FinishedAt time.Time
}

// Pending is how many partitions have no result: their run has not ended, or has not started.
func (b Backfill) Pending() int64 { return b.Total - b.Completed - b.Failed - b.Skipped }

// Chunks is how many runs the round has.
func (b Backfill) Chunks() int32 {
	size := int64(b.Settings.ChunkSize)
	return int32((b.Set.Count() + size - 1) / size) //nolint:gosec // bounded by CheckSize
}

// ChunkSet returns the partitions of a chunk of this round.
//
// It is a function of the set, the order and the size alone: a server that starts the chunk again after a
// crash covers the same partitions.
func (b Backfill) ChunkSet(chunk int32) partition.Set {
	return b.Set.Chunk(int64(chunk), int64(b.Settings.ChunkSize), b.Settings.Order)
}

// Action is a command with its data.
type Action interface{ On() Command }

// The actions.
type (
	// StartChunk records the run of the next chunk.
	StartChunk struct{ Run id.Run }
	// EndChunk records how the run of a chunk ended.
	EndChunk struct {
		Round, Chunk    int32
		Run             id.Run
		Failed, Skipped partition.Set
	}
	// Pause stops the start of further runs.
	Pause struct{ Reason string }
	// Resume lets them start again.
	Resume struct{}
	// Cancel ends the backfill.
	Cancel struct{ Reason string }
	// Stop fails the backfill: its next run cannot be planned.
	Stop struct{ Reason string }
	// Retry begins a new round with what has not succeeded. FailedOnly leaves out what was never
	// started.
	Retry struct{ FailedOnly bool }
)

// On returns the command's name in the machine.
func (StartChunk) On() Command { return OnStartChunk }
func (EndChunk) On() Command   { return OnEndChunk }
func (Pause) On() Command      { return OnPause }
func (Resume) On() Command     { return OnResume }
func (Cancel) On() Command     { return OnCancel }
func (Retry) On() Command      { return OnRetry }
func (Stop) On() Command       { return OnStop }

// CanStart reports whether another run may start, by the backfill's own limit.
func (b Backfill) CanStart() bool {
	return (b.State == Pending || b.State == Running) && b.Next < b.Chunks() && b.Open < b.Settings.MaxConcurrentRuns
}

// Decide decides an action: it returns the events to record, or a fault.
func (b Backfill) Decide(a Action) ([]event.Body, error) {
	if err := b.allowed(a.On()); err != nil {
		return nil, err
	}
	switch a := a.(type) {
	case StartChunk:
		if !b.CanStart() {
			return nil, fmt.Errorf("backfill %s: chunk %d of %d cannot start with %d open runs", b.ID, b.Next, b.Chunks(), b.Open)
		}
		return []event.Body{ChunkStarted{Round: b.Round, Chunk: b.Next, Run: a.Run}}, nil
	case EndChunk:
		return b.endChunk(a)
	case Pause:
		return []event.Body{PausedByCaller(a)}, checkReason(a.Reason)
	case Resume:
		return []event.Body{Resumed{}}, nil
	case Cancel:
		return []event.Body{CancelledByCaller(a)}, checkReason(a.Reason)
	case Retry:
		return b.retry(a)
	case Stop:
		return []event.Body{Ended{State: Failed, Reason: a.Reason}}, nil
	}
	return nil, fmt.Errorf("unknown action %T", a)
}

func (b Backfill) allowed(on Command) error {
	var possible []string
	for _, row := range Transitions {
		if row.On != on {
			continue
		}
		if slices.Contains(row.From, b.State) {
			return nil
		}
		for _, s := range row.From {
			possible = append(possible, s.String())
		}
	}
	return fault.New(fault.Conflict, fmt.Sprintf("cannot %s: the backfill is %s", on, b.State), fault.Field("state"),
		fault.Remedy("possible in "+strings.Join(possible, ", ")), fault.Value("state", b.State.String()), fault.Value("command", string(on)))
}

func checkReason(reason string) error {
	if len(reason) > MaxReason {
		return fault.Invalid("reason", fmt.Sprintf("has %d bytes", len(reason)), fmt.Sprintf("use at most %d bytes", MaxReason))
	}
	return nil
}

// endChunk records the end of a run, and ends the backfill when too many partitions have failed or when
// nothing is left.
func (b Backfill) endChunk(a EndChunk) ([]event.Body, error) {
	if a.Round != b.Round || a.Chunk >= b.Next || b.Open == 0 {
		return nil, fmt.Errorf("backfill %s: chunk %d of round %d is not open", b.ID, a.Chunk, a.Round)
	}
	ended := ChunkEnded(a)
	bodies := []event.Body{ended}
	after := b
	after.count(ended)
	if b.State.Terminal() {
		return bodies, nil
	}
	most, err := b.Settings.allowedFailures(b.Set.Count())
	if err != nil {
		return nil, err
	}
	switch left := after.Next < after.Chunks() || after.Open > 0; {
	case after.RoundFailed > most:
		bodies = append(bodies, Ended{State: Failed, Reason: b.tooManyFailed(after.RoundFailed, most)})
	case left:
	case after.Failed+after.Skipped > 0:
		bodies = append(bodies, Ended{State: Failed, Reason: fmt.Sprintf("%d partitions failed and %d were skipped or cancelled", after.Failed, after.Skipped)})
	default:
		bodies = append(bodies, Ended{State: Succeeded})
	}
	return bodies, nil
}

func (b Backfill) tooManyFailed(failed, most int64) string {
	if b.Settings.StopOnFailure {
		return fmt.Sprintf("%d partitions failed, and stop_on_failure is set", failed)
	}
	return fmt.Sprintf("%d of %d partitions failed, failure_threshold %s allows %d", failed, b.Set.Count(), b.Settings.FailureThreshold, most)
}

// retry begins a new round.
func (b Backfill) retry(a Retry) ([]event.Body, error) {
	if b.Open > 0 {
		return nil, fault.New(fault.Conflict, fmt.Sprintf("%d runs of the backfill have not ended", b.Open), fault.Field("state"),
			fault.Remedy("wait until they have ended"), fault.Value("state", b.State.String()))
	}
	unstarted := b.unstarted()
	r := Retried{Round: b.Round + 1, Set: b.Undone.Union(unstarted)}
	if a.FailedOnly {
		r.Set, r.Left = b.Undone, unstarted
	}
	if r.Set.Empty() {
		remedy := "create another backfill to cover partitions again"
		if !unstarted.Empty() {
			remedy = "retry without failed_only to cover the partitions that were never started"
		}
		return nil, fault.New(fault.Conflict, "nothing to retry: no partition of the backfill failed or was skipped", fault.Field("failed_only"), fault.Remedy(remedy))
	}
	return []event.Body{r}, nil
}

// unstarted are the partitions of the round whose chunk has no run.
func (b Backfill) unstarted() partition.Set {
	switch {
	case b.Next == 0:
		return b.Set
	case b.Next >= b.Chunks():
		return partition.Set{}
	}
	// One chunk of all that comes before Next.
	return b.Set.Difference(b.Set.Chunk(0, int64(b.Settings.ChunkSize)*int64(b.Next), b.Settings.Order))
}

// count adds the end of a run to the counters.
func (b *Backfill) count(e ChunkEnded) {
	failed, skipped := e.Failed.Count(), e.Skipped.Count()
	b.Open--
	b.Failed += failed
	b.RoundFailed += failed
	b.Skipped += skipped
	b.Completed += b.ChunkSet(e.Chunk).Count() - failed - skipped
	if failed+skipped > 0 {
		b.Undone = b.Undone.Union(e.Failed).Union(e.Skipped)
	}
}

// Evolve applies one event to the backfill.
func (b Backfill) Evolve(e event.Event) (Backfill, error) {
	if err := event.Check[Created](e, b.Version, false); err != nil {
		return b, err
	}
	switch body := e.Body.(type) {
	case Created:
		b = Backfill{
			Tenant: e.Tenant, ID: id.Of[id.Backfill](e.Subject), Workspace: body.Workspace, Settings: body.Settings, State: Pending,
			Set: body.Set, Total: body.Set.Count(), CreatedBy: e.Meta.Actor, CreatedAt: e.At,
		}
	case ChunkStarted:
		if body.Round != b.Round || body.Chunk != b.Next {
			return b, e.Unexpected()
		}
		b.State, b.Next, b.Open = Running, b.Next+1, b.Open+1
	case ChunkEnded:
		if body.Round != b.Round || body.Chunk >= b.Next || b.Open == 0 {
			return b, e.Unexpected()
		}
		b.count(body)
	case PausedByCaller:
		b.State, b.PausedAt, b.Reason = Paused, e.At, body.Reason
	case Resumed:
		b.State, b.PausedAt, b.Reason = Running, time.Time{}, ""
		if b.Next == 0 {
			b.State = Pending
		}
	case CancelledByCaller:
		b.State, b.PausedAt, b.FinishedAt, b.Reason = Cancelled, time.Time{}, e.At, body.Reason
	case Ended:
		b.State, b.PausedAt, b.FinishedAt, b.Reason = body.State, time.Time{}, e.At, body.Reason
	case Retried:
		b.retried(body)
	default:
		return b, e.Unexpected()
	}
	b.Version = e.Version
	return b, nil
}

// retried begins a round: what was undone is pending again, except for what the round leaves out.
func (b *Backfill) retried(r Retried) {
	b.State, b.Reason, b.FinishedAt = Pending, "", time.Time{}
	b.Round, b.Set, b.Next, b.Undone, b.RoundFailed = r.Round, r.Set, 0, r.Left, 0
	b.Failed, b.Skipped = 0, r.Left.Count()
}
