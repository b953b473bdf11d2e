package api_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/fieldmaskpb"
	"google.golang.org/protobuf/types/known/structpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	servov1 "go.arco.dev/servo/gen/servo/v1"
)

// noon is the fixed time of the database's clock in these tests.
var noon = time.Date(2027, 1, 31, 12, 0, 0, 0, time.UTC)

// configBundle is an API whose clock is stopped at noon.
type configBundle struct {
	*bundle

	configs   servov1.ConfigServiceClient
	scheduler servov1.SchedulerServiceClient
}

func setupConfigs(t *testing.T) *configBundle {
	t.Helper()
	b := &configBundle{bundle: setup(t)}
	b.configs, b.scheduler = servov1.NewConfigServiceClient(b.conn), servov1.NewSchedulerServiceClient(b.conn)
	b.db.SetClock(t, noon)
	return b
}

// hourly is a spec of the pipeline single.
func hourly() *servov1.ConfigSpec {
	return &servov1.ConfigSpec{Pipeline: "single", Trigger: &servov1.ConfigTrigger{Cron: "0 * * * *"}}
}

func (b *configBundle) create(t *testing.T, name string, spec *servov1.ConfigSpec) *servov1.Config {
	t.Helper()
	c, err := b.configs.CreateConfig(t.Context(), &servov1.CreateConfigRequest{Tenant: "acme", Name: name, Spec: spec})
	require.NoError(t, err)
	return c
}

func (b *configBundle) get(t *testing.T, name string) *servov1.Config {
	t.Helper()
	c, err := b.configs.GetConfig(t.Context(), &servov1.GetConfigRequest{Tenant: "acme", Config: name})
	require.NoError(t, err)
	return c
}

// at moves the clock and fires what is due.
func (b *configBundle) at(t *testing.T, now time.Time) *servov1.TickResponse {
	t.Helper()
	b.db.SetClock(t, now)
	answer, err := b.scheduler.Tick(t.Context(), &servov1.TickRequest{})
	require.NoError(t, err)
	return answer
}

// stored is how many configs there are.
func (b *configBundle) stored(t *testing.T) int {
	t.Helper()
	answer, err := b.configs.ListConfigs(t.Context(), &servov1.ListConfigsRequest{Tenant: "acme", PageSize: 100})
	require.NoError(t, err)
	return len(answer.GetConfigs())
}

func equal(t *testing.T, want, got proto.Message) {
	t.Helper()
	require.True(t, proto.Equal(want, got), "want %v\n got %v", want, got)
}

// whole is a spec that sets every field that may be set together.
func whole(t *testing.T) *servov1.ConfigSpec {
	t.Helper()
	return &servov1.ConfigSpec{
		Pipeline: "single", Labels: map[string]string{"provider": "AWS"}, Parameters: object(t, map[string]any{"day": "tomorrow", "n": 3}),
		Priority: proto.Int32(9), Trigger: &servov1.ConfigTrigger{Interval: "15m", Anchor: timestamppb.New(noon.Add(-7 * time.Minute))}, Timezone: "Europe/Berlin",
		DependsOn: &servov1.ConfigDependency{Config: "other", Within: "26h", Wait: "1h30m"}, Overlap: "allow", MaxOverlap: proto.Int32(3),
		Catchup: &servov1.ConfigCatchup{Policy: "all", MaxSlots: proto.Int32(7), Window: "24h"}, Jitter: "30s",
		Retry:        &servov1.ConfigRetry{MaxAttempts: proto.Int32(4), InitialDelay: "10s", MaxDelay: "1m", Multiplier: proto.Float64(2), Jitter: proto.Float64(0.5), RetryOn: []string{"NETWORK_ERROR"}, TimeoutGrowth: proto.Float64(1.5)},
		MaxExecution: "10m", SlaStartDelay: "5m", MaxConsecutiveFailures: proto.Int32(8),
	}
}

