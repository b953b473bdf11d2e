package engine_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"go.arco.dev/servo/internal/base/fault"
	"go.arco.dev/servo/internal/base/id"
	"go.arco.dev/servo/internal/devkit/servotest/verifytest"
	"go.arco.dev/servo/internal/domain/alert"
	"go.arco.dev/servo/internal/domain/config"
	"go.arco.dev/servo/internal/domain/run"
	"go.arco.dev/servo/internal/engine"
	"go.arco.dev/servo/internal/store"
)

func (w *clockwork) watch(t testing.TB) {
	t.Helper()
	more, err := w.Watch(t.Context())
	require.NoError(t, err)
	require.False(t, more)
}

// open are the alerts of the tenant that are open, as a person would write them.
func (w *clockwork) open(t testing.TB, of id.Tenant) []string {
	t.Helper()
	found, err := w.db.Alerts(t.Context(), store.AlertFilter{Tenant: of, Open: true}, 100)
	require.NoError(t, err)
	out := []string{}
	for _, a := range found {
		out = append(out, fmt.Sprintf("%s %s %s", a.Kind, a.Severity, a.Name))
	}
	return out
}

// fail lets the runs of the next minute fail.
func (w *clockwork) failOnce(t testing.TB) {
	t.Helper()
	w.forward(t, time.Minute)
	w.fire(t)
	w.finish(t, engine.Fail{Failure: run.Failure{Code: "SCHEMA_MISMATCH"}})
}

