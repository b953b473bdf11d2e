package api

import (
	"context"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	servov1 "go.arco.dev/servo/gen/servo/v1"
	"go.arco.dev/servo/internal/store"
)

// defaultActivityHours is the number of hours of a request that sets none.
const defaultActivityHours = 24

// GetActivity implements servov1.StatusServiceServer.
func (s statusService) GetActivity(ctx context.Context, req *servov1.GetActivityRequest) (*servov1.Activity, error) {
	owner, err := s.ownerOrAll(ctx, req.GetTenant())
	if err != nil {
		return nil, err
	}
	now, err := s.now(ctx)
	if err != nil {
		return nil, err
	}
	last, n := now.UTC().Truncate(time.Hour), int(req.GetHours())
	if n == 0 {
		n = defaultActivityHours
	}
	first := last.Add(time.Duration(1-n) * time.Hour)
	hours, err := s.store.Hours(ctx, owner, first, last)
	if err != nil {
		return nil, err
	}
	byStart := make(map[time.Time]store.Hour, len(hours))
	for _, h := range hours {
		byStart[h.At] = h
	}
	answer := &servov1.Activity{Tenant: req.GetTenant()}
	for at := first; !at.After(last); at = at.Add(time.Hour) {
		answer.Hours = append(answer.Hours, hourToProto(at, byStart[at]))
	}
	return answer, nil
}

// hourToProto maps an hour, which may be without activity.
func hourToProto(at time.Time, h store.Hour) *servov1.HourActivity {
	out := &servov1.HourActivity{
		Hour: timestamp(at), SucceededRuns: h.Succeeded, FailedRuns: h.Failed, TimedOutRuns: h.TimedOut, CancelledRuns: h.Cancelled,
		Breaches: h.Breaches, TotalDuration: inSeconds(h.Seconds), AverageDuration: average(h.Seconds, h.Started),
	}
	if h.Started > 0 {
		out.LongestStartDelay = inSeconds(h.Delay)
	}
	return out
}

// inSeconds returns a duration, rounded to the microsecond.
func inSeconds(n float64) *durationpb.Duration {
	return durationpb.New(time.Duration(n * float64(time.Second)).Round(time.Microsecond))
}
