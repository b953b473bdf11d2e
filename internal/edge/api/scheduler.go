package api

import (
	"cmp"
	"context"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	servov1 "go.arco.dev/servo/gen/servo/v1"
	"go.arco.dev/servo/internal/engine"
)

// schedulerService implements servo.v1.SchedulerService.
type schedulerService struct{ *Server }

// defaultTick is the default of max_processing_time.
const defaultTick = 600 * time.Second

// Tick implements servov1.SchedulerServiceServer. Like the scheduler
// loop it folds results of runs into their configs, creates the runs of external events, then fires due
// slots.
func (s schedulerService) Tick(ctx context.Context, req *servov1.TickRequest) (*servov1.TickResponse, error) {
	began := time.Now()
	batch := cmp.Or(int(req.GetBatchSize()), engine.DefaultFiring)
	until := began.Add(cmp.Or(req.GetMaxProcessingTime().AsDuration(), defaultTick))
	answer := &servov1.TickResponse{}
	for more := true; more; more = more && time.Now().Before(until) && s.closing.Err() == nil {
		taken, err := s.engine.FoldResults(ctx, batch)
		if err != nil {
			return nil, err
		}
		handled, err := s.engine.HandleEvents(ctx, batch)
		if err != nil {
			return nil, err
		}
		fired, err := s.engine.FireDue(ctx, batch)
		if err != nil {
			return nil, err
		}
		answer.ConfigsProcessed += int64(fired.Configs)
		answer.RunsCreated += int64(fired.Runs + handled.Runs)
		// A round without a run and below its bounds has decided all due slots.
		more = taken == batch || handled.More || fired.More || fired.Runs > 0
	}
	answer.ProcessingTime = durationpb.New(time.Since(began))
	return answer, nil
}