func TestWatch(t *testing.T) {
	t.Parallel()

	t.Run("a failing config has an alert until it is disabled, and all are resolved when it is resumed", func(t *testing.T) {
		t.Parallel()
		w := newClockwork(t)
		w.save(t, "cost", config.Spec{MaxConsecutiveFailures: 4})
		w.save(t, "sound", config.Spec{Trigger: config.Trigger{Manual: true}})
		for range 4 {
			w.failOnce(t)
			w.watch(t)
		}
		require.ElementsMatch(t, []string{"PIPELINE_FAILED LOW default/cost", "PIPELINE_FAILING MEDIUM default/cost", "PIPELINE_DISABLED HIGH default/cost"}, w.open(t, w.tenant))
		w.watch(t)
		require.Equal(t, 3, w.db.Count(t, `SELECT count(*) FROM servo.alerts`), "raised once, however often the loop looks")

		_, err := w.ResumeConfig(t.Context(), engine.ChangeConfig{Tenant: w.tenant, Config: w.get(t, "cost").ID, Meta: engineMeta})
		require.NoError(t, err)
		w.watch(t)
		require.Empty(t, w.open(t, w.tenant))
		require.Equal(t, 3, w.db.Count(t, `SELECT count(*) FROM servo.alerts WHERE resolved_at IS NOT NULL`))
		verifytest.Clean(t, w.db)
	})

	t.Run("an unreadable config is disabled and has an alert, and the others fire", func(t *testing.T) {
		t.Parallel()
		w := newClockwork(t)
		w.save(t, "broken", config.Spec{})
		w.save(t, "sound", config.Spec{})
		w.db.Exec(t, `UPDATE servo.configs SET spec = jsonb_set(spec, '{timezone}', '"Nowhere/Atlantis"') WHERE name = 'broken'`)
		w.forward(t, time.Minute)
		require.Equal(t, 1, w.fire(t).Runs)
		w.watch(t)
		require.Contains(t, w.open(t, w.tenant), "PIPELINE_DISABLED HIGH default/broken")
		require.Contains(t, w.get(t, "broken").DisabledReason, "it cannot be read")
	})

	t.Run("a config that a person disabled raises no alert", func(t *testing.T) {
		t.Parallel()
		w := newClockwork(t)
		w.save(t, "cost", config.Spec{})
		for range 3 {
			w.failOnce(t)
		}
		w.watch(t)
		require.ElementsMatch(t, []string{"PIPELINE_FAILED LOW default/cost", "PIPELINE_FAILING MEDIUM default/cost"}, w.open(t, w.tenant))
		off := false
		_, err := w.SaveConfigs(t.Context(), engine.SaveConfigs{
			Tenant: w.tenant, Meta: engineMeta,
			Configs: []engine.SaveConfig{{Name: "cost", Spec: w.get(t, "cost").Spec, Enabled: &off}},
		})
		require.NoError(t, err)
		w.watch(t)
		require.Empty(t, w.open(t, w.tenant))
	})

	t.Run("a deleted config has no open alerts", func(t *testing.T) {
		t.Parallel()
		w := newClockwork(t)
		w.save(t, "cost", config.Spec{})
		for range 3 {
			w.failOnce(t)
		}
		w.watch(t)
		w.db.Exec(t, `UPDATE servo.configs SET deleted_at = servo.clock(), due_at = NULL`)
		w.watch(t)
		require.Empty(t, w.open(t, w.tenant))
	})

	t.Run("configs that are overdue by a minute are an alert of the installation, until they fire", func(t *testing.T) {
		t.Parallel()
		w := newClockwork(t)
		w.save(t, "cost", config.Spec{})
		w.forward(t, 89*time.Second)
		w.watch(t)
		require.Empty(t, w.open(t, id.Tenant{}))
		w.forward(t, 2*time.Second)
		w.watch(t)
		require.Equal(t, []string{"SCHEDULE_LAG HIGH the installation"}, w.open(t, id.Tenant{}))
		require.Empty(t, w.open(t, w.tenant))
		w.fire(t)
		w.watch(t)
		require.Empty(t, w.open(t, id.Tenant{}))
		verifytest.Clean(t, w.db)
	})

	t.Run("a run that takes too long is an alert until a run of its config ends otherwise", func(t *testing.T) {
		t.Parallel()
		w := newClockwork(t)
		w.save(t, "cost", config.Spec{MaxExecution: minutes(1)})
		w.forward(t, 30*time.Second)
		w.fire(t)
		w.forward(t, 61*time.Second)
		_, err := w.ExpireRuns(t.Context(), 10)
		require.NoError(t, err)
		w.fold(t)
		w.watch(t)
		require.Contains(t, w.open(t, w.tenant), "RUN_OVERRAN MEDIUM default/cost")
		w.fire(t)
		w.finish(t, engine.Complete{})
		w.watch(t)
		require.Empty(t, w.open(t, w.tenant))
	})

	t.Run("a run that has not begun in time is an alert until it ends", func(t *testing.T) {
		t.Parallel()
		w := newClockwork(t)
		w.save(t, "cost", config.Spec{Trigger: config.Trigger{Cron: "0 * * * *"}, SLAStartDelay: minutes(5)})
		w.forward(t, time.Hour)
		w.fire(t)
		w.forward(t, 4*time.Minute)
		_, err := w.RecordLateStarts(t.Context(), 10)
		require.NoError(t, err)
		w.watch(t)
		require.Empty(t, w.open(t, w.tenant))
		w.forward(t, 2*time.Minute)
		_, err = w.RecordLateStarts(t.Context(), 10)
		require.NoError(t, err)
		w.watch(t)
		found, err := w.db.Alerts(t.Context(), store.AlertFilter{Tenant: w.tenant}, 10)
		require.NoError(t, err)
		require.Len(t, found, 1)
		require.Equal(t, "a run of config default/cost should have started by "+midnight.Truncate(time.Hour).Add(65*time.Minute).Format(time.RFC3339)+
			"; servo why cost shows what it waits for", found[0].Message)
		w.finish(t, engine.Complete{})
		w.watch(t)
		require.Empty(t, w.open(t, w.tenant))
		verifytest.Clean(t, w.db)
	})

	t.Run("ten breaches in a day are an alert of the tenant until the day is over", func(t *testing.T) {
		t.Parallel()
		w := newClockwork(t)
		const add = `INSERT INTO servo.run_deltas (tenant_id, day, labels, ended, succeeded, failed, timed_out, cancelled, started, seconds, breached, breaches)
			SELECT id, (servo.clock() AT TIME ZONE 'UTC')::date, '', 0, 0, 0, 0, 0, 0, 0, 0, %d FROM servo.tenants`
		w.db.Exec(t, fmt.Sprintf(add, 9))
		w.watch(t)
		require.Empty(t, w.open(t, w.tenant))
		w.db.Exec(t, fmt.Sprintf(add, 1))
		w.watch(t)
		require.Equal(t, []string{"SLA_BREACHES MEDIUM " + w.name(t)}, w.open(t, w.tenant))
		w.forward(t, 24*time.Hour)
		w.watch(t)
		require.Empty(t, w.open(t, w.tenant))
	})

	t.Run("many servers that check at once raise one alert", func(t *testing.T) {
		t.Parallel()
		w := newClockwork(t)
		for i := range 20 {
			w.save(t, fmt.Sprintf("cost-%d", i), config.Spec{MaxConsecutiveFailures: 3})
		}
		for range 3 {
			w.failOnce(t)
		}
		_, _, err := w.CreateChannel(t.Context(), w.tenant, alert.ChannelSettings{Name: "hook", URL: "https://example.com/x"}, engineMeta)
		require.NoError(t, err)
		var all sync.WaitGroup
		for range 8 {
			all.Go(func() {
				for range 5 {
					if _, err := w.Watch(t.Context()); err != nil {
						t.Error(err)
					}
				}
			})
		}
		all.Wait()
		require.Equal(t, 60, w.db.Count(t, `SELECT count(*) FROM servo.alerts`))
		require.Equal(t, 60, w.db.Count(t, `SELECT count(*) FROM servo.alert_deliveries`))
		verifytest.Clean(t, w.db)
	})

	t.Run("an interrupted check leaves nothing, and the next one raises all alerts", func(t *testing.T) {
		t.Parallel()
		w := newClockwork(t)
		w.save(t, "cost", config.Spec{MaxConsecutiveFailures: 3})
		for range 3 {
			w.failOnce(t)
		}
		w.db.Exec(t, `ALTER TABLE servo.alerts ADD CONSTRAINT never CHECK (false) NOT VALID`)
		_, err := w.Watch(t.Context())
		require.Error(t, err)
		require.Zero(t, w.db.Count(t, `SELECT count(*) FROM servo.entity_events WHERE type LIKE 'alert.%'`))
		w.db.Exec(t, `ALTER TABLE servo.alerts DROP CONSTRAINT never`)
		w.watch(t)
		require.Len(t, w.open(t, w.tenant), 3)
		verifytest.Clean(t, w.db)
	})
}

