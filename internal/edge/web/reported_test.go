package web_test

import (
	"net/http"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/types/known/structpb"

	servov1 "go.arco.dev/servo/gen/servo/v1"
	"go.arco.dev/servo/internal/devkit/servotest/browser"
	"go.arco.dev/servo/internal/devkit/servotest/servertest"
	"go.arco.dev/servo/internal/edge/web/view"
)

// The tests of this file keep faults away that visitors have reported.

func TestRunFaults(t *testing.T) {
	t.Parallel()

	t.Run("the timeline has a segment for every wait, and no gaps", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t)
		run := w.trigger(tenant)
		w.complete(w.claim())
		first, second := w.claim(), w.claim()
		if first.GetAsset() != "shop/clean" {
			first, second = second, first
		}
		w.failTask(first, "NETWORK_ERROR", "no route to the shop")
		w.complete(second)
		w.Go(view.RunPath(tenant, run.GetId()) + "?tab=gantt")
		for _, segment := range []string{"upstream", "queued", "running", "backoff"} {
			w.Until(`document.querySelector("[data-segment=` + segment + `]")`)
		}
		gaps := browser.Eval[[]string](w.Window, `[...document.querySelectorAll("[data-row]")].flatMap((row) => {
			const bars = [...row.querySelectorAll("[data-segment]")];
			return bars.slice(1).filter((b, i) => b.dataset.from !== bars[i].dataset.to).map((b) => b.outerHTML);
		})`)
		require.Empty(t, gaps)
	})

	t.Run("a cancelled run has no green bar", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t)
		run := w.trigger(tenant)
		_, err := servov1.NewRunServiceClient(w.conn).CancelRun(t.Context(), &servov1.CancelRunRequest{Tenant: tenant, Run: run.GetId()})
		require.NoError(t, err)
		w.Go("/ui/runs?tenant=" + tenant)
		w.Until(`document.querySelector("#run-` + run.GetId() + ` .state").textContent.includes("cancelled")`)
		row := w.Text("#run-" + run.GetId())
		require.NotContains(t, row, "4/4")
		require.Contains(t, row, "0/4")
		require.Zero(t, w.Count("#run-"+run.GetId()+" progress.ok, #run-"+run.GetId()+" .task-bar .f-ok"))
		require.Equal(t, 1, w.Count("#run-"+run.GetId()+" .task-bar .f-off"))
	})

	t.Run("a retried run links to its retry", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t)
		run := w.trigger(tenant)
		w.failTask(w.claim(), "SHOP_CLOSED", "the door is locked")
		made, err := servov1.NewRunServiceClient(w.conn).RetryRun(t.Context(), &servov1.RetryRunRequest{Tenant: tenant, Run: run.GetId()})
		require.NoError(t, err)
		w.Go(view.RunPath(tenant, run.GetId()))
		w.Click(`.facts a[href="` + view.RunPath(tenant, made.GetRun().GetId()) + `"]`)
		w.See("Retry of")
	})

	t.Run("a failed command shows the last lines of its output, and why there is no further attempt", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t)
		run := w.trigger(tenant)
		details, err := structpb.NewStruct(map[string]any{"exit_code": 1, "stderr": "loading\nTraceback (most recent call last):\n\x1b[31mKeyError: 'price'\x1b[0m\n"})
		require.NoError(t, err)
		w.report(&servov1.ReportItem{Lease: w.claim().GetLease(), Action: &servov1.ReportItem_Fail{Fail: &servov1.Fail{Error: &servov1.Failure{
			Code: "USER_CODE_EXCEPTION", Message: "the command exited with code 1", Details: details,
		}}}})
		for _, at := range []string{view.RunPath(tenant, run.GetId()), view.TaskPath(tenant, run.GetId(), w.taskOf(run, "shop/orders"))} {
			w.Go(at)
			w.See("KeyError: 'price'")
			w.See("No further attempt: errors of class user code are not retried")
			require.NotContains(t, w.Text("main"), "[31m")
		}
	})

	t.Run("logs show colours, begin with a whole line and name a command that works", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t)
		run := w.trigger(tenant)
		lease := w.claim()
		for seq := range 3 {
			w.report(&servov1.ReportItem{Lease: lease.GetLease(), Action: &servov1.ReportItem_Log{Log: &servov1.LogChunk{Seq: int64(seq + 1), Text: manyLines(900)}}})
		}
		w.report(&servov1.ReportItem{Lease: lease.GetLease(), Action: &servov1.ReportItem_Log{Log: &servov1.LogChunk{Seq: 4, Text: "\x1b[1;32mall good\x1b[0m\n"}}})
		w.Go(view.TaskPath(tenant, run.GetId(), lease.GetTask()))
		w.See("servo tasks logs " + run.GetId() + " " + lease.GetTask() + " --tenant " + tenant)
		log := w.Text("pre.log")
		require.NotContains(t, log, "[1;32m")
		require.Equal(t, "all good", browser.Eval[string](w.Window, `document.querySelector("pre.log .ansi-green").textContent`))
		require.Regexp(t, "^line ", log)
	})
}

