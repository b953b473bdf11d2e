package web_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	servov1 "go.arco.dev/servo/gen/servo/v1"
	"go.arco.dev/servo/internal/devkit/servotest/browser"
	"go.arco.dev/servo/internal/edge/web"
)

// patterns are the pages that there are: one that is registered is looked at.
func patterns(t *testing.T) []string {
	t.Helper()
	pages, err := web.New(web.Options{})
	require.NoError(t, err)
	return pages.Paths()
}

// furnish gives every kind of page something to show, and returns the values of the parts of
// their addresses.
func (w *world) furnish() map[string]string {
	w.t.Helper()
	_, err := servov1.NewConfigServiceClient(w.conn).CreateConfig(w.t.Context(), &servov1.CreateConfigRequest{
		Tenant: tenant, Name: "shop-nightly",
		Spec: &servov1.ConfigSpec{Pipeline: "shop", Trigger: &servov1.ConfigTrigger{Cron: "30 2 * * *"}, Timezone: "Europe/Berlin", Labels: map[string]string{"provider": "AWS"}},
	})
	require.NoError(w.t, err)
	w.keysAndChannels()
	failed := w.trigger(tenant)
	w.failTask(w.claim(), "SHOP_CLOSED", "the door stayed closed: "+strings.Repeat("a_very_long_word_", 12))
	w.trigger(tenant)
	lease := w.claim()
	w.report(progress(lease, "extract", 0.4))
	w.report(logLine(lease, strings.Repeat("a line that is much longer than any screen is wide, ", 10)+"\n"))
	w.trigger(tenant)
	w.deployManifest(tenant, strings.Replace(manifest, `"assets": [`, `"assets": [
		{"key": "days/sales", "go": {"handler": "x"}, "partitions": [{"dimension": "date", "kind": "daily", "start": "2026-01-01"}]},`, 1))
	backfill, err := servov1.NewBackfillServiceClient(w.conn).CreateBackfill(w.t.Context(), &servov1.CreateBackfillRequest{Tenant: tenant, Asset: "days/sales", Partitions: []string{"date=2026-01"}})
	require.NoError(w.t, err)
	w.releases()
	return map[string]string{
		"{channel}": "stable", "{release}": "2026.11.2",
		"{tenant}": tenant, "{run}": lease.GetRun(), "{task}": lease.GetTask(), "{config}": "shop-nightly", "{pipeline}": "shop", "{namespace}": "shop", "{name}": "clean",
		"failed": failed.GetId(), "{backfill}": backfill.GetId(),
	}
}

// keysAndChannels gives the lists of what can be made a row each.
func (w *world) keysAndChannels() {
	w.t.Helper()
	for owner, role := range map[string]string{"": "platform", tenant: "viewer"} {
		_, err := servov1.NewKeyServiceClient(w.conn).CreateKey(w.t.Context(), &servov1.CreateKeyRequest{Tenant: owner, Name: "fleet", Role: role})
		require.NoError(w.t, err)
		_, err = servov1.NewAlertServiceClient(w.conn).CreateAlertChannel(w.t.Context(), &servov1.CreateAlertChannelRequest{Tenant: owner, Name: "on-call", Url: "https://hooks.example.com/" + strings.Repeat("long", 30)})
		require.NoError(w.t, err)
		_, err = servov1.NewSubscriptionServiceClient(w.conn).CreateSubscription(w.t.Context(), &servov1.CreateSubscriptionRequest{Tenant: owner, Name: "warehouse", Url: "https://hooks.example.com/" + strings.Repeat("long", 30)})
		require.NoError(w.t, err)
	}
}

// addressOf puts what is there into a pattern.
func addressOf(t *testing.T, pattern string, values map[string]string) string {
	t.Helper()
	for name, value := range values {
		pattern = strings.ReplaceAll(pattern, name, value)
	}
	require.NotContains(t, pattern, "{", "furnish must return a value for it")
	return pattern
}

// faults is a script that lists what is wrong with a page for people who cannot see it well,
// use no mouse, or have a small screen.
const faults = `(() => {
	const found = [];
	const name = (e) => (e.getAttribute("aria-label") || e.labels?.[0]?.textContent || e.textContent || e.title || e.alt || "").trim();
	const visible = (e) => e.checkVisibility?.() ?? true;
	for (const e of document.querySelectorAll("input:not([type=hidden]), select, textarea, button, a[href]"))
		if (visible(e) && !name(e)) found.push("it has no label: " + e.outerHTML.slice(0, 120));
	for (const e of document.querySelectorAll("img:not([alt])")) found.push("a picture without a text: " + e.outerHTML.slice(0, 120));
	for (const e of document.querySelectorAll("[tabindex]")) if (e.tabIndex > 0) found.push("the order of focus is forced: " + e.outerHTML.slice(0, 120));
	if (document.querySelectorAll("h1").length !== 1) found.push("there is not one title: " + document.querySelectorAll("h1").length);
	if (!document.documentElement.lang) found.push("no language");
	const ids = [...document.querySelectorAll("[id]")].map((e) => e.id);
	ids.filter((id, i) => ids.indexOf(id) !== i).forEach((id) => found.push("twice the same id: " + id));
	for (const e of document.querySelectorAll("th")) if (!e.scope) found.push("a heading of a table without a scope: " + e.outerHTML.slice(0, 80));
	const wide = document.documentElement.scrollWidth - innerWidth;
	if (wide > 0) {
		const worst = [...document.querySelectorAll("main *")].filter((e) => e.getBoundingClientRect().right > innerWidth + 1 && !e.closest(".scroll, pre, .tabs, svg")).slice(0, 3);
		found.push("wider than the screen by " + wide + ": " + worst.map((e) => e.outerHTML.slice(0, 100)).join(" | "));
	}
	return found;
})()`