func (w *clockwork) name(t testing.TB) string {
	t.Helper()
	view, err := w.db.GetTenant(t.Context(), w.tenant)
	require.NoError(t, err)
	return view.Name
}

// loud is a clockwork with channels and a config whose failures they report.
func loud(t *testing.T) *clockwork {
	t.Helper()
	w := newClockwork(t)
	for name, owner := range map[string]id.Tenant{"mine": w.tenant, "installation": {}} {
		_, secret, err := w.CreateChannel(t.Context(), owner, alert.ChannelSettings{Name: name, URL: "https://example.com/" + name, Severity: alert.High}, engineMeta)
		require.NoError(t, err)
		require.Len(t, secret, 32)
	}
	w.save(t, "cost", config.Spec{MaxConsecutiveFailures: 1})
	return w
}

func (w *clockwork) take(t testing.TB) []alert.Message {
	t.Helper()
	taken, now, err := w.TakeMessages(t.Context(), 100)
	require.NoError(t, err)
	require.Equal(t, w.now, now.UTC())
	return taken
}

func describe(messages []alert.Message) []string {
	out := []string{}
	for _, m := range messages {
		out = append(out, fmt.Sprintf("%s %s %s", m.Channel.Name, m.Alert.Kind, m.Change))
	}
	return out
}

func (w *clockwork) settle(t testing.TB, messages []alert.Message, failure string) {
	t.Helper()
	for _, m := range messages {
		require.NoError(t, w.MessageSent(t.Context(), m, failure))
	}
}

