package api_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	servov1 "go.arco.dev/servo/gen/servo/v1"
)

// enough is more than any list of these tests has: pages that do not advance end there.
const enough = 50

func TestListConfigs(t *testing.T) {
	t.Parallel()
	b := setupConfigs(t)
	for i := range 7 {
		spec := hourly()
		spec.Labels = map[string]string{"provider": []string{"AWS", "GCP"}[i%2], "half": fmt.Sprint(i / 4)}
		if i == 6 {
			spec.Pipeline = "diamond"
		}
		b.db.SetClock(t, noon.Add(time.Duration(i)*time.Second)) // the age is in the id
		b.create(t, fmt.Sprintf("%s-%d", []string{"cost", "audit"}[i/5], i), spec)
	}
	_, err := b.configs.PauseConfig(t.Context(), &servov1.PauseConfigRequest{Tenant: "acme", Config: "cost-3"})
	require.NoError(t, err)
	list := func(t *testing.T, req *servov1.ListConfigsRequest) (names []string) {
		t.Helper()
		req.Tenant = "acme"
		for {
			answer, err := b.configs.ListConfigs(t.Context(), req)
			require.NoError(t, err)
			require.LessOrEqual(t, len(answer.GetConfigs()), 2)
			for _, c := range answer.GetConfigs() {
				names = append(names, c.GetName())
			}
			if req.PageToken = answer.GetNextPageToken(); req.GetPageToken() == "" {
				return names
			}
			require.Less(t, len(names), enough)
		}
	}

	for claim, c := range map[string]struct {
		req  *servov1.ListConfigsRequest
		want []string
	}{
		"all, in pages, the oldest first": {&servov1.ListConfigsRequest{}, []string{"cost-0", "cost-1", "cost-2", "cost-3", "cost-4", "audit-5", "audit-6"}},
		"by the workspace":                {&servov1.ListConfigsRequest{Workspace: "other"}, nil},
		"by the pipeline":                 {&servov1.ListConfigsRequest{Pipeline: "diamond"}, []string{"audit-6"}},
		"by labels that are all there":    {&servov1.ListConfigsRequest{Label: []string{"provider=AWS", "half=0"}}, []string{"cost-0", "cost-2"}},
		"by how the name begins":          {&servov1.ListConfigsRequest{NamePrefix: "audit"}, []string{"audit-5", "audit-6"}},
		"by the state":                    {&servov1.ListConfigsRequest{State: servov1.Config_PAUSED}, []string{"cost-3"}},
	} {
		t.Run(claim, func(t *testing.T) {
			t.Parallel()
			c.req.PageSize = 2
			require.Equal(t, c.want, list(t, c.req))
		})
	}

	t.Run("a token of another list is refused", func(t *testing.T) {
		t.Parallel()
		answer, err := b.configs.ListConfigs(t.Context(), &servov1.ListConfigsRequest{Tenant: "acme", PageSize: 2})
		require.NoError(t, err)
		_, err = b.configs.ListConfigs(t.Context(), &servov1.ListConfigsRequest{Tenant: "acme", Pipeline: "single", PageToken: answer.GetNextPageToken()})
		requireRefused(t, err, codes.InvalidArgument, "page_token")
		_, err = b.configs.ListConfigs(t.Context(), &servov1.ListConfigsRequest{Tenant: "acme", Label: []string{"provider"}})
		requireRefused(t, err, codes.InvalidArgument, "label[0]")
	})
}

