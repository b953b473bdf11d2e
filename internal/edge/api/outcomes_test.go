package api_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/types/known/timestamppb"

	servov1 "go.arco.dev/servo/gen/servo/v1"
)

func TestOutcomes(t *testing.T) {
	t.Parallel()
	b := setupConfigs(t)
	spec := hourly()
	spec.Overlap, spec.Timezone = "allow", "Europe/Berlin"
	made := b.create(t, "a", spec)
	for hour := 1; hour <= 2; hour++ {
		b.at(t, noon.Add(time.Duration(hour)*time.Hour))
	}
	b.report(t, complete(b.one(t), nil))
	b.at(t, noon.Add(4*time.Hour))  // of two that were missed the newest fires
	b.at(t, noon.Add(16*time.Hour)) // and of twelve, eleven of which lie on two days
	ask := func(change func(*servov1.GetOutcomesRequest)) (*servov1.ConfigOutcomes, error) {
		req := &servov1.GetOutcomesRequest{Tenant: "acme", Config: "a"}
		if change != nil {
			change(req)
		}
		return b.configs.GetOutcomes(t.Context(), req)
	}
	day := func(of string, from time.Time) *servov1.DayOutcomes {
		return &servov1.DayOutcomes{Day: of, From: timestamppb.New(from), To: timestamppb.New(from.Add(24 * time.Hour))}
	}
	berlin := noon.Add(-13 * time.Hour)

	{ // days are those of the config
		got, err := ask(nil)
		require.NoError(t, err)
		first, second := day("2027-01-31", berlin), day("2027-02-01", berlin.Add(24*time.Hour))
		first.Succeeded, first.Running, first.SlaMissed, first.Skipped = 1, 2, 1, []*servov1.SkippedOutcome{{Outcome: servov1.Slots_SKIPPED_CATCHUP, Slots: 1, More: true}}
		second.Running, second.Skipped, second.Next = 1, []*servov1.SkippedOutcome{{Outcome: servov1.Slots_SKIPPED_CATCHUP, More: true}}, 18
		requireMessage(t, &servov1.ConfigOutcomes{Timezone: "Europe/Berlin", From: "2027-01-03", To: "2027-02-01", Days: []*servov1.DayOutcomes{first, second}}, got)
	}

	{ // or of a zone that is named, up to days that come
		got, err := ask(func(r *servov1.GetOutcomesRequest) { r.Timezone, r.From, r.To = "UTC", "2027-02-01", "2027-02-02" })
		require.NoError(t, err)
		require.Len(t, got.GetDays(), 2)
		require.Equal(t, []int64{19, 24}, []int64{got.GetDays()[0].GetNext(), got.GetDays()[1].GetNext()})
		require.Equal(t, noon.Add(12*time.Hour), got.GetDays()[0].GetFrom().AsTime())
	}

	{ // more slots than are counted come
		often := hourly()
		often.Trigger = &servov1.ConfigTrigger{Cron: "* * * * *"}
		b.create(t, "often", often)
		got, err := ask(func(r *servov1.GetOutcomesRequest) { r.Config, r.From, r.To = "often", "2027-02-01", "2027-02-28" })
		require.NoError(t, err)
		var next int64
		for _, d := range got.GetDays() {
			next += d.GetNext()
		}
		require.EqualValues(t, 12_000, next)
		require.Equal(t, noon.Add(16*time.Hour+12_000*time.Minute), got.GetCountedTo().AsTime())
	}

	{ // months of hours are all counted
		got, err := ask(func(r *servov1.GetOutcomesRequest) { r.From, r.To = "2027-02-01", "2027-05-31" })
		require.NoError(t, err)
		require.Nil(t, got.GetCountedTo())
		for _, d := range got.GetDays() {
			if d.GetDay() == "2027-02-05" {
				require.EqualValues(t, 24, d.GetNext())
			}
		}
	}

	{ // a paused config has no next slots; a deleted one keeps its past and its zone
		_, err := b.configs.PauseConfig(t.Context(), &servov1.PauseConfigRequest{Tenant: "acme", Config: "a", Reason: "r"})
		require.NoError(t, err)
		got, err := ask(nil)
		require.NoError(t, err)
		require.Zero(t, got.GetDays()[1].GetNext())
		_, err = b.configs.DeleteConfig(t.Context(), &servov1.DeleteConfigRequest{Tenant: "acme", Config: "a"})
		require.NoError(t, err)
		got, err = ask(func(r *servov1.GetOutcomesRequest) { r.Config = made.GetId() })
		require.NoError(t, err)
		require.Equal(t, "Europe/Berlin", got.GetTimezone())
		require.EqualValues(t, 1, got.GetDays()[0].GetSucceeded())
		require.Zero(t, got.GetDays()[1].GetNext())
		_, err = ask(nil)
		requireRefused(t, err, codes.NotFound, "config")
	}

	{ // what cannot be read is named
		b.create(t, "a", hourly())
		for field, change := range map[string]func(*servov1.GetOutcomesRequest){
			"timezone": func(r *servov1.GetOutcomesRequest) { r.Timezone = "Mars/Base" },
			"from":     func(r *servov1.GetOutcomesRequest) { r.From = "2025-01-01" },
			"to":       func(r *servov1.GetOutcomesRequest) { r.To = "tomorrow" },
		} {
			_, err := ask(change)
			requireRefused(t, err, codes.InvalidArgument, field)
		}
	}
}
