package web

import (
	"time"

	"golang.org/x/sync/errgroup"
	"google.golang.org/protobuf/types/known/timestamppb"

	servov1 "go.arco.dev/servo/gen/servo/v1"
	"go.arco.dev/servo/internal/domain/access"
	"go.arco.dev/servo/internal/edge/web/view"
)

// rowsOfCard is the number of rows of a card of the overview.
const rowsOfCard = 6

// overview shows late, failed and running runs, alerts and queues.
func (s *Web) overview(v *visit) (view.Page, error) {
	m := view.OverviewModel{Scope: v.scope, Platform: v.everywhere()}
	tenant, workspace := v.scope.Tenant, v.scope.Workspace
	parts, ctx := errgroup.WithContext(v.ctx)
	parts.SetLimit(3) // leaves connections for other requests
	parts.Go(func() error {
		list, err := s.api.runs.ListLateRuns(ctx, &servov1.ListLateRunsRequest{Tenant: tenant, Workspace: workspace, PageSize: rowsOfCard})
		m.Late, m.MoreLate = list.GetRuns(), list.GetNextPageToken() != ""
		return err
	})
	parts.Go(func() error {
		list, err := s.api.runs.ListRunningRuns(ctx, &servov1.ListRunningRunsRequest{Tenant: tenant, Workspace: workspace, PageSize: rowsOfCard})
		m.Running = list.GetRuns()
		return err
	})
	parts.Go(func() error {
		list, err := s.api.runs.ListRuns(ctx, &servov1.ListRunsRequest{
			Tenant: tenant, Workspace: workspace, State: failedStates(), PageSize: rowsOfCard,
			From: timestamppb.New(v.now.Add(-24 * time.Hour).Truncate(time.Minute)),
		})
		m.Failed = list.GetRuns()
		return err
	})
	if v.may(access.AlertsRead) && !v.scope.WorkspaceFixed {
		parts.Go(func() error {
			list, err := s.api.alerts.ListAlerts(ctx, &servov1.ListAlertsRequest{Tenant: tenant, AllTenants: tenant == "", Open: true, PageSize: rowsOfCard})
			m.Alerts = list.GetAlerts()
			return err
		})
	}
	if m.Platform {
		parts.Go(func() (err error) {
			m.Status, err = s.api.status.GetStatus(ctx, &servov1.GetStatusRequest{})
			return err
		})
		parts.Go(func() error {
			list, err := s.api.fairness.ListShares(ctx, &servov1.ListSharesRequest{Tenant: tenant})
			m.Queues = view.QueuesOf(list.GetShares())
			return err
		})
	}
	if !v.scope.WorkspaceFixed {
		parts.Go(func() (err error) {
			m.Activity, err = s.api.status.GetActivity(ctx, &servov1.GetActivityRequest{Tenant: tenant})
			return err
		})
	}
	if tenant != "" && !v.scope.WorkspaceFixed {
		parts.Go(func() (err error) {
			today := v.now.UTC().Format(time.DateOnly)
			m.Metrics, err = s.api.metrics.GetTenantMetrics(ctx, &servov1.GetTenantMetricsRequest{Tenant: tenant, From: today, To: today})
			return err
		})
	}
	if err := parts.Wait(); err != nil {
		return view.Page{}, err
	}
	return view.Page{Title: "Overview", Section: "overview", Live: true, Body: view.Overview(m)}, nil
}
