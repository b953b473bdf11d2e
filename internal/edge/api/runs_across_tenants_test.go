package api_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/timestamppb"

	servov1 "go.arco.dev/servo/gen/servo/v1"
	"go.arco.dev/servo/internal/domain/access"
)

// twoTenants are acme and brick, both deployed.
func twoTenants(t testing.TB) *guarded {
	t.Helper()
	g := setupGuarded(t)
	_, err := g.deployments.Deploy(t.Context(), &servov1.DeployRequest{Tenant: "brick", Manifest: manifestOf(t, manifestText)})
	require.NoError(t, err)
	return g
}

func TestRunsAcrossTenants(t *testing.T) {
	t.Parallel()
	g := twoTenants(t)
	var made []string // the newest first
	for i := range 6 {
		tenant := []string{"acme", "brick"}[i%2]
		answer, err := g.runs.TriggerRun(t.Context(), &servov1.TriggerRunRequest{Tenant: tenant, Pipeline: "single"})
		require.NoError(t, err)
		made = append([]string{tenant + " " + answer.GetRun().GetId()}, made...)
	}
	_, err := g.runs.TriggerRun(t.Context(), &servov1.TriggerRunRequest{Tenant: "brick", Pipeline: "diamond"})
	require.NoError(t, err)
	runs := servov1.NewRunServiceClient(g.conn)
	operator, viewer := with(t.Context(), g.roleKey(t, access.Platform)), with(t.Context(), g.roleKey(t, access.Viewer))

	t.Run("an operator sees the runs of all, the newest first, page by page", func(t *testing.T) {
		t.Parallel()
		found := pages(t, func(token string) ([]string, string, error) {
			answer, err := runs.ListRuns(operator, &servov1.ListRunsRequest{Pipeline: "single", PageSize: 2, PageToken: token})
			var ids []string
			for _, r := range answer.GetRuns() {
				ids = append(ids, r.GetTenant()+" "+r.GetId())
			}
			return ids, answer.GetNextPageToken(), err
		})
		require.Equal(t, made, found)
	})
	t.Run("a key of a tenant does not, and the refusal names the role that does", func(t *testing.T) {
		t.Parallel()
		_, err := runs.ListRuns(viewer, &servov1.ListRunsRequest{})
		require.Equal(t, codes.PermissionDenied, status.Code(err), "%v", err)
		_, err = runs.ListRunningRuns(viewer, &servov1.ListRunningRunsRequest{})
		require.Equal(t, codes.PermissionDenied, status.Code(err), "%v", err)
		_, err = runs.ListLateRuns(viewer, &servov1.ListLateRunsRequest{})
		require.Equal(t, codes.PermissionDenied, status.Code(err), "%v", err)
	})
	t.Run("what is of one tenant needs its name", func(t *testing.T) {
		t.Parallel()
		_, err := runs.ListRuns(operator, &servov1.ListRunsRequest{Config: "nightly"})
		requireRefused(t, err, codes.InvalidArgument, "config")
		_, err = runs.ListRuns(operator, &servov1.ListRunsRequest{ParentRun: made[0][6:]})
		requireRefused(t, err, codes.InvalidArgument, "parent_run")
		_, err = runs.ListRuns(operator, &servov1.ListRunsRequest{Tenant: "acme", Config: "nightly"})
		requireRefused(t, err, codes.NotFound, "config")
	})
	t.Run("running runs are those of all, or of the tenant that asks", func(t *testing.T) {
		t.Parallel()
		all, err := runs.ListRunningRuns(operator, &servov1.ListRunningRunsRequest{PageSize: 100})
		require.NoError(t, err)
		require.Len(t, all.GetRuns(), 7)
		mine, err := runs.ListRunningRuns(viewer, &servov1.ListRunningRunsRequest{Tenant: "acme"})
		require.NoError(t, err)
		require.Len(t, mine.GetRuns(), 3)
		for _, r := range mine.GetRuns() {
			require.Equal(t, "acme", r.GetRun().GetTenant())
		}
		late, err := runs.ListLateRuns(operator, &servov1.ListLateRunsRequest{})
		require.NoError(t, err)
		require.Empty(t, late.GetRuns())
	})
}

func TestConfigsAcrossTenants(t *testing.T) {
	t.Parallel()
	g := twoTenants(t)
	open, asked := servov1.NewConfigServiceClient(g.bundle.conn), servov1.NewConfigServiceClient(g.conn)
	var made []string
	for _, tenant := range []string{"acme", "brick"} {
		for _, name := range []string{"one", "two"} {
			_, err := open.CreateConfig(t.Context(), &servov1.CreateConfigRequest{
				Tenant: tenant, Name: name, Spec: &servov1.ConfigSpec{Pipeline: "single", Trigger: &servov1.ConfigTrigger{Cron: "0 2 * * *"}},
			})
			require.NoError(t, err)
			made = append(made, tenant+" "+name)
		}
	}
	operator, viewer := with(t.Context(), g.roleKey(t, access.Platform)), with(t.Context(), g.roleKey(t, access.Viewer))
	found := pages(t, func(token string) ([]string, string, error) {
		answer, err := asked.ListConfigs(operator, &servov1.ListConfigsRequest{PageSize: 1, PageToken: token, WithRecent: true})
		var names []string
		for _, c := range answer.GetConfigs() {
			names = append(names, c.GetTenant()+" "+c.GetName())
		}
		return names, answer.GetNextPageToken(), err
	})
	require.ElementsMatch(t, made, found)
	_, err := asked.ListConfigs(viewer, &servov1.ListConfigsRequest{})
	require.Equal(t, codes.PermissionDenied, status.Code(err), "%v", err)
	failing, err := asked.ListConfigs(viewer, &servov1.ListConfigsRequest{Tenant: "acme", Failing: true, WithRecent: true})
	require.NoError(t, err)
	require.Empty(t, failing.GetConfigs())

	t.Run("a run of a config names it, and is listed by it", func(t *testing.T) {
		t.Parallel()
		triggered, err := open.TriggerConfig(t.Context(), &servov1.TriggerConfigRequest{Tenant: "acme", Config: "one"})
		require.NoError(t, err)
		runs := servov1.NewRunServiceClient(g.conn)
		list, err := runs.ListRuns(viewer, &servov1.ListRunsRequest{Tenant: "acme", Config: "one"})
		require.NoError(t, err)
		require.Len(t, list.GetRuns(), 1)
		require.Equal(t, triggered.GetRun().GetId(), list.GetRuns()[0].GetId())
		require.Equal(t, "one", list.GetRuns()[0].GetConfig())
		require.NotEmpty(t, list.GetRuns()[0].GetConfigId())
		none, err := runs.ListRuns(viewer, &servov1.ListRunsRequest{Tenant: "acme", Config: "two"})
		require.NoError(t, err)
		require.Empty(t, none.GetRuns())
	})
}

