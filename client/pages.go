package client

import (
	"context"
	"iter"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"

	servov1 "go.arco.dev/servo/gen/servo/v1"
)

// pageSize is the default size of pages.
const pageSize = 100

// page is an answer that has another after it.
type page interface{ GetNextPageToken() string }

// all reads the pages of a list, one when it is needed. The request is left as it was.
func all[Request proto.Message, Page page, Item any](
	ctx context.Context,
	req Request,
	at func(Request) (size *int32, token *string),
	list func(context.Context, Request, ...grpc.CallOption) (Page, error),
	items func(Page) []Item,
) iter.Seq2[Item, error] {
	return func(yield func(Item, error) bool) {
		var none Item
		req := proto.CloneOf(req)
		size, token := at(req)
		if *size == 0 {
			*size = pageSize
		}
		for {
			answer, err := list(ctx, req)
			if err != nil {
				yield(none, err)
				return
			}
			for _, item := range items(answer) {
				if !yield(item, nil) {
					return
				}
			}
			next := answer.GetNextPageToken()
			if next == "" {
				return
			}
			if next == *token { // an endless loop
				yield(none, &Problem{Code: Internal, Message: "the server returned the same page twice"})
				return
			}
			*token = next
		}
	}
}

// AllWorkers reads all workers that were seen lately, page by page.
func AllWorkers(ctx context.Context, c *Client, req *servov1.ListWorkersRequest) iter.Seq2[*servov1.Worker, error] {
	return all(ctx, req, func(r *servov1.ListWorkersRequest) (size *int32, token *string) { return &r.PageSize, &r.PageToken },
		c.Workers().ListWorkers, (*servov1.ListWorkersResponse).GetWorkers)
}

// AllTenants reads all tenants, page by page.
func AllTenants(ctx context.Context, c *Client, req *servov1.ListTenantsRequest) iter.Seq2[*servov1.Tenant, error] {
	return all(ctx, req, func(r *servov1.ListTenantsRequest) (*int32, *string) { return &r.PageSize, &r.PageToken },
		c.Tenants().ListTenants, (*servov1.ListTenantsResponse).GetTenants)
}

// AllDeployments reads all deployments, the newest first.
func AllDeployments(ctx context.Context, c *Client, req *servov1.ListDeploymentsRequest) iter.Seq2[*servov1.Deployment, error] {
	return all(ctx, req, func(r *servov1.ListDeploymentsRequest) (*int32, *string) { return &r.PageSize, &r.PageToken },
		c.Deployments().ListDeployments, (*servov1.ListDeploymentsResponse).GetDeployments)
}

// AllReleases reads all releases, the newest first.
func AllReleases(ctx context.Context, c *Client, req *servov1.ListReleasesRequest) iter.Seq2[*servov1.Release, error] {
	return all(ctx, req, func(r *servov1.ListReleasesRequest) (*int32, *string) { return &r.PageSize, &r.PageToken },
		c.Releases().ListReleases, (*servov1.ListReleasesResponse).GetReleases)
}

// AllAssets reads all assets of a workspace by key.
func AllAssets(ctx context.Context, c *Client, req *servov1.ListAssetsRequest) iter.Seq2[*servov1.Asset, error] {
	return all(ctx, req, func(r *servov1.ListAssetsRequest) (*int32, *string) { return &r.PageSize, &r.PageToken },
		c.Assets().ListAssets, (*servov1.ListAssetsResponse).GetAssets)
}

// AllBackfills reads all backfills that the request's filter lets pass, the newest first.
func AllBackfills(ctx context.Context, c *Client, req *servov1.ListBackfillsRequest) iter.Seq2[*servov1.Backfill, error] {
	return all(ctx, req, func(r *servov1.ListBackfillsRequest) (*int32, *string) { return &r.PageSize, &r.PageToken },
		c.Backfills().ListBackfills, (*servov1.ListBackfillsResponse).GetBackfills)
}

// AllPipelines reads all pipelines of a workspace.
func AllPipelines(ctx context.Context, c *Client, req *servov1.ListPipelinesRequest) iter.Seq2[*servov1.Pipeline, error] {
	return all(ctx, req, func(r *servov1.ListPipelinesRequest) (*int32, *string) { return &r.PageSize, &r.PageToken },
		c.Assets().ListPipelines, (*servov1.ListPipelinesResponse).GetPipelines)
}

// AllRuns reads all runs that the request's filter lets pass, the newest first.
func AllRuns(ctx context.Context, c *Client, req *servov1.ListRunsRequest) iter.Seq2[*servov1.Run, error] {
	return all(ctx, req, func(r *servov1.ListRunsRequest) (*int32, *string) { return &r.PageSize, &r.PageToken },
		c.Runs().ListRuns, (*servov1.ListRunsResponse).GetRuns)
}

// AllLateRuns reads all runs that should have begun and have not, the longest delay first.
func AllLateRuns(ctx context.Context, c *Client, req *servov1.ListLateRunsRequest) iter.Seq2[*servov1.LateRun, error] {
	return all(ctx, req, func(r *servov1.ListLateRunsRequest) (*int32, *string) { return &r.PageSize, &r.PageToken },
		c.Runs().ListLateRuns, (*servov1.ListLateRunsResponse).GetRuns)
}

// AllRunningRuns reads all runs that have started and not ended, the oldest first.
func AllRunningRuns(ctx context.Context, c *Client, req *servov1.ListRunningRunsRequest) iter.Seq2[*servov1.RunningRun, error] {
	return all(ctx, req, func(r *servov1.ListRunningRunsRequest) (*int32, *string) { return &r.PageSize, &r.PageToken },
		c.Runs().ListRunningRuns, (*servov1.ListRunningRunsResponse).GetRuns)
}

