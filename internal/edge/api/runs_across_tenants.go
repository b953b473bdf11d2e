package api

import (
	"context"
	"strings"
	"time"

	"github.com/google/uuid"
	"google.golang.org/protobuf/types/known/durationpb"

	servov1 "go.arco.dev/servo/gen/servo/v1"
	"go.arco.dev/servo/internal/base/fault"
	"go.arco.dev/servo/internal/base/id"
	"go.arco.dev/servo/internal/edge/intercept"
	"go.arco.dev/servo/internal/store"
)

// placePosition reads a position of a list that is ordered by a time and an id.
func placePosition(p page) (place store.RunPlace, err error) {
	if p.after == "" {
		return place, nil
	}
	at, text, _ := strings.Cut(p.after, " ")
	if place.At, err = time.Parse(time.RFC3339Nano, at); err == nil {
		place.Run, err = uuid.Parse(text)
	}
	if err != nil {
		return place, intercept.BadPageToken("is not a page token")
	}
	return place, nil
}

// placeText writes what placePosition reads.
func placeText(at time.Time, of uuid.UUID) string {
	return at.UTC().Format(time.RFC3339Nano) + " " + of.String()
}

// needsTenant refuses a filter that is about one tenant where none is named.
func needsTenant(field string) error {
	return fault.New(fault.InvalidArgument, "is of one tenant, and none is named", fault.Field(field), fault.Remedy("name the tenant, or leave this out"))
}

// listAllRuns lists the runs of all tenants.
func (s runService) listAllRuns(ctx context.Context, req *servov1.ListRunsRequest) (*servov1.ListRunsResponse, error) {
	switch {
	case req.GetConfig() != "":
		return nil, needsTenant("config")
	case req.GetParentRun() != "":
		return nil, needsTenant("parent_run")
	}
	page, err := pageOf(req)
	if err != nil {
		return nil, err
	}
	before, err := placePosition(page)
	if err != nil {
		return nil, err
	}
	filter, err := runFilter(req)
	if err != nil {
		return nil, err
	}
	runs, next, err := s.store.ListAllRuns(ctx, filter, before, page.size)
	if err != nil {
		return nil, err
	}
	answer := &servov1.ListRunsResponse{}
	if next != nil {
		answer.NextPageToken = page.next(placeText(next.At, next.Run))
	}
	shown, cutAt := cut(page, runs, func(r store.RunView) int { return len(r.Parameters) },
		func(r store.RunView) string { return placeText(r.CreatedAt, r.ID.UUID) })
	if cutAt != "" {
		answer.NextPageToken = cutAt
	}
	for _, r := range shown {
		out, err := s.namedRun(ctx, r)
		if err != nil {
			return nil, err
		}
		answer.Runs = append(answer.Runs, out)
	}
	return answer, nil
}

// namedRun is a run with the name of its tenant.
func (s *Server) namedRun(ctx context.Context, r store.RunView) (*servov1.Run, error) {
	name, err := s.tenants.Name(ctx, r.Tenant)
	if err != nil {
		return nil, err
	}
	return runToProto(name, r)
}

// ListLateRuns implements servov1.RunServiceServer.
func (s runService) ListLateRuns(ctx context.Context, req *servov1.ListLateRunsRequest) (*servov1.ListLateRunsResponse, error) {
	tenant, err := s.ownerOrAll(ctx, req.GetTenant())
	if err != nil {
		return nil, err
	}
	page, err := pageOf(req)
	if err != nil {
		return nil, err
	}
	after, err := placePosition(page)
	if err != nil {
		return nil, err
	}
	late, now, err := s.store.ListLateRuns(ctx, tenant, req.GetWorkspace(), after, page.size+1)
	if err != nil {
		return nil, err
	}
	answer := &servov1.ListLateRunsResponse{}
	late, answer.NextPageToken = cut(page, late, func(r store.RunView) int { return len(r.Parameters) },
		func(r store.RunView) string { return placeText(r.StartBy, r.ID.UUID) })
	for _, r := range late {
		out, err := s.namedRun(ctx, r)
		if err != nil {
			return nil, err
		}
		answer.Runs = append(answer.Runs, &servov1.LateRun{Run: out, Delay: durationpb.New(now.Sub(r.StartBy))})
	}
	return answer, nil
}

// ListRunningRuns implements servov1.RunServiceServer.
func (s runService) ListRunningRuns(ctx context.Context, req *servov1.ListRunningRunsRequest) (*servov1.ListRunningRunsResponse, error) {
	tenant, err := s.ownerOrAll(ctx, req.GetTenant())
	if err != nil {
		return nil, err
	}
	page, err := pageOf(req)
	if err != nil {
		return nil, err
	}
	after, err := idPosition[id.Run](page)
	if err != nil {
		return nil, err
	}
	running, err := s.store.RunningRuns(ctx, tenant, req.GetWorkspace(), after, page.size+1)
	if err != nil {
		return nil, err
	}
	answer := &servov1.ListRunningRunsResponse{}
	running, answer.NextPageToken = cut(page, running, func(r store.RunningRun) int { return len(r.Parameters) },
		func(r store.RunningRun) string { return r.ID.String() })
	for _, r := range running {
		out := &servov1.RunningRun{}
		if out.Run, err = s.namedRun(ctx, r.RunView); err != nil {
			return nil, err
		}
		if r.Task != nil {
			out.Task, out.Asset, out.Progress, out.ReportedAt = r.Task.String(), r.Asset, progressToProto(r.Progress), timestamp(r.Progress.UpdatedAt)
		}
		answer.Runs = append(answer.Runs, out)
	}
	return answer, nil
}