func TestPreviewSchedule(t *testing.T) {
	t.Parallel()
	b := setup(t)
	configs := servov1.NewConfigServiceClient(b.conn)
	ask := func(trigger *servov1.ConfigTrigger, zone, jitter string) (*servov1.PreviewScheduleResponse, error) {
		return configs.PreviewSchedule(t.Context(), &servov1.PreviewScheduleRequest{
			Tenant: "acme", Trigger: trigger, Timezone: zone, Jitter: jitter, After: timestamppb.New(time.Date(2026, 3, 27, 12, 0, 0, 0, time.UTC)), Count: 3,
		})
	}
	answer, err := ask(&servov1.ConfigTrigger{Cron: "30 2 * * *"}, "Europe/Berlin", "5m")
	require.NoError(t, err)
	require.Equal(t, "Europe/Berlin", answer.GetTimezone())
	require.Len(t, answer.GetSlots(), 3)
	require.Equal(t, "2026-03-28T02:30:00+01:00", answer.GetSlots()[0].GetLocal())
	require.NotEmpty(t, answer.GetSlots()[1].GetNote(), "the clock is put forward that night")
	require.True(t, answer.GetSlots()[0].GetSlot().AsTime().Equal(answer.GetSlots()[0].GetDueAt().AsTime()))
	answer, err = ask(&servov1.ConfigTrigger{Template: "daily-midnight"}, "", "")
	require.NoError(t, err)
	require.Equal(t, "UTC", answer.GetTimezone())
	require.NotEmpty(t, answer.GetExpression())

	for name, bad := range map[string]struct {
		trigger      *servov1.ConfigTrigger
		zone, jitter string
		field        string
	}{
		"a cron":            {&servov1.ConfigTrigger{Cron: "61 * * * *"}, "", "", "trigger.cron"},
		"a zone":            {&servov1.ConfigTrigger{Cron: "0 2 * * *"}, "Moon/Base", "", "timezone"},
		"a jitter":          {&servov1.ConfigTrigger{Cron: "0 2 * * *"}, "", "soon", "jitter"},
		"two kinds":         {&servov1.ConfigTrigger{Cron: "0 2 * * *", Manual: true}, "", "", "trigger"},
		"a template":        {&servov1.ConfigTrigger{Template: "no-such"}, "", "", "trigger.template"},
		"nothing":           {nil, "", "", "trigger"},
		"an interval's sum": {&servov1.ConfigTrigger{Interval: "x"}, "", "", "trigger.interval"},
	} {
		_, err := ask(bad.trigger, bad.zone, bad.jitter)
		requireRefused(t, err, codes.InvalidArgument, bad.field)
		_ = name
	}
}

func TestRecordedEvents(t *testing.T) {
	t.Parallel()
	g := twoTenants(t)
	made := g.trigger(t, "single")
	events := servov1.NewEventServiceClient(g.conn)
	operator := with(t.Context(), g.roleKey(t, access.Platform))
	admin, viewer := with(t.Context(), g.roleKey(t, access.TenantAdmin)), with(t.Context(), g.roleKey(t, access.Viewer))
	all, err := events.ListEvents(operator, &servov1.ListEventsRequest{PageSize: 100})
	require.NoError(t, err)
	tenants := map[string]bool{}
	for _, e := range all.GetEvents() {
		tenants[e.GetTenant()] = true
	}
	require.True(t, tenants["acme"] && tenants["brick"])
	mine, err := events.ListEvents(admin, &servov1.ListEventsRequest{Tenant: "acme", Type: "run.created"})
	require.NoError(t, err)
	require.Len(t, mine.GetEvents(), 1)
	require.Equal(t, made.GetId(), mine.GetEvents()[0].GetRun())
	require.Equal(t, "acme", mine.GetEvents()[0].GetTenant())
	_, err = events.ListEvents(admin, &servov1.ListEventsRequest{})
	require.Equal(t, codes.PermissionDenied, status.Code(err), "%v", err)
	_, err = events.ListEvents(viewer, &servov1.ListEventsRequest{Tenant: "acme"})
	require.Equal(t, codes.PermissionDenied, status.Code(err), "the log has the URLs of webhooks: %v", err)
	_, err = events.ListEvents(admin, &servov1.ListEventsRequest{Tenant: "brick"})
	require.Equal(t, codes.NotFound, status.Code(err), "%v", err)
}
