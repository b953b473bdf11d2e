package web_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"go.arco.dev/servo/internal/devkit/servotest/browser"
)

func TestEvents(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.addTenant("globex")
	w.Go("/ui/events")
	w.See("tenant.created")
	run := w.trigger(tenant)
	w.See("run.created") // without a reload

	// The payload of an event is one click away, and stays open while others arrive.
	w.Until(`[...document.querySelectorAll("summary")].find((s) => s.textContent === "run.created")?.click() ?? true`)
	w.See(`"pipeline"`)
	w.trigger("globex")
	w.Until(`[...document.querySelectorAll("summary")].filter((s) => s.textContent === "run.created").length === 2`)

	w.Go("/ui/events?tenant=globex&type=run.")
	w.See("run.created")
	require.NotContains(t, w.Text("tbody"), "deployment")
	require.NotContains(t, w.Text("tbody"), run.GetId()[:8]+"…"+run.GetId()[28:])
	w.Go("/ui/events?subject=" + run.GetId())
	require.NotZero(t, w.Count("tbody tr"))
	require.Equal(t, w.Count("tbody tr"), w.Count(`tbody a[href="/ui/tenants/acme/runs/`+run.GetId()+`"]`), "of the run and its tasks alone")
	w.Go("/ui/events?type=nothing.")
	w.See("No events")
	w.Go("/ui/events?before=2020-01-01T00:00")
	w.See("No events")
	require.Equal(t, "2020-01-01T00:00", browser.Eval[string](w.Window, `document.querySelector("[name=before]").value`))
}
