package api_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/structpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	servov1 "go.arco.dev/servo/gen/servo/v1"
)

// simulate asks for a day from midnight on, unless the request specifies another range.
func (b *configBundle) simulate(t *testing.T, req *servov1.SimulateRequest) *servov1.SimulateResponse {
	t.Helper()
	req.Tenant = "acme"
	if req.GetFrom() == nil {
		req.From = timestamppb.New(noon.Add(12 * time.Hour))
	}
	if req.GetDays() == 0 {
		req.Days = 1
	}
	answer, err := servov1.NewSimulationServiceClient(b.conn).Simulate(t.Context(), req)
	require.NoError(t, err)
	return answer
}

// number is a figure of a report.
func number(t *testing.T, report *structpb.Struct, name string) int {
	t.Helper()
	require.Contains(t, report.GetFields(), name)
	return int(report.GetFields()[name].GetNumberValue())
}

// entry is the first of a list of a report.
func entry(t *testing.T, report *structpb.Struct, list string) map[string]any {
	t.Helper()
	entries := report.GetFields()[list].GetListValue().GetValues()
	require.NotEmpty(t, entries, list)
	return entries[0].GetStructValue().AsMap()
}

// at is a spec of the pipeline single that fires by an expression.
func at(expression string) *servov1.ConfigSpec {
	return &servov1.ConfigSpec{Pipeline: "single", Trigger: &servov1.ConfigTrigger{Cron: expression}}
}

func TestSimulate(t *testing.T) {
	t.Parallel()

	t.Run("the minute in which two configs meet is the peak", func(t *testing.T) {
		t.Parallel()
		b := setupConfigs(t)
		b.create(t, "hourly", hourly())
		b.create(t, "nightly", at("0 2 * * *"))
		answer := b.simulate(t, &servov1.SimulateRequest{})
		require.Equal(t, 2, number(t, answer.GetReport(), "configs"))
		require.Equal(t, 25, number(t, answer.GetReport(), "fired"))
		peak := entry(t, answer.GetReport(), "peak_minutes")
		require.Equal(t, "2027-02-01T02:00:00Z", peak["at"])
		require.InDelta(t, 2, peak["slots"], 0)
		require.Equal(t, []any{
			map[string]any{"tenant": "acme", "config": "hourly", "slots": 1.0},
			map[string]any{"tenant": "acme", "config": "nightly", "slots": 1.0},
		}, peak["configs"])
		require.Len(t, answer.GetReport().GetFields()["hours"].GetListValue().GetValues(), 24)
		require.EqualValues(t, 2, answer.GetWithoutHistory())
	})

	t.Run("without a time it is the next thirty days", func(t *testing.T) {
		t.Parallel()
		b := setupConfigs(t)
		b.create(t, "nightly", at("0 2 * * *"))
		answer, err := servov1.NewSimulationServiceClient(b.conn).Simulate(t.Context(), &servov1.SimulateRequest{Tenant: "acme"})
		require.NoError(t, err)
		require.Equal(t, noon.Format(time.RFC3339), answer.GetReport().AsMap()["from"])
		require.Equal(t, noon.AddDate(0, 0, 30).Format(time.RFC3339), answer.GetReport().AsMap()["until"])
		require.Equal(t, 30, number(t, answer.GetReport(), "fired"))
	})

	t.Run("configs count as if they were saved, and are not", func(t *testing.T) {
		t.Parallel()
		b := setupConfigs(t)
		b.create(t, "hourly", hourly())
		answer := b.simulate(t, &servov1.SimulateRequest{Configs: []*servov1.ConfigInput{
			{Name: "hourly", Spec: at("0 */2 * * *")},
			{Name: "new", Spec: at("30 2 * * *")},
			{Name: "asleep", Spec: hourly(), Enabled: proto.Bool(false)},
		}})
		require.Equal(t, 12+1, number(t, answer.GetReport(), "fired"))
		require.EqualValues(t, 1, answer.GetIdle())
		require.Equal(t, 1, b.stored(t))
		require.Equal(t, "0 * * * *", b.get(t, "hourly").GetSpec().GetTrigger().GetCron())
	})

	t.Run("a jitter that is not saved yet has the same place each time", func(t *testing.T) {
		t.Parallel()
		b := setupConfigs(t)
		spec := at("0 2 * * *")
		spec.Jitter = "1h"
		extra := []*servov1.ConfigInput{{Name: "new", Spec: spec}}
		equal(t, b.simulate(t, &servov1.SimulateRequest{Configs: extra}), b.simulate(t, &servov1.SimulateRequest{Configs: extra}))
	})

	t.Run("configs of several workspaces are distinguished", func(t *testing.T) {
		t.Parallel()
		b := setupConfigs(t)
		_, err := b.tenants.CreateWorkspace(t.Context(), &servov1.CreateWorkspaceRequest{Tenant: "acme", Name: "lab"})
		require.NoError(t, err)
		_, err = b.deployments.Deploy(t.Context(), &servov1.DeployRequest{Tenant: "acme", Workspace: "lab", Manifest: manifestOf(t, manifestText)})
		require.NoError(t, err)
		b.create(t, "same", at("0 2 * * *"))
		answer := b.simulate(t, &servov1.SimulateRequest{Workspace: "lab", Configs: []*servov1.ConfigInput{{Name: "same", Spec: at("0 2 * * *")}}})
		require.Equal(t, []any{
			map[string]any{"tenant": "acme", "config": "lab/same", "slots": 1.0},
			map[string]any{"tenant": "acme", "config": "same", "slots": 1.0},
		}, entry(t, answer.GetReport(), "peak_minutes")["configs"])
	})

	t.Run("what is paused does not fire", func(t *testing.T) {
		t.Parallel()
		b := setupConfigs(t)
		b.create(t, "hourly", hourly())
		_, err := b.configs.PauseConfig(t.Context(), &servov1.PauseConfigRequest{Tenant: "acme", Config: "hourly"})
		require.NoError(t, err)
		answer := b.simulate(t, &servov1.SimulateRequest{})
		require.Equal(t, 0, number(t, answer.GetReport(), "slots"))
		require.EqualValues(t, 1, answer.GetIdle())
	})

	t.Run("runs take as long as they did, and wait for quotas and workers", func(t *testing.T) {
		t.Parallel()
		b := setupConfigs(t)
		b.trigger(t, "single")
		lease := b.one(t)
		b.db.SetClock(t, noon.Add(20*time.Second))
		require.Nil(t, b.report(t, complete(lease, nil))[0].GetError())

		b.create(t, "one", hourly())
		b.create(t, "two", hourly())
		answer := b.simulate(t, &servov1.SimulateRequest{Slots: 1})
		require.Zero(t, answer.GetWithoutHistory())
		require.Equal(t, 24, number(t, answer.GetReport(), "waited_workers"))
		require.Equal(t, "20s", answer.GetReport().GetFields()["wait"].GetStructValue().AsMap()["max"])
		require.InDelta(t, 2, entry(t, answer.GetReport(), "hours")["tasks"], 0)

		_, err := b.tenants.SetQuotas(t.Context(), &servov1.SetQuotasRequest{Tenant: "acme", Quotas: &servov1.Quotas{MaxDailyRuns: proto.Int32(10)}})
		require.NoError(t, err)
		answer = b.simulate(t, &servov1.SimulateRequest{})
		require.Equal(t, 10, number(t, answer.GetReport(), "fired"))
		require.Equal(t, "max_daily_runs", entry(t, answer.GetReport(), "quota_misses")["quota"])
	})

	t.Run("more configs than a page has are all there", func(t *testing.T) {
		t.Parallel()
		b := setupConfigs(t)
		for _, prefix := range []string{"a", "b"} {
			inputs := make([]*servov1.ConfigInput, 600)
			for i := range inputs {
				inputs[i] = &servov1.ConfigInput{Name: prefix + string(rune('a'+i/26)) + string(rune('a'+i%26)), Spec: at("0 2 * * *")}
			}
			_, err := b.configs.ApplyConfigs(t.Context(), &servov1.ApplyConfigsRequest{Tenant: "acme", Configs: inputs})
			require.NoError(t, err)
		}
		answer := b.simulate(t, &servov1.SimulateRequest{Limit: 3})
		require.Equal(t, 1200, number(t, answer.GetReport(), "fired"))
		peak := entry(t, answer.GetReport(), "peak_minutes")
		require.InDelta(t, 1200, peak["config_count"], 0)
		require.Len(t, peak["configs"], 3)
		require.InDelta(t, 1200, entry(t, answer.GetReport(), "suggestions")["peak"], 0)
	})
}

