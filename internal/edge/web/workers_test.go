package web_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	servov1 "go.arco.dev/servo/gen/servo/v1"
)

func TestCapacity(t *testing.T) {
	t.Parallel()

	t.Run("fairness: who waits is shown with its share and what it is due, as it changes", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t)
		w.Go("/ui/fairness")
		w.See("No demand")
		w.trigger(tenant)
		w.claim()
		w.See("Pool default")
		w.Until(`[...document.querySelectorAll("tbody tr")].some((r) => r.textContent.includes("acme") && r.textContent.includes("100 %"))`)
		require.Equal(t, 1, w.Count("tbody svg[role=img]"))
		w.Go("/ui/fairness?pool=elsewhere")
		w.See("No demand")
	})

	t.Run("workers: tasks without a worker are a warning, until one exists", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t)
		w.Go("/ui/workers")
		w.See("No live workers")
		w.trigger(tenant)
		w.See("Queued tasks without workers in pool default")
		w.claim()
		w.See("worker-of-tests")
		w.See("1 of 4")
		w.See("Oldest leases")
		w.Until(`!document.querySelector(".note.bad")`)
		_, err := servov1.NewAdminServiceClient(w.conn).PauseDispatch(t.Context(), &servov1.PauseDispatchRequest{Reason: "the disk is full"})
		require.NoError(t, err)
		w.See("Dispatch is paused")
		w.See("the disk is full")
	})

	t.Run("locks: the run that holds one is shown, and releasing it cancels that run", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t)
		w.Go("/ui/locks")
		w.See("Select a tenant")
		w.Go("/ui/locks?tenant=" + tenant)
		w.See("No locks")
		run := w.trigger(tenant)
		row := "#lock-" + run.GetId()
		w.Until(`document.querySelector("` + row + `")`)
		w.Click(row + " [data-dialog]")
		w.See("The lock is released when the run has ended")
		w.Type(row+" dialog [name=reason]", "it hangs")
		w.Click(row + " dialog button[type=submit]")
		w.See("The run of the lock is")
		w.See("No locks")
		w.Go("/ui/tenants/" + tenant + "/runs/" + run.GetId())
		w.See("it hangs")
	})
}
