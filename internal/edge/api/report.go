package api

import (
	"context"
	"time"

	"google.golang.org/protobuf/types/known/structpb"

	servov1 "go.arco.dev/servo/gen/servo/v1"
	"go.arco.dev/servo/internal/base/fault"
	"go.arco.dev/servo/internal/domain/run"
	"go.arco.dev/servo/internal/edge/intercept"
	"go.arco.dev/servo/internal/edge/problem"
	"go.arco.dev/servo/internal/engine"
)

// Report implements servov1.WorkerServiceServer. Logs and progress of a call are written
// before its state changes: what a worker sends together with a completion belongs to the
// attempt that the completion ends.
func (s workerService) Report(ctx context.Context, req *servov1.ReportRequest) (*servov1.ReportResponse, error) {
	b := newBatch(ctx, req.GetItems())
	if err := s.refuseOtherPools(ctx, b); err != nil {
		return nil, err
	}
	s.applyLogs(ctx, b)
	s.applyProgress(ctx, b)
	s.applyReports(ctx, b)
	if err := b.allUnavailable(); err != nil {
		return nil, err
	}
	s.answerRefused(ctx, b)
	return &servov1.ReportResponse{Answers: b.answers}, nil
}

// batch has the items of one report by kind. Each answer has the index of its item.
type batch struct {
	answers []*servov1.ReportAnswer
	errs    []error

	reports  lot[engine.Report]
	progress lot[engine.Progress]
	logs     lot[engine.LogChunk]
}

// lot has items of one kind with their indexes in the batch.
type lot[T any] struct {
	items  []T
	places []int
}

func (l *lot[T]) add(place int, item T) {
	l.items = append(l.items, item)
	l.places = append(l.places, place)
}

func newBatch(ctx context.Context, items []*servov1.ReportItem) *batch {
	block := make([]servov1.ReportAnswer, len(items)) // one allocation for all
	b := &batch{answers: make([]*servov1.ReportAnswer, len(items)), errs: make([]error, len(items))}
	b.reports.items, b.reports.places = make([]engine.Report, 0, len(items)), make([]int, 0, len(items))
	meta, pools := intercept.Meta(ctx), poolsOf(ctx)
	for i, item := range items {
		b.answers[i] = &block[i]
		h, err := leaseOf(ctx, item.GetLease())
		if err == nil {
			err = b.sort(i, item, engine.Report{TaskKey: h.TaskKey, Token: h.token, Pools: pools, Meta: meta}, h)
		}
		b.errs[i] = err
	}
	return b
}

// refuseOtherPools refuses logs and progress of leases of other pools. The engine checks the pools of
// reports.
func (s workerService) refuseOtherPools(ctx context.Context, b *batch) error {
	if poolsOf(ctx) == nil || len(b.logs.items)+len(b.progress.items) == 0 {
		return nil
	}
	handles := make([]handle, 0, len(b.logs.items)+len(b.progress.items))
	for _, l := range b.logs.items {
		handles = append(handles, handle{TaskKey: l.TaskKey, token: l.Token})
	}
	for _, p := range b.progress.items {
		handles = append(handles, handle{TaskKey: p.Key, token: p.Token})
	}
	outside, err := s.leasesOutsidePools(ctx, handles)
	if err != nil || len(outside) == 0 {
		return err
	}
	first := len(b.logs.items)
	b.logs = b.logs.without(func(i int) bool { return outside[i] }, b.errs)
	b.progress = b.progress.without(func(i int) bool { return outside[first+i] }, b.errs)
	return nil
}

// without returns the lot without refused items.
func (l lot[T]) without(refused func(i int) bool, errs []error) (kept lot[T]) {
	for i, item := range l.items {
		if refused(i) {
			errs[l.places[i]] = otherPool()
			continue
		}
		kept.add(l.places[i], item)
	}
	return kept
}

