package api

import (
	"context"
	"time"

	servov1 "go.arco.dev/servo/gen/servo/v1"
	"go.arco.dev/servo/internal/domain/platform"
	"go.arco.dev/servo/internal/domain/run"
	"go.arco.dev/servo/internal/store"
)

// statusService implements servo.v1.StatusService.
type statusService struct{ *Server }

// GetStatus implements servov1.StatusServiceServer.
func (s statusService) GetStatus(ctx context.Context, _ *servov1.GetStatusRequest) (*servov1.Status, error) {
	answer := &servov1.Status{Version: s.options.Version, Server: s.options.Name, StartedAt: timestamp(s.options.StartedAt)}
	now, err := s.now(ctx)
	if err != nil {
		return nil, err
	}
	answer.Now = timestamp(now)
	today, err := s.store.Today(ctx, now)
	if err != nil {
		return nil, err
	}
	answer.Today = todayToProto(today)
	depths, err := s.store.QueueDepths(ctx)
	if err != nil {
		return nil, err
	}
	for _, state := range run.TaskStates() {
		if n, live := depths[state]; live {
			answer.Tasks = append(answer.Tasks, &servov1.StateCount{State: state.String(), Count: int64(n), AtLeast: n >= store.MaxDepth})
		}
	}
	if err := s.addPresence(ctx, answer); err != nil {
		return nil, err
	}
	dispatch, err := s.store.GetSwitch(ctx, platform.Dispatch)
	if err != nil {
		return nil, err
	}
	answer.Dispatch = dispatchToProto(dispatch)
	duties, err := s.store.Duties(ctx)
	if err != nil {
		return nil, err
	}
	for _, d := range duties {
		duty := &servov1.Duty{Name: d.Name, Epoch: d.Epoch, ExpiresAt: timestamp(d.ExpiresAt)}
		if d.ExpiresAt.After(answer.GetNow().AsTime()) { // else it is who had it last
			duty.Holder = d.Holder
		}
		answer.Duties = append(answer.Duties, duty)
	}
	return answer, nil
}

// now is the database's time.
func (s *Server) now(ctx context.Context) (now time.Time, err error) {
	err = s.store.Snapshot(ctx, func(ctx context.Context, tx *store.Tx) error {
		now, err = tx.Clock(ctx)
		return err
	})
	return now, err
}

func todayToProto(t store.Today) *servov1.Today {
	return &servov1.Today{
		Day: t.Day.Format(time.DateOnly), CompletedRuns: t.Ended, FailedRuns: t.Failed, SlaBreaches: t.Breaches,
		PendingRuns: t.Pending, PendingAtLeast: t.Pending >= store.MaxDepth, RunningRuns: t.Running, RunningAtLeast: t.Running >= store.MaxDepth,
		AverageDuration: average(t.Seconds, t.Started),
	}
}
