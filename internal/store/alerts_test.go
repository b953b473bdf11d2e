package store_test

import (
	"context"
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"go.arco.dev/servo/internal/base/fault"
	"go.arco.dev/servo/internal/base/id"
	"go.arco.dev/servo/internal/domain/alert"
	"go.arco.dev/servo/internal/domain/config"
	"go.arco.dev/servo/internal/store"
)

// channel writes a channel of a tenant, or of the installation.
func (w *world) channel(t testing.TB, owner id.Tenant, name string) alert.Channel {
	t.Helper()
	c := alert.Channel{
		Tenant: owner, ID: id.New[id.Channel](w.mint), Version: 1, CreatedBy: "jo", CreatedAt: w.now,
		ChannelSettings: alert.ChannelSettings{Name: name, URL: "https://example.com/" + name, Severity: alert.Medium},
	}
	w.engine(t, func(tx *Tx) { require.NoError(t, tx.InsertChannel(t.Context(), c, make([]byte, 32))) })
	return c
}

// alert writes an alert with a message to each channel.
func (w *world) alert(t testing.TB, owner id.Tenant, kind alert.Kind, channels ...alert.Channel) alert.Alert {
	t.Helper()
	a := alert.Alert{
		Tenant: owner, ID: id.New[id.Alert](w.mint), Version: 1, Kind: kind, Severity: kind.Severity(), About: uuid.New(), Name: "default/x", Message: "why", RaisedAt: w.now,
	}
	var messages []alert.Message
	for _, c := range channels {
		messages = append(messages, alert.Message{Alert: a, Channel: c, Change: alert.Begun})
	}
	w.engine(t, func(tx *Tx) { require.NoError(t, tx.ChangeAlerts(t.Context(), w.now, []alert.Alert{a}, nil, messages)) })
	return a
}

