package api

import (
	"context"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/structpb"

	servov1 "go.arco.dev/servo/gen/servo/v1"
	"go.arco.dev/servo/internal/base/event"
	"go.arco.dev/servo/internal/base/telemetry"
	"go.arco.dev/servo/internal/domain/run"
	"go.arco.dev/servo/internal/edge/intercept"
	"go.arco.dev/servo/internal/store"
)

// ListRunEvents implements servov1.RunServiceServer.
func (s runService) ListRunEvents(ctx context.Context, req *servov1.ListRunEventsRequest) (*servov1.ListRunEventsResponse, error) {
	key, err := s.runKey(ctx, req)
	if err != nil {
		return nil, err
	}
	events, next, err := scan(req, func(p page) ([]store.RunEvent, string, error) {
		after, err := store.ParseEventCursor("page_token", p.after)
		if err != nil {
			return nil, "", err
		}
		read, err := s.store.RunEvents(ctx, key, after, p.size)
		if err != nil || !read.More {
			return read.Events, "", err
		}
		return read.Events, read.Next.String(), nil
	}, func(e store.RunEvent) string { return e.Cursor.String() }, func(e store.RunEvent) int { return len(e.Data) }, eventToProto)
	return &servov1.ListRunEventsResponse{Events: events, NextPageToken: next}, err
}

// publish turns recorded data into public data: with names of states, and without the tokens that prove
// a lease.
func publish(kind event.Type, data *structpb.Struct) {
	switch kind {
	case run.RunEnded{}.EventType():
		state := run.State(data.GetFields()["state"].GetNumberValue())
		data.Fields["state"] = structpb.NewStringValue(state.String())
	case run.TaskClaimed{}.EventType():
		delete(data.GetFields(), "token")
		delete(data.GetFields(), "claim")
	}
}

func eventToProto(e store.RunEvent) (*servov1.Event, error) {
	data, err := structOf(e.Data)
	if err != nil {
		return nil, err
	}
	publish(e.Type, data)
	out := &servov1.Event{
		Id: e.Cursor.String(), Type: string(e.Type), Version: e.Version, RecordedAt: timestamp(e.At),
		Actor: e.Meta.Actor, Trace: telemetry.ID(e.Meta.Trace), Data: data,
	}
	if e.Task {
		out.Task = e.Subject.String()
	}
	return out, nil
}

// The pace of a watch.
const (
	watchBatch = 500
	// After a signal the events may be held back for a moment by transactions that are under
	// way: they are looked for again soon, then less and less often.
	watchSoon = 10 * time.Millisecond
	watchPoll = time.Second
	// A read costs what the run has recorded. However often a run changes, no more than this
	// share of the time is spent reading it: one part in ten.
	watchRest = 10
)

// WatchRun implements servov1.RunServiceServer.
func (s runService) WatchRun(req *servov1.WatchRunRequest, stream grpc.ServerStreamingServer[servov1.WatchRunResponse]) error {
	ctx := stream.Context()
	key, err := s.runKey(ctx, req)
	if err != nil {
		return err
	}
	place, err := store.ParseEventCursor("after", req.GetAfter())
	if err != nil {
		return err
	}
	patience := watchSoon
	for {
		changed, stop := s.engine.RunChanged(key.Run) // first the signal, then the look: none is lost
		began := time.Now()
		read, err := s.store.RunEvents(ctx, key, place, watchBatch)
		took := time.Since(began)
		if err == nil {
			err = sendEvents(stream, read.Events)
		}
		if err != nil || read.Done {
			stop()
			if err != nil {
				return err
			}
			return s.sendEnd(req.GetTenant(), key, stream)
		}
		place = read.Next
		if len(read.Events) > 0 {
			patience = watchSoon
		}
		if read.More {
			stop()
			if s.closing.Err() != nil {
				return intercept.Stopping()
			}
			continue
		}
		signalled, err := s.pause(ctx, changed, took*watchRest, patience)
		stop()
		if err != nil {
			return err
		}
		if patience *= 2; signalled {
			patience = watchSoon
		}
		patience = min(patience, watchPoll)
	}
}

// pause waits for a signal, at most for patience, and at least for rest.
func (s *Server) pause(ctx context.Context, changed <-chan struct{}, rest, patience time.Duration) (signalled bool, err error) {
	resting, waiting := time.NewTimer(rest), time.NewTimer(max(rest, patience))
	defer resting.Stop()
	defer waiting.Stop()
	for rested := false; !rested || !signalled; {
		select {
		case <-changed:
			signalled, changed = true, nil
		case <-resting.C:
			rested = true
		case <-waiting.C:
			return signalled, nil
		case <-ctx.Done():
			return false, ctx.Err()
		case <-s.closing.Done():
			return false, intercept.Stopping()
		}
	}
	return signalled, nil
}

func sendEvents(stream grpc.ServerStreamingServer[servov1.WatchRunResponse], events []store.RunEvent) error {
	for _, e := range events {
		out, err := eventToProto(e)
		if err != nil {
			return err
		}
		if err := stream.Send(&servov1.WatchRunResponse{Message: &servov1.WatchRunResponse_Event{Event: out}}); err != nil {
			return err
		}
	}
	return nil
}

// sendEnd sends the run as it ended.
func (s runService) sendEnd(tenant string, key store.RunKey, stream grpc.ServerStreamingServer[servov1.WatchRunResponse]) error {
	ended, err := s.readRun(stream.Context(), tenant, key)
	if err != nil {
		return err
	}
	return stream.Send(&servov1.WatchRunResponse{Message: &servov1.WatchRunResponse_End{End: ended}})
}
