package engine_test

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"go.arco.dev/servo/internal/engine"
)

func TestUpstreamResults(t *testing.T) {
	t.Parallel()
	completed := func(l engine.Lease) engine.Action {
		return engine.Complete{Result: json.RawMessage(`{"from": "` + l.Asset + `"}`)}
	}

	t.Run("a lease has the results of the upstreams of the plan", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		b.trigger(t, "diamond")
		first := b.one(t)
		require.Empty(t, first.Upstream)
		b.report(t, first, completed(first))
		b.admit(t)
		middle := b.claim(t, 2, true)
		require.Len(t, middle, 2)
		for _, l := range middle {
			require.Equal(t, []engine.UpstreamResult{{Run: first.Run, Task: first.Task, Asset: "d/a", Result: json.RawMessage(`{"from": "d/a"}`)}}, l.Upstream)
			b.report(t, l, completed(l))
		}
		last := b.one(t)
		require.Len(t, last.Upstream, 2)
		slices.SortFunc(last.Upstream, func(x, y engine.UpstreamResult) int { return strings.Compare(x.Asset, y.Asset) })
		require.JSONEq(t, `{"from": "d/b"}`, string(last.Upstream[0].Result))
		require.JSONEq(t, `{"from": "d/c"}`, string(last.Upstream[1].Result))
	})

	t.Run("the repeat of a claim has the same results", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		b.trigger(t, "diamond")
		first := b.one(t)
		b.report(t, first, completed(first))
		b.admit(t)
		request := engine.ClaimRequest{Worker: "w1", Claim: newClaim(), Pools: []string{"default"}, Max: 2, Start: true}
		leases, err := b.Claim(t.Context(), request)
		require.NoError(t, err)
		again, err := b.Claim(t.Context(), request)
		require.NoError(t, err)
		require.Len(t, again, 2)
		byTask := map[any][]engine.UpstreamResult{}
		for _, l := range leases {
			byTask[l.Task] = l.Upstream
		}
		for _, l := range again {
			require.Equal(t, byTask[l.Task], l.Upstream)
			require.NotEmpty(t, l.Upstream[0].Result)
		}
	})

	t.Run("the barrier of a fan-out adds nothing to them", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		b.trigger(t, "fan")
		scan := b.one(t)
		b.report(t, scan, engine.FanOut{Barrier: true, Tasks: []engine.FanOutTask{{Asset: "f/fetch", Partition: "1"}, {Asset: "f/fetch", Partition: "2"}}})
		b.report(t, scan, completed(scan))
		for range 2 {
			fetch := b.one(t)
			require.Equal(t, "f/fetch", fetch.Asset)
			require.Empty(t, fetch.Upstream)
			b.report(t, fetch, completed(fetch))
		}
		join := b.one(t)
		require.Equal(t, "f/join", join.Asset)
		require.Equal(t, []engine.UpstreamResult{{Run: scan.Run, Task: scan.Task, Asset: "f/scan", Result: json.RawMessage(`{"from": "f/scan"}`)}}, join.Upstream)
	})

	t.Run("large results are omitted, and marked", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		b.trigger(t, "diamond")
		large := func(engine.Lease) engine.Action {
			return engine.Complete{Result: json.RawMessage(`"` + strings.Repeat("x", 40<<10) + `"`)}
		}
		for range 3 {
			l := b.one(t)
			b.report(t, l, large(l))
		}
		last := b.one(t)
		require.Len(t, last.Upstream, 2)
		require.NotEqual(t, last.Upstream[0].Omitted, last.Upstream[1].Omitted, "64 KiB have room for one of two")
		for _, u := range last.Upstream {
			require.Equal(t, u.Omitted, u.Result == nil)
		}
	})
}