func TestSimulateRefuses(t *testing.T) {
	t.Parallel()
	b := setupConfigs(t)
	one := func(spec *servov1.ConfigSpec) []*servov1.ConfigInput {
		return []*servov1.ConfigInput{{Name: "new", Spec: spec}}
	}
	for name, c := range map[string]struct {
		req   *servov1.SimulateRequest
		code  codes.Code
		field string
	}{
		"more than a year":           {&servov1.SimulateRequest{Tenant: "acme", Days: 367}, codes.InvalidArgument, "days"},
		"a window before there were": {&servov1.SimulateRequest{Tenant: "acme", From: timestamppb.New(time.Unix(-1, 0))}, codes.InvalidArgument, "from"},
		"fewer than no places":       {&servov1.SimulateRequest{Tenant: "acme", Slots: -1}, codes.InvalidArgument, "slots"},
		"lists too long":             {&servov1.SimulateRequest{Tenant: "acme", Limit: 1001}, codes.InvalidArgument, "limit"},
		"a missing tenant":           {&servov1.SimulateRequest{Tenant: "missing"}, codes.NotFound, "tenant"},
		"no such workspace": {
			&servov1.SimulateRequest{Tenant: "acme", Workspace: "lab", Configs: one(hourly())}, codes.NotFound, "workspace",
		},
		"a bad expression": {
			&servov1.SimulateRequest{Tenant: "acme", Configs: one(at("61 * * * *"))}, codes.InvalidArgument, "configs[0].spec.trigger.cron",
		},
		"a bad duration": {
			&servov1.SimulateRequest{Tenant: "acme", Configs: one(&servov1.ConfigSpec{Pipeline: "single", Trigger: at("@daily").GetTrigger(), Jitter: "soon"})},
			codes.InvalidArgument, "configs[0].spec.jitter",
		},
		"the second of two": {
			&servov1.SimulateRequest{Tenant: "acme", Configs: append(one(hourly()), &servov1.ConfigInput{Name: "b", Spec: &servov1.ConfigSpec{Pipeline: "none", Trigger: at("@daily").GetTrigger()}})},
			codes.InvalidArgument, "configs[1].spec.pipeline",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := servov1.NewSimulationServiceClient(b.conn).Simulate(t.Context(), c.req)
			requireRefused(t, err, c.code, c.field)
		})
	}
}