func TestMessages(t *testing.T) {
	t.Parallel()

	t.Run("each channel of an alert receives the beginning, then the end", func(t *testing.T) {
		t.Parallel()
		w := loud(t)
		w.failOnce(t)
		w.watch(t)
		due, err := w.db.MessagesDue(t.Context())
		require.NoError(t, err)
		require.True(t, due)
		begun := w.take(t)
		require.ElementsMatch(t, []string{"mine PIPELINE_DISABLED raised", "installation PIPELINE_DISABLED raised"}, describe(begun))
		require.Equal(t, w.name(t), begun[0].Tenant)
		require.Empty(t, w.take(t), "no sender takes what another has")

		_, err = w.ResumeConfig(t.Context(), engine.ChangeConfig{Tenant: w.tenant, Config: w.get(t, "cost").ID, Meta: engineMeta})
		require.NoError(t, err)
		w.watch(t)
		require.Empty(t, w.take(t), "the end waits until the beginning was delivered")
		w.settle(t, begun, "")
		over := w.take(t)
		require.ElementsMatch(t, []string{"mine PIPELINE_DISABLED resolved", "installation PIPELINE_DISABLED resolved"}, describe(over))
		w.settle(t, over, "")
		w.forward(t, 25*time.Hour)
		require.Empty(t, w.take(t))
		_, sent, err := w.db.GetAlert(t.Context(), w.tenant, over[0].Alert.ID)
		require.NoError(t, err)
		require.Len(t, sent, 4)
		for _, d := range sent {
			require.False(t, d.Delivered.IsZero())
			require.Equal(t, 1, d.Tries)
		}
		verifytest.Clean(t, w.db)
	})

	t.Run("an unacknowledged message is sent again, and the late answer changes nothing", func(t *testing.T) {
		t.Parallel()
		w := loud(t)
		w.failOnce(t)
		w.watch(t)
		lost := w.take(t)
		w.forward(t, time.Minute)
		again := w.take(t)
		require.ElementsMatch(t, describe(lost), describe(again))
		w.settle(t, again, "")
		w.settle(t, lost, "answered 500") // the server that was thought dead
		require.Equal(t, 2, w.db.Count(t, `SELECT count(*) FROM servo.alert_deliveries WHERE delivered_at IS NOT NULL AND due_at IS NULL AND error = ''`))
	})

	t.Run("what fails is tried later and later, and given up after a day; then the end may go", func(t *testing.T) {
		t.Parallel()
		w := loud(t)
		w.failOnce(t)
		w.watch(t)
		_, err := w.ResumeConfig(t.Context(), engine.ChangeConfig{Tenant: w.tenant, Config: w.get(t, "cost").ID, Meta: engineMeta})
		require.NoError(t, err)
		w.watch(t)
		tries := 0
		for range 200 {
			taken := w.take(t)
			if len(taken) > 0 && taken[0].Change == alert.Ended {
				break
			}
			if len(taken) > 0 {
				tries++
				w.settle(t, taken, "answered 500 Internal Server Error")
			}
			w.forward(t, 10*time.Minute)
		}
		require.Greater(t, tries, 20)
		require.Less(t, tries, 40)
		require.Equal(t, 2, w.db.Count(t, `SELECT count(*) FROM servo.alert_deliveries WHERE change = 1 AND due_at IS NULL AND delivered_at IS NULL AND error <> ''`))
	})

	t.Run("a deleted channel receives nothing", func(t *testing.T) {
		t.Parallel()
		w := loud(t)
		w.failOnce(t)
		w.watch(t)
		require.NoError(t, w.DeleteChannel(t.Context(), w.tenant, "mine", engineMeta))
		for _, m := range w.take(t) {
			if m.Channel.Name == "mine" {
				require.False(t, m.Channel.DeletedAt.IsZero())
				w.settle(t, []alert.Message{m}, "the channel was deleted")
			}
		}
		require.Zero(t, w.db.Count(t, `SELECT count(*) FROM servo.alert_deliveries d JOIN servo.alert_channels c ON c.id = d.channel_id WHERE c.name = 'mine' AND d.due_at IS NOT NULL`))
		err := w.DeleteChannel(t.Context(), w.tenant, "mine", engineMeta)
		require.True(t, fault.Is(err, fault.NotFound), err)
		_, _, err = w.CreateChannel(t.Context(), w.tenant, alert.ChannelSettings{Name: "mine", URL: "https://example.com/new"}, engineMeta)
		require.NoError(t, err, "its name is free again")
		verifytest.Clean(t, w.db)
	})

	t.Run("many servers that take at once take each message once", func(t *testing.T) {
		t.Parallel()
		w := loud(t)
		for i := range 30 {
			w.save(t, fmt.Sprintf("cost-%d", i), config.Spec{MaxConsecutiveFailures: 1})
		}
		w.failOnce(t)
		w.watch(t)
		var (
			all  sync.WaitGroup
			mu   sync.Mutex
			seen = map[string]int{}
		)
		for range 8 {
			all.Go(func() {
				for {
					taken, _, err := w.TakeMessages(context.WithoutCancel(t.Context()), 5)
					if err != nil {
						t.Error(err)
						return
					}
					if len(taken) == 0 {
						return
					}
					mu.Lock()
					for _, m := range taken {
						seen[m.Channel.Name+m.ID()]++
					}
					mu.Unlock()
				}
			})
		}
		all.Wait()
		require.Len(t, seen, 62)
		for _, n := range seen {
			require.Equal(t, 1, n)
		}
	})
}

func TestChannels(t *testing.T) {
	t.Parallel()
	w := newClockwork(t)
	good := alert.ChannelSettings{Name: "hook", URL: "https://example.com/x"}
	made, _, err := w.CreateChannel(t.Context(), w.tenant, good, engineMeta)
	require.NoError(t, err)
	require.Equal(t, alert.Low, made.Severity, "it receives all alerts by default")
	_, _, err = w.CreateChannel(t.Context(), w.tenant, good, engineMeta)
	require.True(t, fault.Is(err, fault.AlreadyExists), err)
	_, _, err = w.CreateChannel(t.Context(), id.Tenant{}, good, engineMeta)
	require.NoError(t, err, "another's may have the same name")
	_, _, err = w.CreateChannel(t.Context(), w.tenant, alert.ChannelSettings{Name: "bad", URL: "file:///etc/passwd"}, engineMeta)
	require.True(t, fault.Is(err, fault.InvalidArgument), err)
	for i := range alert.MaxChannels - 1 {
		_, _, err = w.CreateChannel(t.Context(), w.tenant, alert.ChannelSettings{Name: fmt.Sprintf("hook-%d", i), URL: good.URL}, engineMeta)
		require.NoError(t, err)
	}
	_, _, err = w.CreateChannel(t.Context(), w.tenant, alert.ChannelSettings{Name: "one-more", URL: good.URL}, engineMeta)
	require.True(t, fault.Is(err, fault.LimitExceeded), err)
	found, err := w.db.Channels(t.Context(), w.tenant)
	require.NoError(t, err)
	require.Len(t, found, alert.MaxChannels)
	verifytest.Clean(t, w.db)
}
