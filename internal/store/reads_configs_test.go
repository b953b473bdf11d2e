package store_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"go.arco.dev/servo/internal/base/event"
	"go.arco.dev/servo/internal/base/fault"
	"go.arco.dev/servo/internal/base/id"
	"go.arco.dev/servo/internal/domain/config"
	"go.arco.dev/servo/internal/domain/tenant"
	"go.arco.dev/servo/internal/store"
)

func TestReadConfigs(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	a, b := w.account(t, "acme"), w.account(t, "brick")
	staging := w.workspace(t, a, "staging")
	nightly := w.config(t, a, "acme-nightly", nil)
	paused := w.config(t, a, "acme-paused", func(c *store.ConfigState) { c.PausedAt, c.DueAt = w.now, time.Time{} })
	disabled := w.config(t, a, "disabled", func(c *store.ConfigState) {
		c.Enabled, c.PausedAt, c.DueAt, c.Spec.Labels = false, w.now, time.Time{}, map[string]string{"provider": "AWS", "tier": "1"}
	})
	gone := w.config(t, a, "gone", func(c *store.ConfigState) { c.DeletedAt, c.DueAt = w.now, time.Time{} })
	elsewhere := w.config(t, staging, "acme-nightly", func(c *store.ConfigState) { c.Spec.Pipeline, c.Spec.Labels = "weekly", nil })
	theirs := w.config(t, b, "acme-nightly", nil)

	t.Run("one is read by its id or its name, by its tenant alone", func(t *testing.T) {
		t.Parallel()
		require.Equal(t, store.ConfigView{ConfigState: nightly}, must(w.GetConfig(t.Context(), nightly.Key()))(t))
		require.Equal(t, store.ConfigView{ConfigState: elsewhere}, must(w.GetConfigByName(t.Context(), a.tenant, "staging", "acme-nightly"))(t))
		for _, key := range []store.ConfigKey{gone.Key(), {Tenant: a.tenant, Config: theirs.ID}} {
			_, err := w.GetConfig(t.Context(), key)
			require.True(t, fault.Is(err, fault.NotFound), err)
		}
		for _, name := range []string{"gone", "missing"} {
			_, err := w.GetConfigByName(t.Context(), a.tenant, tenant.DefaultWorkspace, name)
			require.True(t, fault.Is(err, fault.NotFound), err)
			require.ErrorContains(t, err, name)
		}
	})

	t.Run("active configs of a workspace whose pipeline is not among some are found", func(t *testing.T) {
		t.Parallel()
		orphaned := func(workspace string, most int, pipelines ...string) []store.OrphanedConfig {
			return must(w.OrphanedConfigs(t.Context(), a.tenant, workspace, pipelines, most))(t)
		}
		lost := store.OrphanedConfig{Name: "acme-nightly", Pipeline: nightly.Spec.Pipeline}
		require.Equal(t, []store.OrphanedConfig{lost}, orphaned(tenant.DefaultWorkspace, 10, "weekly"), "not those that are paused, disabled or deleted")
		require.Empty(t, orphaned(tenant.DefaultWorkspace, 10, "weekly", nightly.Spec.Pipeline))
		require.Empty(t, orphaned("staging", 10, "weekly"))
		require.Len(t, orphaned("staging", 10), 1, "without pipelines all are")
		require.Empty(t, orphaned(tenant.DefaultWorkspace, 0, "weekly"))
	})

	t.Run("they are listed by age, as they are asked for, page by page", func(t *testing.T) {
		t.Parallel()
		for claim, c := range map[string]struct {
			filter store.ConfigFilter
			after  id.Config
			most   int
			want   []store.ConfigState
		}{
			"all":                    {most: 10, want: []store.ConfigState{nightly, paused, disabled, elsewhere}},
			"a page":                 {most: 2, want: []store.ConfigState{nightly, paused}},
			"the next one":           {most: 2, after: paused.ID, want: []store.ConfigState{disabled, elsewhere}},
			"of a workspace":         {store.ConfigFilter{Workspace: "staging"}, id.Config{}, 10, []store.ConfigState{elsewhere}},
			"of a pipeline":          {store.ConfigFilter{Pipeline: "weekly"}, id.Config{}, 10, []store.ConfigState{elsewhere}},
			"by how its name begins": {store.ConfigFilter{Prefix: "acme-"}, id.Config{}, 10, []store.ConfigState{nightly, paused, elsewhere}},
			"not by a pattern":       {store.ConfigFilter{Prefix: "acme%"}, id.Config{}, 10, nil},
			"that fire":              {store.ConfigFilter{State: "ACTIVE"}, id.Config{}, 10, []store.ConfigState{nightly, elsewhere}},
			"that are paused":        {store.ConfigFilter{State: "PAUSED"}, id.Config{}, 10, []store.ConfigState{paused}},
			"that are disabled":      {store.ConfigFilter{State: "DISABLED"}, id.Config{}, 10, []store.ConfigState{disabled}},
			"with a label":           {store.ConfigFilter{Labels: map[string]string{"provider": "AWS"}}, id.Config{}, 10, []store.ConfigState{nightly, paused, disabled}},
			"with all labels":        {store.ConfigFilter{Labels: map[string]string{"provider": "AWS", "tier": "1"}}, id.Config{}, 10, []store.ConfigState{disabled}},
		} {
			var got []store.ConfigState
			for _, view := range must(w.ListConfigs(t.Context(), a.tenant, c.filter, c.after, c.most))(t) {
				got = append(got, view.ConfigState)
			}
			require.Equal(t, c.want, got, claim)
		}
	})
}

func TestConfigEvents(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	a, b := w.account(t, "acme"), w.account(t, "brick")
	c := w.config(t, a, "nightly", nil)
	var events []event.Event
	for i, body := range []event.Body{config.Created{Workspace: a.workspace.ID, Name: "nightly", Spec: c.Spec}, config.Paused{Note: "holidays"}, config.Resumed{}} {
		events = append(events, event.Event{
			Tenant: a.tenant, Subject: c.ID.UUID, Version: int32(i + 1), At: w.now, Meta: event.Meta{Actor: "jo", Trace: "trace"}, Body: body,
		})
	}
	w.engine(t, func(tx *Tx) { require.NoError(t, tx.AppendEntityEvents(t.Context(), events...)) })
	require.Equal(t, events, must(w.ConfigEvents(t.Context(), c.Key(), 0, 10))(t))
	require.Equal(t, events[1:2], must(w.ConfigEvents(t.Context(), c.Key(), 1, 1))(t))
	require.Empty(t, must(w.ConfigEvents(t.Context(), store.ConfigKey{Tenant: b.tenant, Config: c.ID}, 0, 10))(t))
}