func TestApplyConfigs(t *testing.T) {
	t.Parallel()
	b := setupConfigs(t)
	const many = 1000
	inputs := make([]*servov1.ConfigInput, many)
	for i := range inputs {
		inputs[i] = &servov1.ConfigInput{Name: fmt.Sprintf("c-%d", i), Spec: hourly()}
	}
	apply := func(dry bool) *servov1.ApplyConfigsResponse {
		answer, err := b.configs.ApplyConfigs(t.Context(), &servov1.ApplyConfigsRequest{Tenant: "acme", Configs: inputs, DryRun: dry, Reason: "all"})
		require.NoError(t, err)
		require.Len(t, answer.GetConfigs(), many)
		return answer
	}
	counts := func(a *servov1.ApplyConfigsResponse) [3]int32 {
		return [3]int32{a.GetCreated(), a.GetChanged(), a.GetUnchanged()}
	}
	require.Equal(t, [3]int32{many, 0, 0}, counts(apply(true)))
	require.Zero(t, b.stored(t), "a dry run stores nothing")
	require.Equal(t, [3]int32{many, 0, 0}, counts(apply(false)))
	require.Equal(t, [3]int32{0, 0, many}, counts(apply(false)), "the same again changes nothing")

	inputs[17].Spec.Trigger.Cron = "30 * * * *"
	for _, dry := range []bool{true, false} {
		answer := apply(dry)
		require.Equal(t, [3]int32{0, 1, many - 1}, counts(answer))
		changed := answer.GetConfigs()[17]
		require.Equal(t, "c-17 CHANGED", changed.GetName()+" "+changed.GetAction().String())
		cron := func(of map[string]any) any { return of["trigger"].(map[string]any)["cron"] }
		require.Equal(t, []any{"0 * * * *", "30 * * * *"}, []any{cron(changed.GetBefore().AsMap()), cron(changed.GetAfter().AsMap())})
		require.Nil(t, answer.GetConfigs()[16].GetAfter())
	}
	require.Equal(t, int32(2), b.get(t, "c-17").GetVersion())
	require.Equal(t, int32(1), b.get(t, "c-16").GetVersion())

	_, err := b.configs.ApplyConfigs(t.Context(), &servov1.ApplyConfigsRequest{Tenant: "acme", Configs: append(inputs, &servov1.ConfigInput{Name: "more", Spec: hourly()})})
	requireRefused(t, err, codes.InvalidArgument, "configs")
}

func TestAudit(t *testing.T) {
	t.Parallel()
	b := setupConfigs(t)
	ctx := t.Context()
	_, err := b.configs.CreateConfig(ctx, &servov1.CreateConfigRequest{Tenant: "acme", Name: "a", Spec: hourly(), Reason: "new"})
	require.NoError(t, err)
	spec := hourly()
	spec.Timezone = "Europe/Berlin"
	_, err = b.configs.UpdateConfig(ctx, &servov1.UpdateConfigRequest{Tenant: "acme", Config: "a", Spec: spec, Reason: "moved"})
	require.NoError(t, err)
	_, err = b.configs.PauseConfig(ctx, &servov1.PauseConfigRequest{Tenant: "acme", Config: "a", Reason: "down"})
	require.NoError(t, err)
	_, err = b.configs.ResumeConfig(ctx, &servov1.ResumeConfigRequest{Tenant: "acme", Config: "a", Reason: "up"})
	require.NoError(t, err)
	_, err = b.configs.RescheduleConfig(ctx, &servov1.RescheduleConfigRequest{Tenant: "acme", Config: "a", Slot: timestamppb.New(noon.Add(90 * time.Second)), Reason: "soon"})
	require.NoError(t, err)

	var entries []*servov1.ConfigAudit
	for token := ""; ; {
		answer, err := b.configs.ListConfigAudit(ctx, &servov1.ListConfigAuditRequest{Tenant: "acme", Config: "a", PageSize: 2, PageToken: token})
		require.NoError(t, err)
		entries = append(entries, answer.GetEntries()...)
		if token = answer.GetNextPageToken(); token == "" {
			break
		}
		require.Len(t, answer.GetEntries(), 2)
		require.Less(t, len(entries), enough)
	}
	var edits []string
	for _, e := range entries {
		require.Equal(t, noon, e.GetAt().AsTime())
		edits = append(edits, fmt.Sprintf("%d %s by %s: %s", e.GetVersion(), e.GetAction(), e.GetActor(), e.GetReason()))
	}
	require.Equal(t, []string{"5 moved by open: soon", "4 resumed by open: up", "3 paused by open: down", "2 changed by open: moved", "1 created by open: new"}, edits)
	slices.Reverse(entries)
	require.Nil(t, entries[0].GetBefore())
	for i, e := range entries[1:] {
		equal(t, entries[i].GetAfter(), e.GetBefore())
	}
	require.Equal(t, []any{"UTC", "Europe/Berlin"}, []any{entries[1].GetBefore().AsMap()["timezone"], entries[1].GetAfter().AsMap()["timezone"]})
	require.Equal(t, true, entries[2].GetAfter().AsMap()["paused"])
	require.Equal(t, "2027-01-31T12:01:30Z", entries[4].GetAfter().AsMap()["rescheduled_to"])
}

