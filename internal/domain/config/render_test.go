package config_test

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"go.arco.dev/servo/internal/base/fault"
	"go.arco.dev/servo/internal/domain/config"
)

func TestRender(t *testing.T) {
	t.Parallel()
	spec := config.Spec{Pipeline: "p", Trigger: config.Trigger{Cron: "30 2 * * *"}, Timezone: "Europe/Berlin"}.Filled(noon)
	sched, err := spec.Schedule()
	require.NoError(t, err)
	// The night in which clocks go forward: 02:30 does not exist, and the slot is at 03:00.
	slot, ok := sched.Next(time.Date(2026, 3, 28, 12, 0, 0, 0, time.UTC))
	require.True(t, ok)
	window := config.WindowAt(sched, slot, time.Time{})
	require.Equal(t, 23*time.Hour+30*time.Minute, window.End.Sub(window.Start))

	for text, want := range map[string]string{
		`"{{ slot }}"`:                         `"2026-03-29T01:00:00Z"`,
		`"{{slot|local}}"`:                     `"2026-03-29T03:00:00+02:00"`,
		`"{{ slot | date }}"`:                  `"2026-03-29"`,
		`"{{ interval.start }}"`:               `"2026-03-28T01:30:00Z"`,
		`"{{ interval.start | local }}"`:       `"2026-03-28T02:30:00+01:00"`,
		`"{{ interval.end - 1d | date }}"`:     `"2026-03-28"`,
		`"{{ slot - 1w + 2h | local }}"`:       `"2026-03-22T05:00:00+01:00"`,
		`"{{ slot | unix }}"`:                  `1774746000`,
		`"at {{ slot | unix }}"`:               `"at 1774746000"`,
		`"s3://b/{{ slot | \"%Y/%m/%d\" }}/x"`: `"s3://b/2026/03/29/x"`,
		`["{{ slot | date }}", 1.50, {"a": "{{ interval.end | date }} %"}]`: `["2026-03-29", 1.50, {"a": "2026-03-29 %"}]`,
	} {
		spec.Parameters = json.RawMessage(`{"p": ` + text + `, "n": 12345678901234567890}`)
		got, err := spec.Render(window)
		require.NoError(t, err, text)
		require.JSONEq(t, `{"p": `+want+`, "n": 12345678901234567890}`, string(got))
	}
	for text, path := range map[string]string{
		`"{{ slott }}"`: "parameters.p", `"{{ slot"`: "parameters.p", `"{{ }}"`: "parameters.p", `"{{ slot - 1x }}"`: "parameters.p", `"{{ slot 1d }}"`: "parameters.p",
		`"{{ slot | iso }}"`: "parameters.p", `"{{ slot | \"%Q\" }}"`: "parameters.p", `[1, {"q": "{{ x }}"}]`: "parameters.p[1].q", `"{{ slot + 999999d }}"`: "parameters.p",
	} {
		spec.Parameters = json.RawMessage(`{"p": ` + text + `}`)
		_, err := spec.Validate()
		f, ok := fault.As(err)
		require.True(t, ok, text)
		require.Equal(t, path, f.Field)
		require.NotEmpty(t, f.Remedy)
		require.NotContains(t, f.Message, "strconv")
	}

	t.Run("a run that no slot makes has the time of its trigger", func(t *testing.T) {
		t.Parallel()
		now := slot.Add(time.Hour)
		w := config.WindowAt(sched, time.Time{}, now)
		require.Equal(t, config.Window{Start: slot, End: now, At: now}, w)
		require.Equal(t, config.Window{At: now}, config.WindowAt(nil, time.Time{}, now))
	})
}
