package web_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/proto"

	servov1 "go.arco.dev/servo/gen/servo/v1"
	"go.arco.dev/servo/internal/devkit/servotest/browser"
	"go.arco.dev/servo/internal/edge/web/view"
)

// fill puts a text into a field in place of what is there.
func (w *world) fill(name, text string) {
	w.t.Helper()
	browser.Eval[bool](w.Window, fmt.Sprintf(`(() => { const f = document.querySelector("main [name=%s]"); f.value = %q; f.dispatchEvent(new Event("input", {bubbles: true})); return true })()`, name, text))
}

// valueOf is what a field holds.
func (w *world) valueOf(name string) string {
	w.t.Helper()
	return browser.Eval[string](w.Window, fmt.Sprintf(`document.querySelector("main [name=%s]").value`, name))
}

func (w *world) getConfig(name string) *servov1.Config {
	w.t.Helper()
	found, err := servov1.NewConfigServiceClient(w.conn).GetConfig(w.t.Context(), &servov1.GetConfigRequest{Tenant: tenant, Config: name})
	require.NoError(w.t, err)
	return found
}

func TestConfigForm(t *testing.T) {
	t.Parallel()

	t.Run("a config is created: slots are shown while its schedule is typed, errors are beside their fields, and no input is lost", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t)
		w.Allow("422")
		w.Go("/ui/configs?tenant=" + tenant)
		w.See("No configs")
		w.Click(".actions .primary")
		w.Until(`document.querySelector("[name=cron]")`)
		w.fill("timezone", "Europe/Berlin")
		w.fill("cron", "30 2 * 3 *") // nights of March, one of which has no such time
		w.Until(`document.querySelectorAll("#preview tbody tr").length === 6`)
		w.fill("cron", "30 2 29-31 3 0L") // the last Sunday of March, when the clock is put forward
		w.See("moved after the gap")
		w.fill("cron", "30 25 * * *")
		w.Until(`document.querySelector("#preview .field-error")`)

		w.fill("name", "shop nightly")
		w.fill("pipeline", "shop")
		w.fill("labels", "provider=AWS\ndomain=COST")
		w.fill("parameters", `{"day": "2026-02-02"}`)
		w.Click("form.wide button[type=submit]")
		w.See("correct the fields below")
		wrong := func(field string) string {
			return fmt.Sprintf(`document.querySelector("[name=%s]").closest("label").querySelector(".field-error")`, field)
		}
		w.Until(wrong("name"))
		require.Equal(t, "shop nightly", w.valueOf("name"))
		w.fill("name", "shop-nightly")
		w.Click("form.wide button[type=submit]")
		w.Until("(" + wrong("cron") + ") && !(" + wrong("name") + ")")
		require.Equal(t, "30 25 * * *", w.valueOf("cron"))
		require.JSONEq(t, `{"day": "2026-02-02"}`, w.valueOf("parameters"))
		w.fill("cron", "30 2 * * *")
		w.fill("parameters", "[1]")
		w.Click("form.wide button[type=submit]")
		w.Until(wrong("parameters"))
		w.fill("parameters", `{"day": "2026-02-02"}`)
		w.Click("form.wide button[type=submit]")
		w.See("Config created")

		made := w.getConfig("shop-nightly").GetSpec()
		require.Equal(t, map[string]string{"provider": "AWS", "domain": "COST"}, made.GetLabels())
		require.Equal(t, "2026-02-02", made.GetParameters().GetFields()["day"].GetStringValue())
		w.Go("/ui/configs?tenant=" + tenant + "&label=provider%3DGCP")
		w.See("No configs")
		w.Go("/ui/configs?label=provider%3DAWS&prefix=shop-")
		w.See("shop-nightly")
	})

	t.Run("an edit keeps fields outside the form, and reports a concurrent edit", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t)
		w.Allow("422")
		w.addConfig(tenant, "nightly", func(s *servov1.ConfigSpec) {
			s.Retry = &servov1.ConfigRetry{MaxAttempts: proto.Int32(3), RetryOn: []string{"SHOP_CLOSED"}}
		})
		w.Go(view.ConfigPath(tenant, "", "nightly") + "/edit")
		require.Equal(t, "3", w.valueOf("retry_attempts"))
		w.fill("cron", "45 3 * * *")
		other := w.getConfig("nightly")
		other.Spec.Jitter = "5m"
		_, err := servov1.NewConfigServiceClient(w.conn).UpdateConfig(t.Context(), &servov1.UpdateConfigRequest{Tenant: tenant, Config: "nightly", Spec: other.GetSpec(), Version: other.GetVersion()})
		require.NoError(t, err)
		w.Click("form.wide button[type=submit]")
		w.See("Another user changed this config")
		w.See("Jitter")
		require.Equal(t, "45 3 * * *", w.valueOf("cron"))
		require.Equal(t, "30 2 * * *", w.getConfig("nightly").GetSpec().GetTrigger().GetCron())
		w.Click("form.wide button[type=submit]") // over it, now that it is known
		w.See("Config saved")
		saved := w.getConfig("nightly").GetSpec()
		require.Equal(t, "45 3 * * *", saved.GetTrigger().GetCron())
		require.Empty(t, saved.GetJitter())
		require.Equal(t, []string{"SHOP_CLOSED"}, saved.GetRetry().GetRetryOn())
	})
}

func TestConfigWarnings(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.addConfig(tenant, "nightly", nil)
	w.Go(view.ConfigPath(tenant, "", "nightly") + "/edit")
	browser.Eval[bool](w.Window, `(() => { document.querySelector("[name=catchup]").value = "all"; return true })()`)
	w.Click("form.wide button[type=submit]")
	w.See("Config saved")
	w.See("only the oldest missed slot")
}

func TestConfigs(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.addTenant("globex")
	w.addConfig("globex", "elsewhere", nil)
	w.addConfig(tenant, "often", everySecond)
	w.Go("/ui/configs")
	w.See("elsewhere")
	w.See("daily at 02:30")
	w.Until(`document.querySelector(".dots a")`) // a slot has fired, without a reload
	w.failTask(w.claim(), "SHOP_CLOSED", "the door stayed closed")
	w.Until(`document.querySelector(".dots .f-bad")`)
	w.Go("/ui/configs?state=FAILING")
	w.See("often")
	require.Equal(t, 1, w.Count("tbody tr"))
	w.Go("/ui/configs?tenant=" + tenant + "&label=provider")
	w.See("is not name=value") // and the page is intact
	w.Go("/ui/configs?tenant=globex")
	require.NotContains(t, w.Text("tbody"), "often")
}

func TestSimulator(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.Go("/ui/simulator")
	w.Click(`main a[href="/ui/simulator?tenant=` + tenant + `"]`)
	w.See("No slots in this period")
	w.addConfig(tenant, "nightly", nil)
	w.addConfig(tenant, "often", func(s *servov1.ConfigSpec) { s.Trigger = &servov1.ConfigTrigger{Interval: "30s"} })
	w.Go("/ui/simulator?days=14&tenant=" + tenant)
	require.Equal(t, 2, w.Count("svg.draw path.area"))
	require.Positive(t, w.Count("svg.draw circle")) // peaks
	w.See("Overlapping configs")                    // 30 s between runs of a minute
	w.Click(`main table a`)
	w.See("every 30s")
}
