package api

import (
	"context"
	"strings"
	"time"

	"github.com/google/uuid"
	"google.golang.org/protobuf/types/known/durationpb"

	servov1 "go.arco.dev/servo/gen/servo/v1"
	"go.arco.dev/servo/internal/base/id"
	"go.arco.dev/servo/internal/store"
)

// placePosition parses a position of a list that is ordered by a time and an id.
func placePosition(p page) (place store.RunPlace, err error) {
	if p.after == "" {
		return place, nil
	}
	at, text, _ := strings.Cut(p.after, " ")
	if place.At, err = time.Parse(time.RFC3339Nano, at); err == nil {
		place.Run, err = uuid.Parse(text)
	}
	if err != nil {
		return place, notAToken()
	}
	return place, nil
}

// placeText formats a position for placePosition.
func placeText(at time.Time, of uuid.UUID) string {
	return at.UTC().Format(time.RFC3339Nano) + " " + of.String()
}

// namedRun maps a run with the name of its tenant.
func (s *Server) namedRun(ctx context.Context) func(store.RunView) (*servov1.Run, error) {
	return func(r store.RunView) (*servov1.Run, error) {
		name, err := s.tenants.Name(ctx, r.Tenant)
		if err != nil {
			return nil, err
		}
		return runToProto(name, r)
	}
}

// ListLateRuns implements servov1.RunServiceServer.
func (s runService) ListLateRuns(ctx context.Context, req *servov1.ListLateRunsRequest) (*servov1.ListLateRunsResponse, error) {
	tenant, err := s.ownerOrAll(ctx, req.GetTenant())
	if err != nil {
		return nil, err
	}
	var now time.Time
	runs, next, err := list(req, func(p page) (late []store.RunView, err error) {
		after, err := placePosition(p)
		if err != nil {
			return nil, err
		}
		late, now, err = s.store.ListLateRuns(ctx, tenant, req.GetWorkspace(), after, p.size+1)
		return late, err
	}, func(r store.RunView) string { return placeText(r.StartBy, r.ID.UUID) }, sizeOfRun, func(r store.RunView) (*servov1.LateRun, error) {
		out, err := s.namedRun(ctx)(r)
		return &servov1.LateRun{Run: out, Delay: durationpb.New(now.Sub(r.StartBy))}, err
	})
	return &servov1.ListLateRunsResponse{Runs: runs, NextPageToken: next}, err
}

// ListRunningRuns implements servov1.RunServiceServer.
func (s runService) ListRunningRuns(ctx context.Context, req *servov1.ListRunningRunsRequest) (*servov1.ListRunningRunsResponse, error) {
	tenant, err := s.ownerOrAll(ctx, req.GetTenant())
	if err != nil {
		return nil, err
	}
	runs, next, err := list(req, func(p page) ([]store.RunningRun, error) {
		after, err := idPosition[id.Run](p)
		if err != nil {
			return nil, err
		}
		return s.store.RunningRuns(ctx, tenant, req.GetWorkspace(), after, p.size+1)
	}, func(r store.RunningRun) string { return r.ID.String() }, func(r store.RunningRun) int { return sizeOfRun(r.RunView) },
		func(r store.RunningRun) (out *servov1.RunningRun, err error) {
			out = &servov1.RunningRun{}
			if r.Task != nil {
				out.Task, out.Asset, out.Progress, out.ReportedAt = r.Task.String(), r.Asset, progressToProto(r.Progress), timestamp(r.Progress.UpdatedAt)
			}
			out.Run, err = s.namedRun(ctx)(r.RunView)
			return out, err
		})
	return &servov1.ListRunningRunsResponse{Runs: runs, NextPageToken: next}, err
}