func TestConfigs(t *testing.T) {
	t.Parallel()

	t.Run("given fields come back, and missing ones are filled in", func(t *testing.T) {
		t.Parallel()
		b := setupConfigs(t)
		b.create(t, "other", hourly())
		made := b.create(t, "all", whole(t))
		equal(t, whole(t), made.GetSpec())
		equal(t, made, b.get(t, "all"))
		equal(t, made, b.get(t, made.GetId()))
		require.Equal(t, "acme default ACTIVE 1", fmt.Sprintf("%s %s %s %d", made.GetTenant(), made.GetWorkspace(), made.GetState(), made.GetVersion()))
		require.Equal(t, noon.Add(8*time.Minute), made.GetNextSlot().AsTime())

		c := b.create(t, "few", hourly())
		want := hourly()
		want.Parameters, want.Priority, want.Timezone, want.Overlap = &structpb.Struct{}, proto.Int32(5), "UTC", "skip"
		want.Catchup, want.MaxExecution, want.SlaStartDelay, want.MaxConsecutiveFailures = &servov1.ConfigCatchup{Policy: "latest"}, "1h", "30m", proto.Int32(5)
		equal(t, want, c.GetSpec())
		require.Equal(t, noon.Add(time.Hour), c.GetNextSlot().AsTime())
		require.Equal(t, noon, c.GetCreatedAt().AsTime())

		_, err := b.configs.CreateConfig(t.Context(), &servov1.CreateConfigRequest{Tenant: "acme", Name: "few", Spec: hourly()})
		requireRefused(t, err, codes.AlreadyExists, "name")
	})

	t.Run("an update changes the version that was read", func(t *testing.T) {
		t.Parallel()
		b := setupConfigs(t)
		made := b.create(t, "a", hourly())
		spec := hourly()
		spec.Trigger.Cron = "30 * * * *"
		c, err := b.configs.UpdateConfig(t.Context(), &servov1.UpdateConfigRequest{Tenant: "acme", Config: made.GetId(), Spec: spec, Version: 1, Reason: "later"})
		require.NoError(t, err)
		require.Equal(t, noon.Add(30*time.Minute), c.GetNextSlot().AsTime())
		require.Equal(t, int32(2), c.GetVersion())

		_, err = b.configs.UpdateConfig(t.Context(), &servov1.UpdateConfigRequest{Tenant: "acme", Config: "a", Spec: hourly(), Version: 1})
		p := requireRefused(t, err, codes.FailedPrecondition, "version")
		require.Equal(t, "CONFLICT", p.GetCode())
		require.Equal(t, "30 * * * *", b.get(t, "a").GetSpec().GetTrigger().GetCron())

		c, err = b.configs.UpdateConfig(t.Context(), &servov1.UpdateConfigRequest{Tenant: "acme", Config: "a", Enabled: proto.Bool(false), Reason: "broken"})
		require.NoError(t, err)
		require.Equal(t, "DISABLED broken", c.GetState().String()+" "+c.GetDisabledReason())
		require.Nil(t, c.GetDueAt())
		require.Nil(t, c.GetNextSlot())
		equal(t, b.get(t, "a").GetSpec(), c.GetSpec())
		_, err = b.configs.UpdateConfig(t.Context(), &servov1.UpdateConfigRequest{Tenant: "acme", Config: "a"})
		requireRefused(t, err, codes.InvalidArgument, "spec")
	})

	t.Run("settings that lose slots are warned of when they are saved", func(t *testing.T) {
		t.Parallel()
		b := setupConfigs(t)
		spec := hourly()
		spec.Catchup = &servov1.ConfigCatchup{Policy: "all"}
		require.Contains(t, b.create(t, "a", spec).GetWarnings()[0], "only the oldest missed slot")
		spec.Overlap = "buffer_all"
		c, err := b.configs.UpdateConfig(t.Context(), &servov1.UpdateConfigRequest{Tenant: "acme", Config: "a", Spec: spec})
		require.NoError(t, err)
		require.Empty(t, c.GetWarnings())
		spec.Overlap = "skip"
		applied, err := b.configs.ApplyConfigs(t.Context(), &servov1.ApplyConfigsRequest{Tenant: "acme", DryRun: true, Configs: []*servov1.ConfigInput{{Name: "a", Spec: spec}, {Name: "b", Spec: hourly()}}})
		require.NoError(t, err)
		require.Len(t, applied.GetConfigs()[0].GetWarnings(), 1)
		require.Empty(t, applied.GetConfigs()[1].GetWarnings())
	})

	t.Run("a pause stops the slots, resuming lets the next one fire", func(t *testing.T) {
		t.Parallel()
		b := setupConfigs(t)
		b.create(t, "a", hourly())
		for range 2 {
			c, err := b.configs.PauseConfig(t.Context(), &servov1.PauseConfigRequest{Tenant: "acme", Config: "a", Reason: "the API is down"})
			require.NoError(t, err)
			require.Equal(t, "PAUSED the API is down 2", fmt.Sprintf("%s %s %d", c.GetState(), c.GetPauseNote(), c.GetVersion()))
			require.Nil(t, c.GetNextSlot(), "no slot of it comes")
			require.Nil(t, b.get(t, "a").GetNextSlot())
		}
		require.Zero(t, b.at(t, noon.Add(3*time.Hour+time.Minute)).GetRunsCreated())
		c, err := b.configs.ResumeConfig(t.Context(), &servov1.ResumeConfigRequest{Tenant: "acme", Config: "a"})
		require.NoError(t, err)
		require.Equal(t, servov1.Config_ACTIVE, c.GetState())
		require.Equal(t, noon.Add(4*time.Hour), c.GetNextSlot().AsTime())
		require.Equal(t, int64(1), b.at(t, noon.Add(4*time.Hour)).GetRunsCreated())

		answer, err := b.configs.ListSlots(t.Context(), &servov1.ListSlotsRequest{Tenant: "acme", Config: "a"})
		require.NoError(t, err)
		require.Len(t, answer.GetSlots(), 2)
		require.Equal(t, servov1.Slots_FIRED, answer.GetSlots()[0].GetOutcome())
		paused := answer.GetSlots()[1]
		require.Equal(t, "SKIPPED_PAUSED 3", fmt.Sprintf("%s %d", paused.GetOutcome(), paused.GetCount()))
		require.Equal(t, []time.Time{noon.Add(time.Hour), noon.Add(3 * time.Hour)}, []time.Time{paused.GetFrom().AsTime(), paused.GetTo().AsTime()})
	})

	t.Run("a trigger makes a run and leaves the slots alone", func(t *testing.T) {
		t.Parallel()
		b := setupConfigs(t)
		spec := hourly()
		spec.Parameters = object(t, map[string]any{"n": 3})
		made := b.create(t, "a", spec)
		ctx := metadata.AppendToOutgoingContext(t.Context(), "idempotency-key", "once")
		first, err := b.configs.TriggerConfig(ctx, &servov1.TriggerConfigRequest{Tenant: "acme", Config: "a", Note: "jo"})
		require.NoError(t, err)
		require.Equal(t, "single open", first.GetRun().GetPipeline()+" "+first.GetRun().GetTriggeredBy())
		require.InDelta(t, 3, first.GetRun().GetParameters().AsMap()["n"], 0)
		again, err := b.configs.TriggerConfig(ctx, &servov1.TriggerConfigRequest{Tenant: "acme", Config: "a", Note: "jo"})
		require.NoError(t, err)
		require.True(t, again.GetRepeatedRequest())
		require.Equal(t, first.GetRun().GetId(), again.GetRun().GetId())
		require.Equal(t, made.GetNextSlot().AsTime(), b.get(t, "a").GetNextSlot().AsTime())

		// By default runs of a config exclude each other.
		other, err := b.configs.TriggerConfig(t.Context(), &servov1.TriggerConfigRequest{Tenant: "acme", Config: "a"})
		require.NoError(t, err)
		require.True(t, other.GetAlreadyRunning())
		require.Equal(t, first.GetRun().GetId(), other.GetRun().GetId())

		// Other parameters are another run: it is refused, or waits for its turn.
		override := &servov1.TriggerConfigRequest{Tenant: "acme", Config: "a", Parameters: object(t, map[string]any{"n": 4})}
		_, err = b.configs.TriggerConfig(t.Context(), override)
		requireRefused(t, err, codes.FailedPrecondition, "pipeline")
		override.Queue = true
		queued, err := b.configs.TriggerConfig(t.Context(), override)
		require.NoError(t, err)
		require.Equal(t, servov1.Run_PENDING, queued.GetRun().GetState())
		require.InDelta(t, 4, queued.GetRun().GetParameters().AsMap()["n"], 0)
	})

	t.Run("a slot that is moved is the next, and the preview shows it", func(t *testing.T) {
		t.Parallel()
		b := setupConfigs(t)
		b.create(t, "a", hourly())
		to := noon.Add(100 * time.Minute)
		c, err := b.configs.RescheduleConfig(t.Context(), &servov1.RescheduleConfigRequest{Tenant: "acme", Config: "a", Slot: timestamppb.New(to), Version: 1})
		require.NoError(t, err)
		require.Equal(t, []time.Time{to, to}, []time.Time{c.GetNextSlot().AsTime(), c.GetRescheduledTo().AsTime()})
		answer, err := b.configs.PreviewConfig(t.Context(), &servov1.PreviewConfigRequest{Tenant: "acme", Config: "a", After: timestamppb.New(noon), Count: 2})
		require.NoError(t, err)
		require.Len(t, answer.GetSlots(), 2)
		require.Equal(t, "rescheduled", answer.GetSlots()[0].GetNote())
		require.Equal(t, []time.Time{to, noon.Add(2 * time.Hour)}, []time.Time{answer.GetSlots()[0].GetSlot().AsTime(), answer.GetSlots()[1].GetSlot().AsTime()})

		_, err = b.configs.RescheduleConfig(t.Context(), &servov1.RescheduleConfigRequest{Tenant: "acme", Config: "a", Slot: timestamppb.New(noon)})
		requireRefused(t, err, codes.InvalidArgument, "slot")
		_, err = b.configs.RescheduleConfig(t.Context(), &servov1.RescheduleConfigRequest{Tenant: "acme", Config: "a"})
		requireRefused(t, err, codes.InvalidArgument, "slot")
		_, err = b.configs.RescheduleConfig(t.Context(), &servov1.RescheduleConfigRequest{Tenant: "acme", Config: "a", Slot: timestamppb.New(to.Add(1)), Version: 1})
		requireRefused(t, err, codes.FailedPrecondition, "version")
	})

	t.Run("a preview has as many slots as are asked for, with the jitter and the clock on the wall", func(t *testing.T) {
		t.Parallel()
		b := setupConfigs(t)
		b.create(t, "a", &servov1.ConfigSpec{Pipeline: "single", Trigger: &servov1.ConfigTrigger{Cron: "30 2 * * *"}, Timezone: "Europe/Berlin", Jitter: "1h"})
		answer, err := b.configs.PreviewConfig(t.Context(), &servov1.PreviewConfigRequest{
			Tenant: "acme", Config: "a", Count: 1000, After: timestamppb.New(time.Date(2027, 3, 27, 12, 0, 0, 0, time.UTC)),
		})
		require.NoError(t, err)
		require.Len(t, answer.GetSlots(), 1000)
		gap := answer.GetSlots()[0]
		require.Equal(t, "2027-03-28T03:00:00+02:00", gap.GetLocal())
		require.NotEmpty(t, gap.GetNote(), "02:30 does not exist that day")
		delay := gap.GetDueAt().AsTime().Sub(gap.GetSlot().AsTime())
		require.True(t, delay >= 0 && delay < time.Hour, delay)
		answer, err = b.configs.PreviewConfig(t.Context(), &servov1.PreviewConfigRequest{Tenant: "acme", Config: "a"})
		require.NoError(t, err)
		require.Len(t, answer.GetSlots(), 10)

		for _, edge := range []*timestamppb.Timestamp{timestamppb.New(time.Time{}), timestamppb.New(time.Date(9999, 12, 20, 0, 0, 0, 0, time.UTC))} {
			answer, err = b.configs.PreviewConfig(t.Context(), &servov1.PreviewConfigRequest{Tenant: "acme", Config: "a", After: edge})
			require.NoError(t, err)
			for _, slot := range answer.GetSlots() {
				require.NoError(t, slot.GetDueAt().CheckValid())
			}
		}

		b.create(t, "manual", &servov1.ConfigSpec{Pipeline: "single", Trigger: &servov1.ConfigTrigger{Manual: true}})
		answer, err = b.configs.PreviewConfig(t.Context(), &servov1.PreviewConfigRequest{Tenant: "acme", Config: "manual"})
		require.NoError(t, err)
		require.Empty(t, answer.GetSlots())
	})

	t.Run("a deleted config is gone, its name is free, its history stays under its id", func(t *testing.T) {
		t.Parallel()
		b := setupConfigs(t)
		made := b.create(t, "a", hourly())
		b.at(t, noon.Add(time.Hour))
		_, err := b.configs.DeleteConfig(t.Context(), &servov1.DeleteConfigRequest{Tenant: "acme", Config: "a", Version: 7})
		requireRefused(t, err, codes.FailedPrecondition, "version")
		_, err = b.configs.DeleteConfig(t.Context(), &servov1.DeleteConfigRequest{Tenant: "acme", Config: "a", Reason: "closed"})
		require.NoError(t, err)
		_, err = b.configs.GetConfig(t.Context(), &servov1.GetConfigRequest{Tenant: "acme", Config: "a"})
		requireRefused(t, err, codes.NotFound, "config")
		gone, err := b.configs.GetConfig(t.Context(), &servov1.GetConfigRequest{Tenant: "acme", Config: made.GetId()})
		require.NoError(t, err, "by its id it is read")
		require.NotNil(t, gone.GetDeletedAt())
		for name, tenant := range map[string]string{"of its tenant": "acme", "of all": ""} {
			list, err := b.configs.ListConfigs(t.Context(), &servov1.ListConfigsRequest{Tenant: tenant, Deleted: true})
			require.NoError(t, err, name)
			require.Len(t, list.GetConfigs(), 1, name)
			require.Equal(t, made.GetId(), list.GetConfigs()[0].GetId(), name)
			list, err = b.configs.ListConfigs(t.Context(), &servov1.ListConfigsRequest{Tenant: tenant})
			require.NoError(t, err, name)
			require.Empty(t, list.GetConfigs(), name)
		}
		_, err = b.configs.PauseConfig(t.Context(), &servov1.PauseConfigRequest{Tenant: "acme", Config: made.GetId()})
		requireRefused(t, err, codes.NotFound, "config")
		_, err = b.configs.TriggerConfig(t.Context(), &servov1.TriggerConfigRequest{Tenant: "acme", Config: made.GetId()})
		requireRefused(t, err, codes.NotFound, "config")
		require.Zero(t, b.at(t, noon.Add(5*time.Hour)).GetConfigsProcessed())
		slots, err := b.configs.ListSlots(t.Context(), &servov1.ListSlotsRequest{Tenant: "acme", Config: made.GetId()})
		require.NoError(t, err)
		require.Len(t, slots.GetSlots(), 1)
		audit, err := b.configs.ListConfigAudit(t.Context(), &servov1.ListConfigAuditRequest{Tenant: "acme", Config: made.GetId()})
		require.NoError(t, err)
		last := audit.GetEntries()[0]
		require.Equal(t, "deleted closed", last.GetAction()+" "+last.GetReason())
		require.Nil(t, last.GetAfter())
		require.NotEqual(t, made.GetId(), b.create(t, "a", hourly()).GetId())
	})
}