// manyLines is a text of numbered lines.
func manyLines(n int) (text string) {
	for i := range n {
		text += "line " + strconv.Itoa(i) + " of a task with a long log\n"
	}
	return text
}

func TestConfigFaults(t *testing.T) {
	t.Parallel()

	t.Run("the form of a paused config names its state", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t)
		w.addConfig(tenant, "nightly", nil)
		_, err := servov1.NewConfigServiceClient(w.conn).PauseConfig(t.Context(), &servov1.PauseConfigRequest{Tenant: tenant, Config: "nightly"})
		require.NoError(t, err)
		w.Go(view.ConfigPath(tenant, "", "nightly"))
		w.See("it is paused")
		require.NotContains(t, w.Text("main"), "paused:")
		require.NotContains(t, w.Text("main"), "Next:")
		w.Go(view.ConfigPath(tenant, "", "nightly") + "/edit")
		w.See("This config is paused")
		require.NotContains(t, w.Text("main"), "Enabled: slots fire")
	})

	t.Run("the calendar counts every slot of a busy config, and those of today that come", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t)
		zone := noonZone(time.Now())
		w.addConfig(tenant, "minutely", func(s *servov1.ConfigSpec) {
			s.Trigger, s.Timezone = &servov1.ConfigTrigger{Cron: "* * * * *"}, zone.String()
		})
		w.Go(view.ConfigPath(tenant, "", "minutely"))
		local := time.Now().In(zone)
		for day := local; ; day = day.AddDate(0, 0, 1) {
			shown := browser.Eval[string](w.Window, `document.querySelector("[data-day=\"`+day.Format(time.DateOnly)+`\"]")?.innerText ?? "missing"`)
			if day.After(local) {
				require.Contains(t, shown, "1\u202f440", day)
			} else {
				require.Regexp(t, `to come`, shown)
			}
			if day.Weekday() == time.Sunday {
				break
			}
		}
	})

	t.Run("an error of a field appears once, at the field, which has the focus", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t)
		w.Allow("422")
		w.Go("/ui/configs/new?tenant=" + tenant)
		w.Type("[name=name]", "broken")
		browser.Eval[bool](w.Window, `(() => { const f = document.querySelector("#config-form"); f.pipeline.value = "shop"; f.cron.value = "99 2 * * *"; f.requestSubmit(); return true })()`)
		w.See("Not saved")
		require.Equal(t, "cron", browser.Eval[string](w.Window, `document.activeElement.name`))
		require.Equal(t, 1, w.Count(".field-error"))
	})

	t.Run("recent runs are visible at 1280 px, also failures of triggered runs", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t)
		w.Size(1280, 800)
		c := w.addConfig(tenant, "a-config-with-a-name-that-is-rather-long", func(s *servov1.ConfigSpec) {
			s.Labels = map[string]string{"provider": "AWS", "team": "growth-and-retention", "tier": "gold"}
		})
		made, err := servov1.NewConfigServiceClient(w.conn).TriggerConfig(t.Context(), &servov1.TriggerConfigRequest{Tenant: tenant, Config: c.GetName()})
		require.NoError(t, err)
		w.failTask(w.claim(), "SHOP_CLOSED", "the door is locked")
		w.Go("/ui/configs?tenant=" + tenant)
		w.Until(`document.querySelector('.dots a[href="` + view.RunPath(tenant, made.GetRun().GetId()) + `"] .f-bad')`)
		require.LessOrEqual(t, browser.Eval[float64](w.Window, `document.querySelector(".dots").getBoundingClientRect().right`), 1280.0)
		require.LessOrEqual(t, browser.Eval[int](w.Window, `(() => { const s = document.querySelector(".scroll"); return s.scrollWidth - s.clientWidth })()`), 0)
	})
}

// noonZone is a zone in which it is about noon.
func noonZone(now time.Time) *time.Location {
	hours := 12 - now.UTC().Hour()
	name := "Etc/GMT" + strconv.Itoa(-hours)
	if hours < 0 {
		name = "Etc/GMT+" + strconv.Itoa(-hours)
	}
	if hours == 0 {
		name = "UTC"
	}
	return view.ZoneOf(name)
}

