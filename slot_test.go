package servo_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/types/known/structpb"

	"go.arco.dev/servo"
	servov1 "go.arco.dev/servo/gen/servo/v1"
	"go.arco.dev/servo/internal/devkit/servotest"
	"go.arco.dev/servo/internal/domain/schedule"
)

const slotted = `{"version": 1, "assets": [
	{"key": "s/go", "go": {}},
	{"key": "s/push", "pool": "edge", "go": {}},
	{"key": "s/exec", "exec": {"command": ["sh", "-c", "printf '\"%s %s %s %s %s\"' $SERVO_SLOT $SERVO_INTERVAL_START $SERVO_INTERVAL_END $SERVO_CONFIG $SERVO_TRIGGER > $SERVO_RESULT"]}},
	{"key": "s/stdin", "exec": {"command": ["sh", "-c", "cat > $SERVO_RESULT"]}}
], "pipelines": [{"name": "slots", "overlap": "allow", "parameters": [{"name": "day", "type": "string"}, {"name": "since", "type": "integer"}]}]}`

// seen is what a function received about its slot.
func seen(_ context.Context, task *servo.Task, p struct {
	Day   string `json:"day"`
	Since int64  `json:"since"`
},
) (string, error) {
	if task.Token == 0 {
		return "", errors.New("the task has no fencing token")
	}
	return strings.Join([]string{
		task.Slot.Format(time.RFC3339), task.IntervalStart.Format(time.RFC3339), task.IntervalEnd.Format(time.RFC3339), task.Config, task.TriggerType,
		p.Day, time.Unix(p.Since, 0).UTC().Format(time.RFC3339),
	}, " "), nil
}

// TestSlotReachesTheCode fires slots around a change of the clock: 02:30 of the day on which
// summer time begins does not exist in Berlin.
func TestSlotReachesTheCode(t *testing.T) {
	t.Parallel()
	b := setup(t, slotted)
	db := &servotest.Database{URL: b.database}
	b.work(t, func(w *servo.Worker) { servo.Asset(w, "s/go", seen) })
	b.servePush(t, "edge", func(w *servo.Worker) { servo.Asset(w, "s/push", seen) })

	now := time.Now().UTC().Truncate(time.Second)
	var spring time.Time
	for _, change := range schedule.Transitions("Europe/Berlin", now.AddDate(-1, 0, 0), now) {
		if change.At.Month() == time.March {
			spring = change.At
		}
	}
	require.False(t, spring.IsZero())

	// The config is created before the change and fires what it has missed.
	db.SetClock(t, spring.AddDate(0, 0, -2))
	parameters, err := structpb.NewStruct(map[string]any{"day": "{{ interval.start | date }}", "since": "{{ interval.start | unix }}"})
	require.NoError(t, err)
	made, err := b.Configs().CreateConfig(t.Context(), &servov1.CreateConfigRequest{Tenant: "acme", Name: "nightly", Spec: &servov1.ConfigSpec{
		Pipeline: "slots", Timezone: "Europe/Berlin", Overlap: "allow", Parameters: parameters, Catchup: &servov1.ConfigCatchup{Policy: "all"},
		Trigger: &servov1.ConfigTrigger{Cron: fmt.Sprintf("30 2 %d,%d 3 *", spring.Day()-1, spring.Day())},
	}})
	require.NoError(t, err)
	preview, err := b.Configs().PreviewConfig(t.Context(), &servov1.PreviewConfigRequest{Tenant: "acme", Config: "nightly", Count: 2})
	require.NoError(t, err)
	require.Equal(t, spring.AddDate(0, 0, -1).Format(time.DateOnly), preview.GetSlots()[1].GetParameters().GetFields()["day"].GetStringValue())
	db.Exec(t, `CREATE OR REPLACE FUNCTION servo.clock() RETURNS timestamptz LANGUAGE sql VOLATILE AS 'SELECT clock_timestamp()'`)
	_, err = b.Scheduler().Tick(t.Context(), &servov1.TickRequest{})
	require.NoError(t, err)

	var runs []*servov1.Run
	require.Eventually(t, func() bool {
		answer, err := b.Runs().ListRuns(t.Context(), &servov1.ListRunsRequest{Tenant: "acme", Config: made.GetId()})
		runs = answer.GetRuns()
		return err == nil && len(runs) == 2
	}, time.Minute, 10*time.Millisecond)
	slot, before := spring, spring.AddDate(0, 0, -1).Add(30*time.Minute)
	want := strings.Join([]string{slot.Format(time.RFC3339), before.Format(time.RFC3339), slot.Format(time.RFC3339), "nightly", "schedule"}, " ")
	for _, r := range runs {
		r = b.end(t, r.GetId())
		require.Equal(t, servov1.Run_SUCCEEDED, r.GetState(), "%v", b.tasks(t, r.GetId()))
		if !r.GetSlot().AsTime().Equal(slot) {
			continue
		}
		require.Equal(t, before, r.GetIntervalStart().AsTime())
		require.Equal(t, slot, r.GetIntervalEnd().AsTime())
		tasks := b.tasks(t, r.GetId())
		require.JSONEq(t, `"`+want+`"`, result(t, tasks["s/exec"]))
		for _, asset := range []string{"s/go", "s/push"} {
			require.JSONEq(t, `"`+want+" "+before.Format(time.DateOnly)+" "+before.Format(time.RFC3339)+`"`, result(t, tasks[asset]), asset)
		}
		var stdin struct {
			Slot, Config string
			TriggerType  string `json:"trigger_type"`
			Interval     struct{ Start, End string }
		}
		require.NoError(t, json.Unmarshal([]byte(result(t, tasks["s/stdin"])), &stdin))
		require.Equal(t, want, strings.Join([]string{stdin.Slot, stdin.Interval.Start, stdin.Interval.End, stdin.Config, stdin.TriggerType}, " "))

		retried, err := b.Runs().RetryRun(t.Context(), &servov1.RetryRunRequest{Tenant: "acme", Run: r.GetId(), Mode: servov1.RetryRunRequest_ALL})
		require.NoError(t, err)
		again := b.end(t, retried.GetRun().GetId())
		require.JSONEq(t, `"`+strings.ReplaceAll(want, "schedule", "retry")+`"`, result(t, b.tasks(t, again.GetId())["s/exec"]), "a retry works for the same slot")
	}
}