// AllRunEvents reads what is recorded about a run so far. WatchRun also waits for the rest.
func AllRunEvents(ctx context.Context, c *Client, req *servov1.ListRunEventsRequest) iter.Seq2[*servov1.Event, error] {
	return all(ctx, req, func(r *servov1.ListRunEventsRequest) (*int32, *string) { return &r.PageSize, &r.PageToken },
		c.Runs().ListRunEvents, (*servov1.ListRunEventsResponse).GetEvents)
}

// AllTasks reads all tasks of a run in the order of its plan.
func AllTasks(ctx context.Context, c *Client, req *servov1.ListTasksRequest) iter.Seq2[*servov1.Task, error] {
	return all(ctx, req, func(r *servov1.ListTasksRequest) (*int32, *string) { return &r.PageSize, &r.PageToken },
		c.Tasks().ListTasks, (*servov1.ListTasksResponse).GetTasks)
}

// AllUpstreamTasks reads all tasks that a task waits for.
func AllUpstreamTasks(ctx context.Context, c *Client, req *servov1.ListUpstreamTasksRequest) iter.Seq2[*servov1.UpstreamTask, error] {
	return all(ctx, req, func(r *servov1.ListUpstreamTasksRequest) (*int32, *string) { return &r.PageSize, &r.PageToken },
		c.Tasks().ListUpstreamTasks, (*servov1.ListUpstreamTasksResponse).GetTasks)
}

// TaskLogs returns the log chunks of an attempt in pages of at least one chunk. With a pace it polls at
// that pace until the attempt ends; with 0 it ends with the current logs.
func TaskLogs(ctx context.Context, c *Client, req *servov1.ListTaskLogsRequest, pace time.Duration) iter.Seq2[*servov1.ListTaskLogsResponse, error] {
	return func(yield func(*servov1.ListTaskLogsResponse, error) bool) {
		req := proto.CloneOf(req)
		if req.PageSize == 0 {
			req.PageSize = pageSize
		}
		for {
			answer, err := c.Tasks().ListTaskLogs(ctx, req)
			if err != nil {
				yield(nil, err)
				return
			}
			if len(answer.GetChunks()) > 0 && !yield(answer, nil) {
				return
			}
			next := answer.GetNextPageToken()
			if next == "" {
				return
			}
			if answer.GetAttempt() > 0 {
				req.Attempt = answer.GetAttempt() // a later one does not take its place
			}
			req.PageToken = next
			if len(answer.GetChunks()) > 0 {
				continue
			}
			if pace <= 0 {
				return
			}
			if !pause(ctx, pace) {
				yield(nil, problemOf(contextError(ctx)))
				return
			}
		}
	}
}

// AllLocks reads all locks of a tenant by key.
func AllLocks(ctx context.Context, c *Client, req *servov1.ListLocksRequest) iter.Seq2[*servov1.Lock, error] {
	return all(ctx, req, func(r *servov1.ListLocksRequest) (*int32, *string) { return &r.PageSize, &r.PageToken },
		c.Locks().ListLocks, (*servov1.ListLocksResponse).GetLocks)
}

// AllAlerts reads all alerts that the request's filter lets pass, the newest first.
func AllAlerts(ctx context.Context, c *Client, req *servov1.ListAlertsRequest) iter.Seq2[*servov1.Alert, error] {
	return all(ctx, req, func(r *servov1.ListAlertsRequest) (*int32, *string) { return &r.PageSize, &r.PageToken },
		c.Alerts().ListAlerts, (*servov1.ListAlertsResponse).GetAlerts)
}

// AllKeys reads all keys that the request's filter lets pass, the newest first.
func AllKeys(ctx context.Context, c *Client, req *servov1.ListKeysRequest) iter.Seq2[*servov1.Key, error] {
	return all(ctx, req, func(r *servov1.ListKeysRequest) (*int32, *string) { return &r.PageSize, &r.PageToken },
		c.Keys().ListKeys, (*servov1.ListKeysResponse).GetKeys)
}

// AllAudit reads all calls of the audit that the request's filter lets pass, the newest first.
func AllAudit(ctx context.Context, c *Client, req *servov1.ListAuditRequest) iter.Seq2[*servov1.AuditEntry, error] {
	return all(ctx, req, func(r *servov1.ListAuditRequest) (*int32, *string) { return &r.PageSize, &r.PageToken },
		c.Audit().ListAudit, (*servov1.ListAuditResponse).GetEntries)
}

// AllConfigs reads all configs that the request's filter lets pass, the oldest first.
func AllConfigs(ctx context.Context, c *Client, req *servov1.ListConfigsRequest) iter.Seq2[*servov1.Config, error] {
	return all(ctx, req, func(r *servov1.ListConfigsRequest) (*int32, *string) { return &r.PageSize, &r.PageToken },
		c.Configs().ListConfigs, (*servov1.ListConfigsResponse).GetConfigs)
}

// AllConfigAudit reads all that was done to a config, the newest first.
func AllConfigAudit(ctx context.Context, c *Client, req *servov1.ListConfigAuditRequest) iter.Seq2[*servov1.ConfigAudit, error] {
	return all(ctx, req, func(r *servov1.ListConfigAuditRequest) (*int32, *string) { return &r.PageSize, &r.PageToken },
		c.Configs().ListConfigAudit, (*servov1.ListConfigAuditResponse).GetEntries)
}

// AllSlots reads what became of the slots of a config, the newest first.
func AllSlots(ctx context.Context, c *Client, req *servov1.ListSlotsRequest) iter.Seq2[*servov1.Slots, error] {
	return all(ctx, req, func(r *servov1.ListSlotsRequest) (*int32, *string) { return &r.PageSize, &r.PageToken },
		c.Configs().ListSlots, (*servov1.ListSlotsResponse).GetSlots)
}