// contrast is a script that lists texts which are hard to read: less than 4.5 to 1, or 3 to 1 if
// they are large.
const contrast = `(() => {
	const rgb = (text) => { const m = text.match(/[\d.]+/g).map(Number); return { r: m[0], g: m[1], b: m[2], a: m[3] ?? 1 }; };
	const light = ({ r, g, b }) => { const f = (c) => { c /= 255; return c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4; }; return 0.2126 * f(r) + 0.7152 * f(g) + 0.0722 * f(b); };
	const behind = (e) => { for (; e; e = e.parentElement) { const c = rgb(getComputedStyle(e).backgroundColor); if (c.a === 1) return c; } return { r: 255, g: 255, b: 255 }; };
	const found = new Set();
	const walk = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
	while (walk.nextNode()) {
		const e = walk.currentNode.parentElement;
		if (!walk.currentNode.data.trim() || !e.checkVisibility() || e.closest("svg, .visually-hidden, option, title, noscript") || e.disabled) continue;
		const style = getComputedStyle(e);
		const a = light(rgb(style.color)), b = light(behind(e));
		const ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
		const size = parseFloat(style.fontSize);
		const least = size >= 24 || (size >= 18.66 && Number(style.fontWeight) >= 700) ? 3 : 4.5;
		if (ratio < least) found.add(ratio.toFixed(2) + " for " + style.color + " in <" + e.localName + " class=" + e.className + "> " + walk.currentNode.data.trim().slice(0, 40));
	}
	return [...found];
})()`

func TestEveryPage(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	values := w.furnish()
	// Parts of pages, and pages that show trouble, beside the pages themselves.
	addresses := []string{
		"/ui/runs?tenant=" + tenant, "/ui/?tenant=" + tenant, "/ui/tenants/{tenant}/runs/failed", "/ui/tenants/{tenant}/runs/{run}?tab=gantt",
		"/ui/tenants/{tenant}/runs/{run}?tab=tasks", "/ui/tenants/{tenant}/runs/{run}?tab=events", "/ui/tenants/{tenant}/runs/{run}?tab=parameters",
		"/ui/search", "/ui/search?q=shop", "/ui/search?q=nothing-has-this-name",
		"/ui/tenants/{tenant}?tab=quotas", "/ui/tenants/{tenant}?tab=keys", "/ui/tenants/{tenant}?tab=workspaces", "/ui/tenants/{tenant}?tab=audit",
		"/ui/admin?tab=keys", "/ui/admin?tab=signing", "/ui/admin?tab=subscriptions", "/ui/admin?tab=projections", "/ui/admin?tab=audit", "/ui/alerts?tenant={tenant}",
		"/ui/configs?tenant={tenant}", "/ui/configs/new?tenant={tenant}", "/ui/tenants/{tenant}/configs/{config}?tab=audit", "/ui/tenants/{tenant}/configs/{config}?tab=settings&day=2026-01-05",
		"/ui/simulator?tenant={tenant}&days=30",
		"/ui/pipelines?tenant={tenant}", "/ui/tenants/{tenant}/pipelines/{pipeline}?tab=grid", "/ui/tenants/{tenant}/pipelines/{pipeline}?tab=runs", "/ui/tenants/{tenant}/pipelines/{pipeline}?tab=configs",
		"/ui/tenants/{tenant}/pipelines/{pipeline}?tab=parameters", "/ui/tenants/{tenant}/pipelines/{pipeline}?tab=versions", "/ui/tenants/{tenant}/pipelines/{pipeline}/run?from={run}", "/ui/tenants/{tenant}/runs/{run}/logs?task={task}",
		"/ui/releases/{release}?channel=stable&with=2026.11.1", "/ui/releases/broken?channel=stable", "/ui/tenants/north",
	}
	addresses = append(addresses, patterns(t)...)
	for _, screen := range []struct {
		name          string
		width, height int64
	}{{"laptop", 1280, 800}, {"phone", 390, 844}} {
		w.Size(screen.width, screen.height)
		for _, pattern := range addresses {
			at := addressOf(t, pattern, values)
			w.Go(at)
			require.Empty(t, browser.Eval[[]string](w.Window, faults), "%s on a %s", at, screen.name)
			if screen.name == "phone" {
				continue
			}
			for _, theme := range []string{"light", "dark"} {
				browser.Eval[bool](w.Window, fmt.Sprintf("(document.documentElement.dataset.theme = %q, true)", theme))
				require.Empty(t, browser.Eval[[]string](w.Window, contrast), "%s, %s", at, theme)
			}
		}
	}
}