func TestConfigsOfOthers(t *testing.T) {
	t.Parallel()
	b := setupConfigs(t)
	made := b.create(t, "a", hourly())
	slot := timestamppb.New(noon.Add(time.Minute))
	for _, name := range []string{"a", made.GetId(), "no\x00name", "no name", uuid.NewString()} {
		for call, do := range map[string]func(ctx context.Context) error{
			"get": func(ctx context.Context) error {
				_, err := b.configs.GetConfig(ctx, &servov1.GetConfigRequest{Tenant: "brick", Config: name})
				return err
			},
			"update": func(ctx context.Context) error {
				_, err := b.configs.UpdateConfig(ctx, &servov1.UpdateConfigRequest{Tenant: "brick", Config: name, Spec: hourly()})
				return err
			},
			"delete": func(ctx context.Context) error {
				_, err := b.configs.DeleteConfig(ctx, &servov1.DeleteConfigRequest{Tenant: "brick", Config: name})
				return err
			},
			"pause": func(ctx context.Context) error {
				_, err := b.configs.PauseConfig(ctx, &servov1.PauseConfigRequest{Tenant: "brick", Config: name})
				return err
			},
			"resume": func(ctx context.Context) error {
				_, err := b.configs.ResumeConfig(ctx, &servov1.ResumeConfigRequest{Tenant: "brick", Config: name})
				return err
			},
			"trigger": func(ctx context.Context) error {
				_, err := b.configs.TriggerConfig(ctx, &servov1.TriggerConfigRequest{Tenant: "brick", Config: name})
				return err
			},
			"reschedule": func(ctx context.Context) error {
				_, err := b.configs.RescheduleConfig(ctx, &servov1.RescheduleConfigRequest{Tenant: "brick", Config: name, Slot: slot})
				return err
			},
			"preview": func(ctx context.Context) error {
				_, err := b.configs.PreviewConfig(ctx, &servov1.PreviewConfigRequest{Tenant: "brick", Config: name})
				return err
			},
			"audit": func(ctx context.Context) error {
				_, err := b.configs.ListConfigAudit(ctx, &servov1.ListConfigAuditRequest{Tenant: "brick", Config: name})
				return err
			},
			"holes": func(ctx context.Context) error {
				_, err := b.configs.FindHoles(ctx, &servov1.FindHolesRequest{Tenant: "brick", Config: name})
				return err
			},
			"why": func(ctx context.Context) error {
				_, err := b.configs.ExplainConfig(ctx, &servov1.ExplainConfigRequest{Tenant: "brick", Config: name})
				return err
			},
			"slots": func(ctx context.Context) error {
				_, err := b.configs.ListSlots(ctx, &servov1.ListSlotsRequest{Tenant: "brick", Config: name})
				return err
			},
		} {
			t.Run(fmt.Sprintf("%s of %q by another tenant is not found", call, strings.ReplaceAll(name, made.GetId(), "id")), func(t *testing.T) {
				t.Parallel()
				requireRefused(t, do(t.Context()), codes.NotFound, "config")
				require.Equal(t, int32(1), b.get(t, "a").GetVersion())
			})
		}
	}
}

