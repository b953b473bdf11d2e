package cli

import (
	"cmp"
	"context"
	"fmt"
	"iter"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"
	"google.golang.org/protobuf/types/known/timestamppb"

	"go.arco.dev/servo/client"
	servov1 "go.arco.dev/servo/gen/servo/v1"
	"go.arco.dev/servo/internal/base/fault"
	"go.arco.dev/servo/internal/base/suggest"
	divided "go.arco.dev/servo/internal/domain/partition"
)

const (
	// latest names the newest run.
	latest = "latest"
	// shortID is the number of characters of an id, at either end, that find it.
	shortID = 6
	// timedID is the number of characters of an id that determine its minute.
	timedID = 8
	// recentRuns is the number of runs that are searched for the end of an id.
	recentRuns = 1000
	// offeredNames is the number of names that are offered to a shell.
	offeredNames = 100
	// knownTasks is the number of tasks that are searched for a similar name.
	knownTasks = 500
)

// ofRun describes a command about the run that its first argument names.
func ofRun(c spec) spec {
	c.tenant = true
	c.names = []nameSource{(*session).runNames, (*session).assetNames}
	c.long = cmp.Or(c.long, c.short+".") + fmt.Sprintf(`

RUN is an id that servo runs list shows, its last %d characters or more, or its first ones as
far as they are unique; or %s: the tenant's newest run, in the workspace if --workspace is set.`, shortID, latest)
	return c
}

// findRun returns the id of a run that is given by its id, a unique beginning or end of it, or as
// latest.
func (s *session) findRun(ctx context.Context, name string) (string, error) {
	if parsed, err := uuid.Parse(name); err == nil {
		return parsed.String(), nil
	}
	name = strings.ToLower(name)
	if name == latest {
		return s.latestRun(ctx)
	}
	if !partOfID(name) {
		return "", fault.New(fault.InvalidArgument, fmt.Sprintf("invalid run id %q", name), fault.Field("RUN"),
			fault.Remedy(fmt.Sprintf("use an id that servo runs list shows, its last %d characters or more, or %s", shortID, latest)))
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
		if err := look(&servov1.ListRunsRequest{Tenant: s.Tenant, From: from, To: to, PageSize: pageSize(0)}); err != nil {
			return "", err
		}
	}
	if err := look(&servov1.ListRunsRequest{Tenant: s.Tenant, PageSize: pageSize(0)}); err != nil {
		return "", err
	}
	return oneOf("RUN", "run", name, ids, fmt.Sprintf("use the whole id, or another tenant; the end of an id is searched among the last %d runs", recentRuns))
}

// partOfID reports whether a text can be the beginning or the end of an id.
func partOfID(text string) bool {
	return len(plainID(text)) >= shortID && strings.Trim(text, "0123456789abcdef-") == ""
}

// plainID is an id without its dashes.
func plainID(text string) string { return strings.ReplaceAll(text, "-", "") }

// timesOf returns the period in which ids with this beginning were created: the first 12 digits of
// an id are milliseconds. ok is false for a beginning that is too short.
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

// oneOf returns the only id that begins or ends with a part of it.
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

// uniqueTails returns the shortest ends that distinguish ids, all of one length. Ids that were
// created within a minute begin alike.
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

// latestRun returns the id of the newest run, and reports it: the caller may expect another one.
func (s *session) latestRun(ctx context.Context) (string, error) {
	answer, err := s.client.Runs().ListRuns(ctx, &servov1.ListRunsRequest{Tenant: s.Tenant, Workspace: s.Workspace, PageSize: 1})
	if err != nil {
		return "", err
	}
	if len(answer.GetRuns()) == 0 {
		where := clean(s.Tenant)
		if s.Workspace != "" {
			where += "/" + clean(s.Workspace)
		}
		return "", fault.New(fault.NotFound, where+" has no runs yet", fault.Field("RUN"), fault.Remedy("trigger one: servo runs trigger PIPELINE"+s.again()))
	}
	r := answer.GetRuns()[0]
	s.report("latest is run %s of %s", r.GetId(), pipelineName(r))
	return r.GetId(), nil
}