func TestSlots(t *testing.T) {
	t.Parallel()

	t.Run("the ledger is read in pages, the newest first, from and to", func(t *testing.T) {
		t.Parallel()
		b := setupConfigs(t)
		spec := hourly()
		spec.Overlap = "allow"
		made := b.create(t, "a", spec)
		for hour := 1; hour <= 5; hour++ {
			require.Equal(t, int64(1), b.at(t, noon.Add(time.Duration(hour)*time.Hour)).GetRunsCreated())
		}
		b.at(t, noon.Add(10*time.Hour)) // of five that were missed the newest fires
		list := func(req *servov1.ListSlotsRequest) (listed []string) {
			req.Tenant, req.Config = "acme", "a"
			for {
				answer, err := b.configs.ListSlots(t.Context(), req)
				require.NoError(t, err)
				for _, s := range answer.GetSlots() {
					listed = append(listed, fmt.Sprintf("%d %s", int(s.GetFrom().AsTime().Sub(noon).Hours()), s.GetOutcome()))
					require.Equal(t, s.GetOutcome() == servov1.Slots_FIRED, s.GetRun() != "")
					require.NotNil(t, s.GetDecidedAt())
				}
				if req.PageToken = answer.GetNextPageToken(); req.GetPageToken() == "" {
					return listed
				}
				require.Len(t, answer.GetSlots(), int(req.GetPageSize()))
				require.Less(t, len(listed), enough)
			}
		}
		require.Equal(t, []string{"10 FIRED", "6 SKIPPED_CATCHUP", "5 FIRED", "4 FIRED", "3 FIRED", "2 FIRED", "1 FIRED"}, list(&servov1.ListSlotsRequest{PageSize: 2}))
		from, to := timestamppb.New(noon.Add(3*time.Hour)), timestamppb.New(noon.Add(10*time.Hour))
		require.Equal(t, []string{"6 SKIPPED_CATCHUP", "5 FIRED", "4 FIRED", "3 FIRED"}, list(&servov1.ListSlotsRequest{PageSize: 3, From: from, To: to}))

		c := b.get(t, made.GetId())
		require.Equal(t, noon.Add(10*time.Hour), c.GetLastSlot().AsTime())
		require.Equal(t, noon.Add(11*time.Hour), c.GetNextSlot().AsTime())
		require.NotEmpty(t, c.GetLastRun().GetId())
	})

	t.Run("a ledger without holes is reported, also of a deleted config", func(t *testing.T) {
		t.Parallel()
		b := setupConfigs(t)
		made := b.create(t, "a", hourly())
		for hour := range 3 {
			b.at(t, noon.Add(time.Duration(hour+1)*time.Hour))
		}
		holes, err := b.configs.FindHoles(t.Context(), &servov1.FindHolesRequest{Tenant: "acme", Config: "a"})
		require.NoError(t, err)
		require.Empty(t, holes.GetHoles())
		require.EqualValues(t, 3, holes.GetFired()+holes.GetSkipped())
		require.Equal(t, noon.Add(3*time.Hour), holes.GetDecidedUntil().AsTime())
		b.db.Exec(t, `DELETE FROM servo.slots`)
		holes, err = b.configs.FindHoles(t.Context(), &servov1.FindHolesRequest{Tenant: "acme", Config: "a"})
		require.NoError(t, err)
		require.Equal(t, "UNDECIDED", holes.GetHoles()[0].GetProblem())
		_, err = b.configs.DeleteConfig(t.Context(), &servov1.DeleteConfigRequest{Tenant: "acme", Config: "a"})
		require.NoError(t, err)
		_, err = b.configs.FindHoles(t.Context(), &servov1.FindHolesRequest{Tenant: "acme", Config: made.GetId()})
		require.NoError(t, err)
	})

	t.Run("the reasons why a config has not fired have their values", func(t *testing.T) {
		t.Parallel()
		b := setupConfigs(t)
		made := b.create(t, "a", hourly())
		why, err := b.configs.ExplainConfig(t.Context(), &servov1.ExplainConfigRequest{Tenant: "acme", Config: "a"})
		require.NoError(t, err)
		require.Equal(t, made.GetId(), why.GetConfig())
		require.Equal(t, "a", why.GetName())
		require.Empty(t, why.GetRun())
		require.Equal(t, "NOT_DUE", why.GetBlockers()[0].GetCode())
		require.Equal(t, noon.Add(time.Hour).Format(time.RFC3339), why.GetBlockers()[0].GetValues().AsMap()["slot"])
		_, err = b.configs.PauseConfig(t.Context(), &servov1.PauseConfigRequest{Tenant: "acme", Config: "a", Reason: "r"})
		require.NoError(t, err)
		why, err = b.configs.ExplainConfig(t.Context(), &servov1.ExplainConfigRequest{Tenant: "acme", Config: "a"})
		require.NoError(t, err)
		require.Equal(t, "PAUSED", why.GetState())
	})

	t.Run("a slot that another run kept from firing points to it", func(t *testing.T) {
		t.Parallel()
		b := setupConfigs(t)
		b.create(t, "a", hourly())
		b.at(t, noon.Add(time.Hour))
		require.Zero(t, b.at(t, noon.Add(2*time.Hour)).GetRunsCreated())
		answer, err := b.configs.ListSlots(t.Context(), &servov1.ListSlotsRequest{Tenant: "acme", Config: "a"})
		require.NoError(t, err)
		require.Equal(t, servov1.Slots_SKIPPED_OVERLAP, answer.GetSlots()[0].GetOutcome())
		require.Equal(t, answer.GetSlots()[1].GetRun(), answer.GetSlots()[0].GetRun())
	})
}

