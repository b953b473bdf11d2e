package cli

import (
	"context"
	"fmt"
	"strings"

	"github.com/google/uuid"
	"github.com/spf13/cobra"

	"go.arco.dev/servo/client"
	servov1 "go.arco.dev/servo/gen/servo/v1"
	"go.arco.dev/servo/internal/fault"
	"go.arco.dev/servo/internal/suggest"
)

const (
	// latest names the newest run.
	latest = "latest"
	// shortID is how many letters of a run's id are enough to look for it.
	shortID = 8
	// recentRuns is among how many runs a short id is looked for.
	recentRuns = 100
	// knownTasks is among how many tasks a name that was probably meant is looked for.
	knownTasks = 500
)

// aboutRun makes a command one about the run that its first argument names.
func aboutRun(cmd *cobra.Command) {
	cmd.ValidArgsFunction = completion((*session).runNames)
	if cmd.Long == "" {
		cmd.Long = cmd.Short + "."
	}
	cmd.Long += fmt.Sprintf(`

RUN is an id that servo runs list shows, or at least its first %d letters; or %s: the
tenant's newest run, in the workspace if one is named.`, shortID, latest)
}

// findRun is the id of a run that was named by it, by its beginning if that is enough, or
// as the latest.
func (s *session) findRun(ctx context.Context, tenant, name string) (string, error) {
	if parsed, err := uuid.Parse(name); err == nil {
		return parsed.String(), nil
	}
	name = strings.ToLower(name)
	if name == latest {
		return s.latestRun(ctx, tenant)
	}
	if len(name) < shortID || strings.Trim(name, "0123456789abcdef-") != "" {
		return "", fault.New(fault.InvalidArgument, fmt.Sprintf("%q is no id of a run", name), fault.Field("RUN"),
			fault.Remedy(fmt.Sprintf("give the id that servo runs list shows, or at least its first %d letters; or %s", shortID, latest)))
	}
	recent, err := first(client.AllRuns(ctx, s.client, &servov1.ListRunsRequest{Tenant: tenant, PageSize: recentRuns}), recentRuns)
	if err != nil {
		return "", err
	}
	var found []string
	for _, run := range recent {
		if strings.HasPrefix(run.GetId(), name) {
			found = append(found, run.GetId())
		}
	}
	switch len(found) {
	case 0:
		return "", fault.New(fault.NotFound, fmt.Sprintf("none of the last %d runs begins with %s", recentRuns, name), fault.Field("RUN"),
			fault.Remedy("give the whole id, or another tenant"))
	case 1:
		return found[0], nil
	default:
		return "", fault.New(fault.InvalidArgument, fmt.Sprintf("%d runs begin with %s", len(found), name), fault.Field("RUN"),
			fault.Remedy("give more of the id: "+strings.Join(found[:min(len(found), 3)], ", ")))
	}
}

// latestRun is the id of the newest run. Which one that is, is said: it may be another than
// the one that was thought of.
func (s *session) latestRun(ctx context.Context, tenant string) (string, error) {
	answer, err := s.client.Runs().ListRuns(ctx, &servov1.ListRunsRequest{Tenant: tenant, Workspace: s.Workspace, PageSize: 1})
	if err != nil {
		return "", err
	}
	if len(answer.GetRuns()) == 0 {
		where := clean(tenant)
		if s.Workspace != "" {
			where += "/" + clean(s.Workspace)
		}
		return "", fault.New(fault.NotFound, where+" has no runs yet", fault.Field("RUN"), fault.Remedy("make one: servo runs trigger PIPELINE"+s.again()))
	}
	r := answer.GetRuns()[0]
	s.say("latest is run %s of %s", r.GetId(), pipelineName(r))
	return r.GetId(), nil
}

// findTask is the id of a task of a run that was named by it, or by its asset's key.
func (s *session) findTask(ctx context.Context, tenant, run, name string) (string, error) {
	if parsed, err := uuid.Parse(name); err == nil {
		return parsed.String(), nil
	}
	if !strings.Contains(name, "/") {
		return "", fault.New(fault.InvalidArgument, fmt.Sprintf("%q is neither a task's id nor an asset's key", name), fault.Field("TASK"),
			fault.Remedy("give an asset as namespace/name, or the id that servo tasks list shows"))
	}
	const some = 4
	found, err := first(client.AllTasks(ctx, s.client, &servov1.ListTasksRequest{Tenant: tenant, Run: run, Asset: name, PageSize: some}), some)
	if err != nil {
		return "", err
	}
	switch len(found) {
	case 0:
		all, err := first(client.AllTasks(ctx, s.client, &servov1.ListTasksRequest{Tenant: tenant, Run: run}), knownTasks)
		if err != nil {
			return "", err
		}
		var assets []string
		for _, t := range all {
			assets = append(assets, t.GetAsset())
		}
		return "", fault.New(fault.NotFound, "the run has no task of asset "+name+suggest.DidYouMean(name, assets), fault.Field("TASK"),
			fault.Remedy("see servo tasks list "+run))
	case 1:
		return found[0].GetId(), nil
	default:
		var ids []string
		for _, t := range found[:min(len(found), some-1)] {
			ids = append(ids, t.GetId()+" ("+taskName(t.GetAsset(), t.GetPartition())+")")
		}
		return "", fault.New(fault.InvalidArgument, "the run has several tasks of asset "+name, fault.Field("TASK"),
			fault.Remedy("give the id of one: "+strings.Join(ids, ", ")))
	}
}

// taskName is an asset's key with the partition, if there is one.
func taskName(asset, partition string) string {
	if partition == "" {
		return clean(asset)
	}
	return clean(asset) + "[" + clean(partition) + "]"
}

// tenantNames are for completion.
func (s *session) tenantNames(ctx context.Context) ([]string, error) {
	tenants, err := first(client.AllTenants(ctx, s.client, &servov1.ListTenantsRequest{}), recentRuns)
	var names []string
	for _, t := range tenants {
		names = append(names, t.GetName())
	}
	return names, err
}

// pipelineNames are for completion.
func (s *session) pipelineNames(ctx context.Context) ([]string, error) {
	tenant, err := s.requireTenant(ctx)
	if err != nil {
		return nil, err
	}
	pipelines, err := first(client.AllPipelines(ctx, s.client, &servov1.ListPipelinesRequest{Tenant: tenant, Workspace: s.Workspace}), recentRuns)
	var names []string
	for _, p := range pipelines {
		names = append(names, p.GetName()+"\t"+clean(p.GetDescription()))
	}
	return names, err
}

// runNames are for completion: the newest runs.
func (s *session) runNames(ctx context.Context) ([]string, error) {
	tenant, err := s.requireTenant(ctx)
	if err != nil {
		return nil, err
	}
	const some = 20
	runs, err := first(client.AllRuns(ctx, s.client, &servov1.ListRunsRequest{Tenant: tenant, Workspace: s.Workspace, PageSize: some}), some)
	var names []string
	for i, r := range runs {
		if i == 0 {
			names = append(names, latest+"\tthe newest: "+r.GetPipeline()+" "+r.GetState().String())
		}
		names = append(names, r.GetId()+"\t"+r.GetPipeline()+" "+r.GetState().String())
	}
	return names, err
}