func TestAlertRows(t *testing.T) {
	t.Parallel()

	t.Run("alerts and channels come back as they were written", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t)
		acme, brick := w.account(t, "acme"), w.account(t, "brick")
		mine, all := w.channel(t, acme.tenant, "mine"), w.channel(t, id.Tenant{}, "all")
		first, second := w.alert(t, acme.tenant, alert.PipelineFailing), w.alert(t, acme.tenant, alert.RunLate)
		own := w.alert(t, id.Tenant{}, alert.ScheduleLag)
		w.engine(t, func(tx *Tx) {
			require.True(t, must(tx.WatchAlone(t.Context()))(t))
			require.ElementsMatch(t, []alert.Alert{first, second, own}, must(tx.OpenAlerts(t.Context()))(t))
			require.Equal(t, []alert.Channel{all, mine}, must(tx.ChannelsOf(t.Context(), []id.Tenant{acme.tenant, {}, acme.tenant, brick.tenant}))(t))
			require.Equal(t, mine, must(tx.LockChannel(t.Context(), acme.tenant, "mine"))(t))
			_, err := tx.LockChannel(t.Context(), brick.tenant, "mine")
			require.True(t, fault.Is(err, fault.NotFound), err)
			require.NoError(t, tx.ChangeAlerts(t.Context(), w.now, nil, []alert.Alert{first}, nil))
		})
		read, secret, now, err := w.ChannelSecret(t.Context(), acme.tenant, "mine")
		require.NoError(t, err)
		require.Equal(t, mine.ID, read.ID)
		require.Equal(t, mine.ChannelSettings, read.ChannelSettings)
		require.GreaterOrEqual(t, len(secret), 24)
		require.False(t, now.Before(w.now))
		_, _, _, err = w.ChannelSecret(t.Context(), brick.tenant, "mine")
		require.True(t, fault.Is(err, fault.NotFound), err)
		first.Version, first.ResolvedAt = 2, w.now
		list := func(f store.AlertFilter) []alert.Alert { return must(w.Alerts(t.Context(), f, 10))(t) }
		require.Equal(t, []alert.Alert{second, first}, list(store.AlertFilter{Tenant: acme.tenant}))
		require.Equal(t, []alert.Alert{second}, list(store.AlertFilter{Tenant: acme.tenant, Open: true}))
		require.Equal(t, []alert.Alert{first}, list(store.AlertFilter{Tenant: acme.tenant, Before: second.ID}))
		require.Equal(t, []alert.Alert{first}, list(store.AlertFilter{Tenant: acme.tenant, Kind: alert.PipelineFailing}))
		require.Empty(t, list(store.AlertFilter{Tenant: brick.tenant}))
		require.Equal(t, []alert.Alert{own}, list(store.AlertFilter{}))
		everywhere := must(w.AllOpenAlerts(t.Context(), store.AlertFilter{}, 10))(t)
		require.Equal(t, []store.OwnedAlert{{Alert: own}, {Alert: second, TenantName: "acme"}}, everywhere)
		require.Equal(t, everywhere[1:], must(w.AllOpenAlerts(t.Context(), store.AlertFilter{Before: own.ID}, 10))(t))
		require.Empty(t, must(w.AllOpenAlerts(t.Context(), store.AlertFilter{Kind: alert.PipelineFailing}, 10))(t))
		require.Equal(t, []alert.Channel{mine}, must(w.Channels(t.Context(), acme.tenant))(t))

		w.engine(t, func(tx *Tx) { require.NoError(t, tx.DeleteChannel(t.Context(), mine, w.now)) })
		require.Empty(t, must(w.Channels(t.Context(), acme.tenant))(t))
		w.channel(t, acme.tenant, "mine")
	})

	t.Run("a second open alert about the same is impossible, and so is a second channel of a name", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t)
		acme := w.account(t, "acme")
		a := w.alert(t, acme.tenant, alert.PipelineFailing)
		again := a
		again.ID = id.New[id.Alert](w.mint)
		err := w.Engine(t.Context(), func(ctx context.Context, tx *Tx) error {
			return tx.ChangeAlerts(ctx, w.now, []alert.Alert{again}, nil, nil)
		})
		require.ErrorContains(t, err, "alerts_open")
		c := w.channel(t, acme.tenant, "mine")
		c.ID = id.New[id.Channel](w.mint)
		err = w.Engine(t.Context(), func(ctx context.Context, tx *Tx) error { return tx.InsertChannel(ctx, c, make([]byte, 32)) })
		require.True(t, fault.Is(err, fault.AlreadyExists), err)
	})

	t.Run("who watches, watches alone", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t)
		w.engine(t, func(tx *Tx) {
			require.True(t, must(tx.WatchAlone(t.Context()))(t))
			require.NoError(t, w.Engine(t.Context(), func(ctx context.Context, other *Tx) error {
				require.False(t, must(other.WatchAlone(ctx))(t))
				return nil
			}))
		})
		w.engine(t, func(tx *Tx) { require.True(t, must(tx.WatchAlone(t.Context()))(t)) })
	})
}