func TestTick(t *testing.T) {
	t.Parallel()

	t.Run("everything that is due fires, in batches, and nothing twice", func(t *testing.T) {
		t.Parallel()
		b := setupConfigs(t)
		for i := range 5 {
			b.create(t, fmt.Sprintf("c-%d", i), hourly())
		}
		b.db.SetClock(t, noon.Add(time.Hour))
		answer, err := b.scheduler.Tick(t.Context(), &servov1.TickRequest{BatchSize: 2, MaxProcessingTime: durationpb.New(time.Minute)})
		require.NoError(t, err)
		require.Equal(t, [2]int64{5, 5}, [2]int64{answer.GetConfigsProcessed(), answer.GetRunsCreated()})
		require.Positive(t, answer.GetProcessingTime().AsDuration())
		answer, err = b.scheduler.Tick(t.Context(), &servov1.TickRequest{})
		require.NoError(t, err)
		require.Equal(t, [2]int64{0, 0}, [2]int64{answer.GetConfigsProcessed(), answer.GetRunsCreated()})
	})

	t.Run("when the time is up the rest is left", func(t *testing.T) {
		t.Parallel()
		b := setupConfigs(t)
		for i := range 5 {
			b.create(t, fmt.Sprintf("c-%d", i), hourly())
		}
		b.db.SetClock(t, noon.Add(time.Hour))
		answer, err := b.scheduler.Tick(t.Context(), &servov1.TickRequest{BatchSize: 2, MaxProcessingTime: durationpb.New(1)})
		require.NoError(t, err)
		require.Equal(t, int64(2), answer.GetConfigsProcessed())
	})

	t.Run("results of runs are folded in", func(t *testing.T) {
		t.Parallel()
		b := setupConfigs(t)
		b.create(t, "a", hourly())
		b.create(t, "after", &servov1.ConfigSpec{Pipeline: "single", Trigger: &servov1.ConfigTrigger{Event: &servov1.ConfigEvent{Config: "a"}}})
		b.at(t, noon.Add(time.Hour))
		b.drain(t)
		_, err := b.scheduler.Tick(t.Context(), &servov1.TickRequest{})
		require.NoError(t, err)
		require.Equal(t, servov1.Run_SUCCEEDED, b.get(t, "a").GetLastRun().GetState())
		runs, err := b.runs.ListRuns(t.Context(), &servov1.ListRunsRequest{Tenant: "acme"})
		require.NoError(t, err)
		var why []string
		for _, r := range runs.GetRuns() {
			why = append(why, r.GetTriggerType())
		}
		require.ElementsMatch(t, []string{"schedule", "event"}, why)
	})

	t.Run("a batch that is too large and a duration of 0 are refused", func(t *testing.T) {
		t.Parallel()
		b := setupConfigs(t)
		_, err := b.scheduler.Tick(t.Context(), &servov1.TickRequest{MaxProcessingTime: durationpb.New(0)})
		requireRefused(t, err, codes.InvalidArgument, "max_processing_time")
		_, err = b.scheduler.Tick(t.Context(), &servov1.TickRequest{BatchSize: 10_001})
		requireRefused(t, err, codes.InvalidArgument, "batch_size")
	})
}