func TestBadConfigs(t *testing.T) {
	t.Parallel()
	b := setupConfigs(t)
	b.create(t, "good", hourly())
	type change = func(*servov1.ConfigSpec)
	changes := map[string]change{
		"spec.pipeline":         func(s *servov1.ConfigSpec) { s.Pipeline = "nothing" },
		"spec.trigger":          func(s *servov1.ConfigSpec) { s.Trigger = nil },
		"spec.trigger.cron":     func(s *servov1.ConfigSpec) { s.Trigger.Cron = "0 0 30 2 *" },
		"spec.trigger.template": func(s *servov1.ConfigSpec) { s.Trigger = &servov1.ConfigTrigger{Template: "daily-midnite"} },
		"spec.trigger.interval": func(s *servov1.ConfigSpec) { s.Trigger = &servov1.ConfigTrigger{Interval: "soon"} },
		"spec.timezone":         func(s *servov1.ConfigSpec) { s.Timezone = "Europe/Berlim" },
		"spec.parameters.day":   func(s *servov1.ConfigSpec) { s.Parameters = object(t, map[string]any{"day": "never"}) },
		"spec.parameters.n[0]":  func(s *servov1.ConfigSpec) { s.Parameters = object(t, map[string]any{"n": []any{"\x00"}}) },
		"spec.labels":           func(s *servov1.ConfigSpec) { s.Labels = map[string]string{"": "x"} },
		"spec.priority":         func(s *servov1.ConfigSpec) { s.Priority = proto.Int32(0) },
		"spec.overlap":          func(s *servov1.ConfigSpec) { s.Overlap = "sometimes" },
		"spec.max_overlap":      func(s *servov1.ConfigSpec) { s.MaxOverlap = proto.Int32(3) },
		"spec.alerts.medium_failures": func(s *servov1.ConfigSpec) {
			s.Alerts = &servov1.ConfigAlerts{Failures: proto.Int32(3), MediumFailures: proto.Int32(2)}
		},
		"spec.catchup.policy":           func(s *servov1.ConfigSpec) { s.Catchup = &servov1.ConfigCatchup{Policy: "some"} },
		"spec.catchup.window":           func(s *servov1.ConfigSpec) { s.Catchup = &servov1.ConfigCatchup{Window: "-1h"} },
		"spec.depends_on.within":        func(s *servov1.ConfigSpec) { s.DependsOn = &servov1.ConfigDependency{Config: "good"} },
		"spec.retry.max_delay":          func(s *servov1.ConfigSpec) { s.Retry = &servov1.ConfigRetry{MaxDelay: "1y"} },
		"spec.retry.max_attempts":       func(s *servov1.ConfigSpec) { s.Retry = &servov1.ConfigRetry{MaxAttempts: proto.Int32(0)} },
		"spec.retry.multiplier":         func(s *servov1.ConfigSpec) { s.Retry = &servov1.ConfigRetry{Multiplier: proto.Float64(0.5)} },
		"spec.retry.initial_delay":      func(s *servov1.ConfigSpec) { s.Retry = &servov1.ConfigRetry{InitialDelay: "2h"} },
		"spec.sla_start_delay":          func(s *servov1.ConfigSpec) { s.SlaStartDelay = "0s" },
		"spec.max_execution":            func(s *servov1.ConfigSpec) { s.MaxExecution = "10000h" },
		"spec.max_consecutive_failures": func(s *servov1.ConfigSpec) { s.MaxConsecutiveFailures = proto.Int32(0) },
	}
	for field, change := range changes {
		t.Run("nothing is stored with a bad "+field, func(t *testing.T) {
			t.Parallel()
			bad := hourly()
			change(bad)
			refused := func(err error, field string) {
				t.Helper()
				p := problemOf(t, err)
				require.Equal(t, field, p.GetField(), "%v", p)
				require.NotEmpty(t, p.GetRemedy())
				require.Contains(t, []codes.Code{codes.InvalidArgument, codes.NotFound}, codeOf(err))
			}
			_, err := b.configs.CreateConfig(t.Context(), &servov1.CreateConfigRequest{Tenant: "acme", Name: "bad", Spec: bad})
			refused(err, field)
			_, err = b.configs.UpdateConfig(t.Context(), &servov1.UpdateConfigRequest{Tenant: "acme", Config: "good", Spec: bad, UpdateMask: &fieldmaskpb.FieldMask{Paths: []string{"spec"}}})
			refused(err, field)
			for _, dry := range []bool{true, false} {
				_, err = b.configs.ApplyConfigs(t.Context(), &servov1.ApplyConfigsRequest{
					Tenant: "acme", DryRun: dry, Configs: []*servov1.ConfigInput{{Name: "fine", Spec: hourly()}, {Name: "bad", Spec: bad}},
				})
				refused(err, "configs[1]."+field)
				_, err = b.configs.ApplyConfigs(t.Context(), &servov1.ApplyConfigsRequest{Tenant: "acme", DryRun: dry, Configs: []*servov1.ConfigInput{{Name: "bad", Spec: bad}}})
				refused(err, "configs[0]."+field)
			}
			require.Equal(t, 1, b.stored(t))
			require.Equal(t, int32(1), b.get(t, "good").GetVersion())
		})
	}

	t.Run("what is beside the spec is named too", func(t *testing.T) {
		t.Parallel()
		_, err := b.configs.CreateConfig(t.Context(), &servov1.CreateConfigRequest{Tenant: "acme", Name: "no name", Spec: hourly()})
		requireRefused(t, err, codes.InvalidArgument, "name")
		_, err = b.configs.CreateConfig(t.Context(), &servov1.CreateConfigRequest{Tenant: "acme", Name: "bad"})
		requireRefused(t, err, codes.InvalidArgument, "spec")
		_, err = b.configs.CreateConfig(t.Context(), &servov1.CreateConfigRequest{Tenant: "acme", Workspace: "elsewhere", Name: "bad", Spec: hourly()})
		requireRefused(t, err, codes.NotFound, "workspace")
		_, err = b.configs.ApplyConfigs(t.Context(), &servov1.ApplyConfigsRequest{Tenant: "acme", Workspace: "elsewhere", Configs: []*servov1.ConfigInput{{Name: "bad", Spec: hourly()}}})
		requireRefused(t, err, codes.NotFound, "workspace")
		twice := []*servov1.ConfigInput{{Name: "bad", Spec: hourly()}, {Name: "bad", Spec: hourly()}}
		_, err = b.configs.ApplyConfigs(t.Context(), &servov1.ApplyConfigsRequest{Tenant: "acme", Configs: twice})
		requireRefused(t, err, codes.InvalidArgument, "configs[1].name")
		_, err = b.configs.ApplyConfigs(t.Context(), &servov1.ApplyConfigsRequest{Tenant: "acme", Configs: []*servov1.ConfigInput{{Name: "good", Spec: hourly(), Version: 3}}})
		requireRefused(t, err, codes.FailedPrecondition, "configs[0].version")
		_, err = b.configs.PauseConfig(t.Context(), &servov1.PauseConfigRequest{Tenant: "acme", Config: "good", Reason: "\x00"})
		requireRefused(t, err, codes.InvalidArgument, "reason")
	})

	t.Run("each of several mistakes has its field", func(t *testing.T) {
		t.Parallel()
		bad := hourly()
		bad.Jitter, bad.MaxExecution = "soon", "later"
		_, err := b.configs.CreateConfig(t.Context(), &servov1.CreateConfigRequest{Tenant: "acme", Name: "bad", Spec: bad})
		p := problemOf(t, err)
		fields := map[string]bool{}
		for _, v := range p.GetViolations() {
			fields[v.GetField()] = true
		}
		require.Equal(t, map[string]bool{"spec.jitter": true, "spec.max_execution": true}, fields)
	})
}
