package cli

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/spf13/cobra"
	"google.golang.org/protobuf/types/known/timestamppb"

	"go.arco.dev/servo/client"
	servov1 "go.arco.dev/servo/gen/servo/v1"
	"go.arco.dev/servo/internal/base/fault"
	"go.arco.dev/servo/internal/base/suggest"
)

const (
	// latest names the newest run.
	latest = "latest"
	// shortID is how many letters of an id are enough to look for it, at either end.
	shortID = 6
	// timedID is how many letters of an id tell when it was made, to a minute.
	timedID = 8
	// recentRuns is among how many runs the end of an id is looked for.
	recentRuns = 1000
	// offeredNames is how many names are offered to a shell.
	offeredNames = 100
	// knownTasks is among how many tasks a name that was probably meant is looked for.
	knownTasks = 500
)

// aboutRun makes a command one about the run that its first argument names.
func aboutRun(cmd *cobra.Command) {
	cmd.ValidArgsFunction = completion((*session).runNames, (*session).assetNames)
	if cmd.Long == "" {
		cmd.Long = cmd.Short + "."
	}
	cmd.Long += fmt.Sprintf(`

RUN is an id that servo runs list shows, or its last %d letters or more, or its first ones as
far as they are unique; or %s: the tenant's newest run, in the workspace if one is named.`, shortID, latest)
}

// findRun is the id of a run that was named by it, by one of its ends if that is enough, or
// as the latest.
func (s *session) findRun(ctx context.Context, tenant, name string) (string, error) {
	if parsed, err := uuid.Parse(name); err == nil {
		return parsed.String(), nil
	}
	name = strings.ToLower(name)
	if name == latest {
		return s.latestRun(ctx, tenant)
	}
	if !partOfID(name) {
		return "", fault.New(fault.InvalidArgument, fmt.Sprintf("%q is no id of a run", name), fault.Field("RUN"),
			fault.Remedy(fmt.Sprintf("give the id that servo runs list shows, or its last %d letters or more; or %s", shortID, latest)))
	}
	var ids []string
	look := func(req *servov1.ListRunsRequest) error {
		runs, err := first(client.AllRuns(ctx, s.client, req), recentRuns)
		for _, r := range runs {
			ids = append(ids, r.GetId())
		}
		return err
	}
	if from, to, ok := timesOf(name); ok { // when it was made: however long ago that is
		if err := look(&servov1.ListRunsRequest{Tenant: tenant, From: from, To: to, PageSize: pageSize(0)}); err != nil {
			return "", err
		}
	}
	if err := look(&servov1.ListRunsRequest{Tenant: tenant, PageSize: pageSize(0)}); err != nil {
		return "", err
	}
	return oneOf("RUN", "run", name, ids, fmt.Sprintf("give the whole id, or another tenant; the end of an id is looked for among the last %d runs", recentRuns))
}

// partOfID says that a text can be the beginning or the end of an id.
func partOfID(text string) bool {
	return len(plainID(text)) >= shortID && strings.Trim(text, "0123456789abcdef-") == ""
}

// plainID is an id without its dashes.
func plainID(text string) string { return strings.ReplaceAll(text, "-", "") }

// timesOf are the times between which ids are made that begin so: the first 12 letters of an id
// are milliseconds. ok is false for a beginning that says nearly nothing.
func timesOf(beginning string) (from, to *timestamppb.Timestamp, ok bool) {
	const letters = 12
	digits := plainID(beginning)
	if len(digits) < timedID {
		return nil, nil, false
	}
	digits = digits[:min(len(digits), letters)]
	fill := func(with string) (time.Time, error) {
		millis, err := strconv.ParseInt(digits+strings.Repeat(with, letters-len(digits)), 16, 64)
		return time.UnixMilli(millis), err
	}
	early, err := fill("0")
	if err != nil {
		return nil, nil, false
	}
	late, err := fill("f")
	const years = 8000 // past which a timestamp cannot be sent
	if err != nil || late.Year() > years {
		return nil, nil, false
	}
	return timestamppb.New(early), timestamppb.New(late.Add(time.Millisecond)), true
}

// oneOf is the id that begins or ends with a part of it, if there is one such.
func oneOf(field, noun, part string, ids []string, remedy string) (string, error) {
	slices.Sort(ids)
	part = plainID(part)
	var found []string
	for _, one := range slices.Compact(ids) {
		if plain := plainID(one); strings.HasPrefix(plain, part) || strings.HasSuffix(plain, part) {
			found = append(found, one)
		}
	}
	switch len(found) {
	case 0:
		return "", fault.New(fault.NotFound, fmt.Sprintf("no %s begins or ends with %s", noun, part), fault.Field(field), fault.Remedy(remedy))
	case 1:
		return found[0], nil
	}
	const some = 3
	tails := uniqueTails(found)
	return "", fault.New(fault.InvalidArgument, fmt.Sprintf("%d %ss begin or end with %s", len(found), noun, part), fault.Field(field),
		fault.Remedy("use the end of one: "+strings.Join(tails[:min(len(tails), some)], ", ")))
}

// uniqueTails are the shortest ends that tell ids apart, all of one length. They are the ends that
// differ: ids made within a minute begin alike.
func uniqueTails(ids []string) []string {
	for n := shortID; ; n++ {
		seen := map[string]bool{}
		var tails []string
		for _, one := range ids {
			tail := one[max(0, len(one)-n):]
			seen[tail] = true
			tails = append(tails, tail)
		}
		if len(seen) == len(ids) || n > len(uuid.UUID{})*3 {
			return tails
		}
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
	if lower := strings.ToLower(name); partOfID(lower) {
		all, err := first(client.AllTasks(ctx, s.client, &servov1.ListTasksRequest{Tenant: tenant, Run: run}), recentRuns)
		if err != nil {
			return "", err
		}
		var ids []string
		for _, t := range all {
			ids = append(ids, t.GetId())
		}
		return oneOf("TASK", "task", lower, ids, "see servo tasks list "+run)
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
	tenants, err := first(client.AllTenants(ctx, s.client, &servov1.ListTenantsRequest{}), offeredNames)
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
	pipelines, err := first(client.AllPipelines(ctx, s.client, &servov1.ListPipelinesRequest{Tenant: tenant, Workspace: s.Workspace}), offeredNames)
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

// assetNames are for completion.
func (s *session) assetNames(ctx context.Context) ([]string, error) {
	tenant, err := s.requireTenant(ctx)
	if err != nil {
		return nil, err
	}
	assets, err := first(client.AllAssets(ctx, s.client, &servov1.ListAssetsRequest{Tenant: tenant, Workspace: s.Workspace}), offeredNames)
	var names []string
	for _, a := range assets {
		names = append(names, a.GetKey()+"\t"+kindOf(a.GetCode()))
	}
	return names, err
}