// findTask returns the id of a task of a run, given by its id or by its asset's key.
func (s *session) findTask(ctx context.Context, run, name string) (string, error) {
	if parsed, err := uuid.Parse(name); err == nil {
		return parsed.String(), nil
	}
	if lower := strings.ToLower(name); partOfID(lower) {
		all, err := first(client.AllTasks(ctx, s.client, &servov1.ListTasksRequest{Tenant: s.Tenant, Run: run}), recentRuns)
		if err != nil {
			return "", err
		}
		var ids []string
		for _, t := range all {
			ids = append(ids, t.GetId())
		}
		return oneOf("TASK", "task", lower, ids, "list them: servo tasks list "+run)
	}
	if !strings.Contains(name, "/") {
		return "", fault.New(fault.InvalidArgument, fmt.Sprintf("%q is neither a task id nor an asset key", name), fault.Field("TASK"),
			fault.Remedy("use an asset key namespace/name, or an id that servo tasks list shows"))
	}
	if asset, partition, ok := strings.Cut(strings.TrimSuffix(name, "]"), "["); ok && strings.HasSuffix(name, "]") {
		return s.findPartition(ctx, run, asset, partition)
	}
	const some = 4
	found, err := first(client.AllTasks(ctx, s.client, &servov1.ListTasksRequest{Tenant: s.Tenant, Run: run, Asset: name, PageSize: some}), some)
	if err != nil {
		return "", err
	}
	switch len(found) {
	case 0:
		all, err := first(client.AllTasks(ctx, s.client, &servov1.ListTasksRequest{Tenant: s.Tenant, Run: run}), knownTasks)
		if err != nil {
			return "", err
		}
		var assets []string
		for _, t := range all {
			assets = append(assets, t.GetAsset())
		}
		return "", fault.New(fault.NotFound, "the run has no task of asset "+name+suggest.DidYouMean(name, assets), fault.Field("TASK"),
			fault.Remedy("list them: servo tasks list "+run))
	case 1:
		return found[0].GetId(), nil
	default:
		var ids []string
		for _, t := range found[:min(len(found), some-1)] {
			ids = append(ids, t.GetId()+" ("+taskName(t.GetAsset(), t.GetPartition())+")")
		}
		return "", fault.New(fault.InvalidArgument, "the run has several tasks of asset "+name, fault.Field("TASK"),
			fault.Remedy("use the id of one: "+strings.Join(ids, ", ")))
	}
}

// taskName is an asset's key with the partition, if there is one.
func taskName(asset, partition string) string {
	if partition == "" {
		return clean(asset)
	}
	return clean(asset) + "[" + clean(divided.Bare(partition)) + "]"
}

// findPartition finds the task of a partition: asset[partition], as lists show it, or with the key.
func (s *session) findPartition(ctx context.Context, run, asset, partition string) (string, error) {
	for task, err := range client.AllTasks(ctx, s.client, &servov1.ListTasksRequest{Tenant: s.Tenant, Run: run, Asset: asset}) {
		if err != nil {
			return "", err
		}
		if task.GetPartition() == partition || divided.Bare(task.GetPartition()) == partition {
			return task.GetId(), nil
		}
	}
	return "", fault.New(fault.NotFound, fmt.Sprintf("the run has no task of %s[%s]", asset, partition), fault.Field("TASK"), fault.Remedy("list them: servo tasks list "+run))
}

// offered returns names for the completion of a shell. With a tenant it finds that first.
func offered[M any](ctx context.Context, s *session, tenant bool, list func() iter.Seq2[M, error], name func(m M) string) ([]string, error) {
	if tenant {
		if _, err := s.requireTenant(ctx); err != nil {
			return nil, err
		}
	}
	items, err := first(list(), offeredNames)
	var names []string
	for _, m := range items {
		names = append(names, name(m))
	}
	return names, err
}

func (s *session) tenantNames(ctx context.Context) ([]string, error) {
	return offered(ctx, s, false, func() iter.Seq2[*servov1.Tenant, error] {
		return client.AllTenants(ctx, s.client, &servov1.ListTenantsRequest{})
	}, (*servov1.Tenant).GetName)
}

func (s *session) pipelineNames(ctx context.Context) ([]string, error) {
	return offered(ctx, s, true, func() iter.Seq2[*servov1.Pipeline, error] {
		return client.AllPipelines(ctx, s.client, &servov1.ListPipelinesRequest{Tenant: s.Tenant, Workspace: s.Workspace})
	}, func(p *servov1.Pipeline) string { return p.GetName() + "\t" + clean(p.GetDescription()) })
}

func (s *session) assetNames(ctx context.Context) ([]string, error) {
	return offered(ctx, s, true, func() iter.Seq2[*servov1.Asset, error] {
		return client.AllAssets(ctx, s.client, &servov1.ListAssetsRequest{Tenant: s.Tenant, Workspace: s.Workspace})
	}, func(a *servov1.Asset) string { return a.GetKey() + "\t" + kindOf(a.GetCode()) })
}

func (s *session) configNames(ctx context.Context) ([]string, error) {
	return offered(ctx, s, true, func() iter.Seq2[*servov1.Config, error] {
		return client.AllConfigs(ctx, s.client, &servov1.ListConfigsRequest{Tenant: s.Tenant, Workspace: s.Workspace})
	}, func(c *servov1.Config) string { return c.GetName() + "\t" + clean(c.GetSpec().GetPipeline()) })
}

// runNames offers the newest runs.
func (s *session) runNames(ctx context.Context) ([]string, error) {
	if _, err := s.requireTenant(ctx); err != nil {
		return nil, err
	}
	const some = 20
	runs, err := first(client.AllRuns(ctx, s.client, &servov1.ListRunsRequest{Tenant: s.Tenant, Workspace: s.Workspace, PageSize: some}), some)
	var names []string
	for i, r := range runs {
		about := r.GetPipeline() + " " + r.GetState().String()
		if i == 0 {
			names = append(names, latest+"\tthe newest: "+about)
		}
		names = append(names, r.GetId()+"\t"+about)
	}
	return names, err
}
