package web_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	servov1 "go.arco.dev/servo/gen/servo/v1"
	"go.arco.dev/servo/internal/devkit/servotest/browser"
	"go.arco.dev/servo/internal/edge/web/view"
)

func TestRuns(t *testing.T) {
	t.Parallel()

	t.Run("a run changes from pending to failed on an open page, with the reason", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t)
		w.Go("/ui/runs?tenant=" + tenant)
		w.See("No runs")
		run := w.trigger(tenant)
		w.Until(`document.querySelector("#run-` + run.GetId() + `")`) // without a reload
		w.Click("#run-" + run.GetId() + " a")
		w.Until(`document.querySelectorAll("svg.draw a").length === 4`)

		orders := w.claim()
		w.Until(`document.querySelector("svg.draw").textContent.includes("running")`)
		w.complete(orders)
		first, second := w.claim(), w.claim()
		if first.GetAsset() != "shop/rates" {
			first, second = second, first
		}
		w.failTask(first, "SHOP_CLOSED", "the door stayed closed")
		w.See("SHOP_CLOSED")
		w.See("the door stayed closed")
		w.See("look at the shop")
		w.complete(second)
		w.Until(`document.querySelector(".head .state").textContent.includes("failed")`)
	})

	t.Run("the parts of a run: timeline, tasks, events, parameters", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t)
		run := w.trigger(tenant)
		w.complete(w.claim())
		at := view.RunPath(tenant, run.GetId())
		w.Go(at + "?tab=gantt")
		w.Until(`document.querySelectorAll(".t-bars rect").length >= 2`)
		w.Go(at + "?tab=tasks")
		require.Equal(t, 4, w.Count("tbody tr"))
		w.Go(at + "?tab=tasks&state=SUCCEEDED")
		require.Equal(t, 1, w.Count("tbody tr"))
		w.Go(at + "?tab=events")
		w.See("run.created")
		w.Go(at + "?tab=events&type=task.")
		require.NotContains(t, w.Text("tbody"), "run.created")
		w.Go(at + "?tab=parameters")
		w.See("2026-01-01")
	})

	t.Run("a run is cancelled after a confirmation that names the effect, and retried", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t)
		run := w.trigger(tenant)
		w.Go(view.RunPath(tenant, run.GetId()))
		w.Click("[data-dialog=cancel]")
		w.Until(`document.querySelector("dialog#cancel").open`)
		w.See("This cannot be undone")
		w.Type("dialog#cancel [name=reason]", "wrong day")
		w.Click("dialog#cancel button[type=submit]")
		w.Until(`document.querySelector(".toast")`)
		w.See("wrong day")
		w.Until(`document.querySelector(".head .state").textContent.includes("cancelled")`)
		w.Click("[data-dialog=retry]")
		w.Click("dialog#retry button[type=submit]")
		w.See("You are viewing the new run")
		w.See("Retry of")
		require.NotContains(t, w.Address(), run.GetId())
		w.Go(view.TaskPath(tenant, run.GetId(), w.taskOf(run, "shop/orders")))
		w.Click("[data-dialog=retry]")
		w.See("all tasks downstream of it")
		w.Click("dialog#retry button[type=submit]")
		w.See("You are viewing the new run")
	})

	t.Run("a run that was retried already is retried again only if that is confirmed", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t)
		w.Allow("409")
		run := w.trigger(tenant)
		runs := servov1.NewRunServiceClient(w.conn)
		_, err := runs.CancelRun(t.Context(), &servov1.CancelRunRequest{Tenant: tenant, Run: run.GetId()})
		require.NoError(t, err)
		retried, err := runs.RetryRun(t.Context(), &servov1.RetryRunRequest{Tenant: tenant, Run: run.GetId(), Mode: servov1.RetryRunRequest_FAILED})
		require.NoError(t, err)
		_, err = runs.CancelRun(t.Context(), &servov1.CancelRunRequest{Tenant: tenant, Run: retried.GetRun().GetId()})
		require.NoError(t, err)
		count := func() int {
			list, err := runs.ListRuns(t.Context(), &servov1.ListRunsRequest{Tenant: tenant, ParentRun: run.GetId(), PageSize: 100})
			require.NoError(t, err)
			return len(list.GetRuns())
		}
		w.Go(view.RunPath(tenant, run.GetId()))
		w.Click("[data-dialog=retry]")
		w.See("This run was already retried")
		w.Click("dialog#retry button[type=submit]")
		w.See("was already retried: run " + retried.GetRun().GetId() + " is CANCELLED")
		require.Equal(t, 1, count())
		w.Go(view.RunPath(tenant, run.GetId()))
		w.Click("[data-dialog=retry]")
		w.Click("dialog#retry [name=again]")
		w.Click("dialog#retry button[type=submit]")
		w.See("You are viewing the new run")
		require.Equal(t, 2, count())
	})

	t.Run("a dialog that is open stays open while the page is refreshed", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t)
		run := w.trigger(tenant)
		w.Go(view.RunPath(tenant, run.GetId()))
		w.Until(`document.querySelectorAll("svg.draw a").length === 4`)
		w.Click("[data-dialog=cancel]")
		w.Type("dialog#cancel [name=reason]", "half writ")
		w.claim()
		w.Until(`document.querySelector("svg.draw").textContent.includes("running")`)
		require.True(t, browser.Eval[bool](w.Window, `document.querySelector("dialog#cancel").open`))
		require.Equal(t, "half writ", browser.Eval[string](w.Window, `document.querySelector("dialog#cancel [name=reason]").value`))
	})

	t.Run("a task shows why it waits, its attempts, log and failure", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t)
		run := w.trigger(tenant)
		lease := w.claim()
		w.Go(view.TaskPath(tenant, run.GetId(), lease.GetTask()))
		w.Until(`document.querySelector(".head .state").textContent.includes("running")`)
		w.report(logLine(lease, "reading the orders\n"))
		w.See("reading the orders")
		w.report(progress(lease, "extract", 0.4))
		w.See("40 %")
		w.failTask(lease, "SHOP_CLOSED", "the door stayed closed")
		w.See("the door stayed closed")
		w.See("SHOP_CLOSED")

		waiting := w.taskOf(run, "shop/report")
		w.Go(view.TaskPath(tenant, run.GetId(), waiting))
		w.See("shop/clean")
	})

	t.Run("an unknown object is a page with that message", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t)
		w.Allow("404")
		w.Go(view.RunPath(tenant, "0192f0c1-2b3c-7d4e-8f5a-6b7c8d9e0f10"))
		w.See("Not found")
		w.Go("/ui/nowhere")
		w.See("Page /ui/nowhere does not exist")
	})
}
