package web_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"go.arco.dev/servo/internal/devkit/servotest/browser"
	"go.arco.dev/servo/internal/edge/web/view"
)

// launchManifest has a pipeline with a parameter of every type.
const launchManifest = `{"version": 1,
	"assets": [{"key": "shop/orders", "go": {"handler": "x"}}, {"key": "shop/clean", "upstream": ["shop/orders"], "go": {"handler": "x"}}],
	"pipelines": [{"name": "shop", "description": "What was sold.", "select": ["shop/*"], "parameters": [
		{"name": "day", "type": "string", "required": true, "description": "The day to load"},
		{"name": "limit", "type": "integer", "default": 10},
		{"name": "mode", "type": "string", "default": "fast", "enum": ["fast", "full"]},
		{"name": "dry", "type": "boolean", "default": false},
		{"name": "extra", "type": "object"}
	]}]}`

func TestPipelines(t *testing.T) {
	t.Parallel()

	t.Run("a pipeline shows its graph, grid, runs, parameters, configs and versions", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t)
		w.addConfig(tenant, "nightly", nil)
		w.Go("/ui/pipelines?tenant=" + tenant)
		w.See("no recent run")
		run := w.trigger(tenant)
		w.Until(`document.querySelector('#pipeline-shop .dots a[href="` + view.RunPath(tenant, run.GetId()) + `"]')`) // without a reload
		w.failTask(w.claim(), "SHOP_CLOSED", "the door is locked")
		at := view.PipelinePath(tenant, "", "shop")
		w.Go(at)
		require.Equal(t, 4, w.Count("svg.draw a.box"))
		w.Go(at + "?tab=grid")
		w.Until(`document.querySelectorAll(".run-grid tbody tr").length === 4`)
		require.Equal(t, 1, w.Count(".run-grid .cell.t-bad"))
		w.Click(".run-grid .cell.t-bad")
		w.See("SHOP_CLOSED")
		w.Go(at + "?tab=parameters")
		w.See("2026-01-01")
		w.Go(at + "?tab=configs")
		w.See("nightly")
		w.Go(at + "?tab=versions")
		w.See("active")
	})

	t.Run("a run is launched from a form of the declared parameters, with its plan", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t)
		w.Allow("422")
		w.deployManifest(tenant, launchManifest)
		w.Go(view.PipelinePath(tenant, "", "shop"))
		w.Click(".actions a.primary")
		w.See("when the required parameters are set")
		require.Equal(t, 2, w.Count(`[name="parameter.mode"] option:not([value=""])`))
		w.Type(`[name="parameter.day"]`, "2026-03-01")
		w.Until(`document.querySelector("#plan").innerText.includes("2 tasks")`) // while typing
		browser.Eval[bool](w.Window, `(document.querySelector('[name="parameter.limit"]').value = "many", true)`)
		w.Click("#launch-form button[type=submit]")
		w.See(`"many" is not a whole number`)
		require.Equal(t, "parameter.limit", browser.Eval[string](w.Window, "document.activeElement.name"))
		require.Equal(t, "2026-03-01", browser.Eval[string](w.Window, `document.querySelector('[name="parameter.day"]').value`), "the input is kept")
		browser.Eval[bool](w.Window, `(document.querySelector('[name="parameter.limit"]').value = "7", document.querySelector('[name="parameter.dry"]').value = "true", true)`)
		w.Click("#launch-form button[type=submit]")
		w.See("Run created")
		w.Go(w.Address() + "?tab=parameters")
		for _, part := range []string{`"day": "2026-03-01"`, `"limit": 7`, `"dry": true`, `"mode": "fast"`} {
			w.See(part)
		}
	})

	t.Run("a run is repeated with changes, and the plan names them", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t)
		run := w.trigger(tenant)
		w.Go(view.RunPath(tenant, run.GetId()))
		w.Click(`.actions a[href*="/pipelines/shop/run"]`)
		w.See("Parameters of run")
		require.Equal(t, "2026-01-01", browser.Eval[string](w.Window, `document.querySelector('[name="parameter.day"]').value`))
		w.See("The same parameters and the same tasks")
		browser.Eval[bool](w.Window, `(() => { const f = document.querySelector('[name="parameter.day"]'); f.value = "2026-01-02"; f.dispatchEvent(new Event("input", {bubbles: true})); return true })()`)
		w.Until(`document.querySelector("#plan .diff")?.innerText.includes("2026-01-02")`)
		w.Type(`[name=partitions]`, "date=2026-01-01")
		w.Until(`document.querySelector("#plan .field-error")`)
	})
}