func TestMessageRows(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	acme := w.account(t, "acme")
	c := w.channel(t, acme.tenant, "mine")
	require.False(t, must(w.MessagesDue(t.Context()))(t))
	a := w.alert(t, acme.tenant, alert.PipelineFailing, c)
	a.Version, a.ResolvedAt = 2, w.now
	w.engine(t, func(tx *Tx) {
		require.NoError(t, tx.ChangeAlerts(t.Context(), w.now, nil, []alert.Alert{a}, []alert.Message{{Alert: a, Channel: c, Change: alert.Ended}}))
	})
	require.True(t, must(w.MessagesDue(t.Context()))(t))
	take := func(now time.Time) (taken []alert.Message) {
		w.engine(t, func(tx *Tx) { taken = must(tx.TakeMessages(t.Context(), now, time.Minute, 10))(t) })
		return taken
	}
	settle := func(m alert.Message, s store.Settled) (counted bool) {
		w.engine(t, func(tx *Tx) { counted = must(tx.SettleMessage(t.Context(), m, w.now, s))(t) })
		return counted
	}
	taken := take(w.now)
	require.Len(t, taken, 1, "the end waits for the beginning")
	require.Equal(t, alert.Begun, taken[0].Change)
	require.Equal(t, a, taken[0].Alert)
	require.Equal(t, "acme", taken[0].Tenant)
	require.Equal(t, c.URL, taken[0].Channel.URL)
	require.Len(t, taken[0].Secret, 32)
	require.Zero(t, taken[0].Tries)

	require.True(t, settle(taken[0], store.Settled{Again: w.now.Add(time.Second), Error: "answered 500"}))
	require.Empty(t, take(w.now))
	again := take(w.now.Add(time.Second))
	require.Len(t, again, 1)
	require.Equal(t, 1, again[0].Tries)
	require.False(t, settle(taken[0], store.Settled{Delivered: w.now}), "the first try is over")
	require.True(t, settle(again[0], store.Settled{Delivered: w.now}))
	over := take(w.now)
	require.Len(t, over, 1)
	require.Equal(t, alert.Ended, over[0].Change)
	require.True(t, settle(over[0], store.Settled{Error: "given up"}))

	_, sent, err := w.GetAlert(t.Context(), acme.tenant, a.ID)
	require.NoError(t, err)
	require.Equal(t, []store.Delivery{
		{Channel: "mine", Change: alert.Begun, Since: w.now, Tries: 2, Delivered: w.now},
		{Channel: "mine", Change: alert.Ended, Since: w.now, Tries: 1, Error: "given up"},
	}, sent)
	_, _, err = w.GetAlert(t.Context(), w.account(t, "brick").tenant, a.ID)
	require.True(t, fault.Is(err, fault.NotFound), err)
}

// TestConditions: what a look costs depends on what is wrong, not on what is there.
func TestConditions(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	acme := w.account(t, "acme")
	var configs []store.ConfigState
	for i := range 5000 {
		c := w.newConfig(acme, fmt.Sprintf("config-%d", i))
		c.Spec.MaxConsecutiveFailures = 5
		configs = append(configs, c)
	}
	failing, disabled := &configs[7], &configs[9]
	failing.Failures, disabled.Failures, disabled.Enabled, disabled.DisabledReason, disabled.DueAt = 3, 5, false, "no", time.Time{}
	configs[11].Failures = 1
	configs[13].Failures, configs[13].Spec.Alerts = 3, &config.Alerts{Failures: 4}
	w.engine(t, func(tx *Tx) { require.NoError(t, tx.SaveConfigs(t.Context(), configs)) })
	w.Exec(t, `ANALYZE servo.configs`)
	w.engine(t, func(tx *Tx) {
		holding := must(tx.Conditions(t.Context(), w.now))(t)
		var found []string
		for _, c := range holding {
			found = append(found, fmt.Sprintf("%s %s %d", c.Kind, c.Subject(), c.Count))
		}
		require.ElementsMatch(t, []string{
			"PIPELINE_FAILED default/config-7 3", "PIPELINE_FAILED default/config-9 5", "PIPELINE_FAILED default/config-11 1",
			"PIPELINE_FAILING default/config-7 3", "PIPELINE_FAILING default/config-9 5", "PIPELINE_DISABLED default/config-9 5",
		}, found)
		late := must(tx.Conditions(t.Context(), w.now.Add(2*time.Hour)))(t)
		require.Equal(t, alert.ScheduleLag, late[len(late)-1].Kind)
		require.Equal(t, time.Hour, late[len(late)-1].Lag)
	})

	conn := w.connection(t)
	asEngine(t, conn, func(tx pgx.Tx) {
		_, err := conn.Prepare(t.Context(), "Conditions", sqlOf("Conditions"))
		require.NoError(t, err)
		var raw []byte
		row := tx.QueryRow(t.Context(), fmt.Sprintf(`EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) EXECUTE "Conditions"('%s', '%s')`, w.now.Format(time.RFC3339), w.now.Format(time.DateOnly)),
			pgx.QueryExecModeSimpleProtocol)
		require.NoError(t, row.Scan(&raw))
		var plan []struct {
			Plan struct {
				Hit  int `json:"Shared Hit Blocks"`
				Read int `json:"Shared Read Blocks"`
			}
		}
		require.NoError(t, json.Unmarshal(raw, &plan))
		require.Less(t, plan[0].Plan.Hit+plan[0].Plan.Read, 100, string(raw))
	})
}