// sort adds an item to the lot of its kind.
func (b *batch) sort(place int, item *servov1.ReportItem, report engine.Report, h handle) (err error) {
	var action engine.Action
	switch a := item.GetAction().(type) {
	case *servov1.ReportItem_Start:
		action = engine.Start{Instance: a.Start.GetInstance()}
	case *servov1.ReportItem_Advance:
		action = engine.Advance{Expected: a.Advance.GetExpected(), Next: a.Advance.GetNext()}
	case *servov1.ReportItem_Yield:
		action = engine.Yield{Cursor: a.Yield.Cursor}
	case *servov1.ReportItem_Complete:
		action, err = completeOf(a.Complete.GetStatus(), a.Complete.GetResult())
	case *servov1.ReportItem_Fail:
		action, err = failOf(a.Fail.GetError(), a.Fail.ShouldRetry, a.Fail.GetRetryAfter().AsDuration())
	case *servov1.ReportItem_FanOut:
		action = fanOutOf(a.FanOut.GetOrdinal(), a.FanOut.GetTasks(), a.FanOut.GetBarrier())
	case *servov1.ReportItem_Progress:
		progress, err := progressOf(h, a.Progress)
		if err == nil {
			b.progress.add(place, progress)
		}
		return err
	case *servov1.ReportItem_Log:
		chunk, err := chunkOf(h, a.Log)
		if err == nil {
			b.logs.add(place, chunk)
		}
		return err
	}
	if err == nil {
		report.Action = action
		b.reports.add(place, report)
	}
	return err
}

func completeOf(status servov1.Complete_Status, value *structpb.Value) (engine.Action, error) {
	result, err := jsonOf("result", value)
	if err != nil {
		return nil, err
	}
	action := engine.Complete{Result: result}
	if status == servov1.Complete_PARTIAL_SUCCESS {
		action.Status = run.PartialSuccess
	}
	return action, nil
}

func failOf(f *servov1.Failure, retry *bool, after time.Duration) (engine.Action, error) {
	details, err := jsonOfStruct("error.details", f.GetDetails())
	return engine.Fail{
		Failure: run.Failure{Code: f.GetCode(), Message: f.GetMessage(), Details: details, SuggestedAction: f.GetSuggestedAction()},
		Retry:   retry,
		After:   after,
	}, err
}

func fanOutOf(ordinal int32, tasks []*servov1.FanOutTask, barrier bool) engine.Action {
	action := engine.FanOut{Ordinal: ordinal, Tasks: make([]engine.FanOutTask, len(tasks)), Barrier: barrier}
	for i, t := range tasks {
		action.Tasks[i] = engine.FanOutTask{Asset: t.GetAsset(), Partition: t.GetPartition()}
	}
	return action
}

func (s workerService) applyReports(ctx context.Context, b *batch) {
	if len(b.reports.items) == 0 {
		return
	}
	answers, errs := s.engine.Report(ctx, b.reports.items)
	for i, place := range b.reports.places {
		if b.errs[place] = errs[i]; errs[i] == nil {
			fill(b.answers[place], answers[i])
		}
	}
}

func fill(out *servov1.ReportAnswer, a engine.Answer) {
	out.State, out.Outcome = servov1.Task_State(a.State).Enum(), string(a.Outcome)
	out.DueAt, out.Deadline = timestamp(a.DueAt), timestamp(a.Deadline)
	out.Late, out.Repeat = a.Late, a.Repeat
	for _, task := range a.Added {
		out.Added = append(out.Added, task.String())
	}
}

// allUnavailable returns an error if all items failed as unavailable. The caller then repeats the whole
// call.
func (b *batch) allUnavailable() error {
	for _, err := range b.errs {
		if !fault.Is(err, fault.Unavailable) {
			return nil
		}
	}
	return b.errs[0]
}

// answerRefused sets the errors of refused items.
func (s workerService) answerRefused(ctx context.Context, b *batch) {
	var logged, explained error // an error of many items is logged once
	for i, err := range b.errs {
		if err == nil {
			continue
		}
		if _, known := fault.As(err); !known {
			if logged == nil || logged.Error() != err.Error() {
				logged, explained = err, s.Explain(ctx, servov1.WorkerService_Report_FullMethodName, err)
			}
			err = explained
		}
		b.answers[i].Error = problem.Of(err)
	}
}

// under prefixes the field of a fault.
func under(path string, err error) error {
	f, ok := fault.As(err)
	if !ok || f.Violation.Field == "" {
		return err
	}
	f.Violation.Field = path + "." + f.Violation.Field
	return f
}
