package web_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	servov1 "go.arco.dev/servo/gen/servo/v1"
	"go.arco.dev/servo/internal/edge/web/view"
)

func TestOverview(t *testing.T) {
	t.Parallel()

	t.Run("from a stuck task to its reason in two clicks, and the page reports when it is resolved", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t)
		w.Go("/ui/")
		w.See("no late or failed runs")
		run := w.trigger(tenant)
		w.See("no live worker can run the queued tasks") // without a reload
		w.Click("#running-" + run.GetId() + " a")        // one
		w.See("Why it waits")
		w.See("no worker")
		w.complete(w.claim())
		w.Go("/ui/")
		w.Until(`!document.body.innerText.includes("no live worker can run the queued tasks")`)
	})

	t.Run("a failed run is shown until it is seen", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t)
		w.addTenant("globex")
		run := w.trigger(tenant)
		w.failTask(w.claim(), "SHOP_CLOSED", "the door stayed closed")
		w.Go("/ui/")
		w.Until(`document.querySelector("a[href='` + view.RunPath(tenant, run.GetId()) + `']")`)
		w.Until(`[...document.querySelectorAll("#activity title")].some(t => t.textContent.includes("1 run, 1 failed"))`)
		require.Equal(t, 24, w.Count("#activity g"))
		w.Go("/ui/?tenant=globex")
		w.See("No failed runs")
		w.See("No runs ended") // of this tenant
		require.Zero(t, w.Count("a[href='"+view.RunPath(tenant, run.GetId())+"']"))
	})
}

func TestQueuesOf(t *testing.T) {
	t.Parallel()
	got := view.QueuesOf([]*servov1.Share{
		{Pool: "a", Tenant: "one", Waiting: 3, InFlight: 1},
		{Pool: "b", Tenant: "one", Waiting: 4, WaitingAtLeast: true},
		{Pool: "a", Tenant: "two", Waiting: 9},
		{Pool: "a", Tenant: "idle"},
	})
	require.Equal(t, []view.Queue{{Tenant: "two", Waiting: 9}, {Tenant: "one", Waiting: 7, InFlight: 1, AtLeast: true}}, got)
}