func TestListFaults(t *testing.T) {
	t.Parallel()

	t.Run("search finds pipelines of all tenants", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t)
		w.Go("/ui/search?q=sho")
		w.Until(`[...document.querySelectorAll("h2")].some((h) => h.textContent === "Pipelines")`)
	})

	t.Run("a filter ignores case, and an unknown value is an error that names the values", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t)
		run := w.trigger(tenant)
		w.Go("/ui/runs?tenant=" + tenant + "&state=failed")
		w.See("No runs")
		require.Equal(t, "FAILED", browser.Eval[string](w.Window, `document.querySelector("[name=state]").value`))
		w.Go("/ui/runs?tenant=" + tenant + "&state=pending,exploded")
		w.See(`unknown value "pending,exploded"`)
		require.Zero(t, w.Count("#run-"+run.GetId()))
		w.Go("/ui/configs?tenant=" + tenant + "&state=bogus")
		w.See(`unknown value "bogus"`)
		w.Go(view.RunPath(tenant, run.GetId()) + "?tab=tasks&state=bogus")
		w.See(`unknown value "bogus"`)
		w.Go("/ui/runs?tenant=" + tenant + "&since=yesterday")
		w.See(`unknown value "yesterday"`)
	})

	t.Run("charts fill their card, and no label is cut", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t)
		w.trigger(tenant)
		w.failTask(w.claim(), "SHOP_CLOSED", "the door is locked")
		for _, width := range []int64{1440, 1280, 390} {
			w.Size(width, 800)
			w.Go("/ui/?tenant=" + tenant)
			w.Until(`document.querySelector("#activity .chart")`)
			require.Empty(t, browser.Eval[[]string](w.Window, chartFaults), "%d px", width)
			w.Go(view.TenantPath(tenant) + "?days=90")
			w.Until(`document.querySelector(".chart")`)
			require.Empty(t, browser.Eval[[]string](w.Window, chartFaults), "%d px", width)
		}
	})
}

// chartFaults is a script that lists charts which do not fill their card or have cut labels.
const chartFaults = `(() => {
	const found = [];
	for (const chart of document.querySelectorAll(".chart")) {
		const card = chart.closest(".card").getBoundingClientRect(), box = chart.getBoundingClientRect();
		if (box.width < (card.width - 34) * 0.97) found.push("ends at " + (box.width / card.width));
		if (chart.scrollWidth > chart.clientWidth + 1) found.push("scrolls by " + (chart.scrollWidth - chart.clientWidth));
		for (const text of chart.querySelectorAll("text")) {
			if (!text.checkVisibility()) continue;
			const t = text.getBoundingClientRect();
			if (t.left < card.left || t.right > card.right) found.push("cut: " + text.textContent);
		}
	}
	return found;
})()`

func TestTenantFaults(t *testing.T) {
	t.Parallel()

	t.Run("a tenant without runs has no SLA compliance", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t)
		w.Go(view.TenantPath(tenant))
		w.See("SLA compliance")
		require.NotContains(t, w.Text("main"), "100 %")
	})

	t.Run("an unknown tenant is an error in words", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t)
		w.Allow("404")
		w.Go(view.TenantPath("globex"))
		w.See(`Tenant "globex" does not exist`)
	})

	t.Run("a viewer reads the quotas of the tenant, and opens no form that would be refused", func(t *testing.T) {
		t.Parallel()
		server, key := servertest.StartLocked(t)
		conn := server.Dial(t)
		ctx := metadata.AppendToOutgoingContext(t.Context(), "authorization", "Bearer "+key)
		_, err := servov1.NewTenantServiceClient(conn).CreateTenant(ctx, &servov1.CreateTenantRequest{Name: tenant})
		require.NoError(t, err)
		made, err := servov1.NewKeyServiceClient(conn).CreateKey(ctx, &servov1.CreateKeyRequest{Tenant: tenant, Name: "reader", Role: "viewer"})
		require.NoError(t, err)
		w := chromium.Open(t, server.URL)
		w.Go("/ui/login")
		w.Type("#key", made.GetSecret())
		w.Click("button[type=submit]")
		w.Until(`location.pathname === "/ui/"`)
		w.Go(view.TenantPath(tenant) + "?tab=quotas")
		w.See("Concurrent tasks")
		require.Zero(t, w.Count("main input:not([type=hidden])"))
		w.Allow("403")
		w.Go("/ui/configs/new")
		w.See("CONFIGS_WRITE")
		require.Zero(t, w.Count("#config-form"))
		answer, _ := get(t, server, "/ui/", nil)
		require.Equal(t, http.StatusSeeOther, answer.StatusCode)
	})
}
