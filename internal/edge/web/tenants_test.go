package web_test

import (
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/metadata"

	servov1 "go.arco.dev/servo/gen/servo/v1"
	"go.arco.dev/servo/internal/devkit/servotest/browser"
	"go.arco.dev/servo/internal/devkit/servotest/servertest"
	"go.arco.dev/servo/internal/edge/web/view"
)

func TestTenants(t *testing.T) {
	t.Parallel()

	t.Run("tenants are listed and made, and a new one leads to its page", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t)
		w.Go("/ui/tenants")
		require.Equal(t, 1, w.Count("tbody tr"))
		w.addTenant("globex")
		w.Until(`document.querySelector("#tenant-globex")`) // without a reload
		w.trigger("globex")
		w.Until(`document.querySelector("#tenant-globex").textContent.includes("1")`)
		w.Click("[data-dialog=new-tenant]")
		w.Type("dialog#new-tenant [name=name]", "initech")
		w.Click("dialog#new-tenant button[type=submit]")
		w.Until(`location.pathname === "/ui/tenants/initech"`)
		w.See("No runs ended in this period")
	})

	t.Run("the page of a tenant shows how it fares, and what failed", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t)
		w.Go("/ui/tenants?tenant=" + tenant) // the choice of a tenant leads to its page
		w.See("No failed runs")
		run := w.trigger(tenant)
		w.failTask(w.claim(), "SHOP_CLOSED", "the door stayed closed")
		w.Until(`document.querySelector("#run-` + run.GetId() + `")`) // without a reload
		w.Until(`document.querySelector("svg.draw rect.f-bad")`)
		w.Go(view.TenantPath(tenant) + "?days=90")
		require.Equal(t, 90, browser.Eval[int](w.Window, `document.querySelector("svg.draw").querySelectorAll("g").length`))
		require.Contains(t, browser.Eval[string](w.Window, `[...document.querySelectorAll("svg.draw title")].at(-1).textContent`), "1 failed")
	})

	t.Run("sums are shown by any label of configs", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t)
		configs := servov1.NewConfigServiceClient(w.conn)
		_, err := configs.CreateConfig(t.Context(), &servov1.CreateConfigRequest{Tenant: tenant, Name: "labelled", Spec: &servov1.ConfigSpec{
			Pipeline: "shop", Trigger: &servov1.ConfigTrigger{Cron: "0 0 1 1 *"}, Labels: map[string]string{"team": "<growth>", "tier": "1"},
		}})
		require.NoError(t, err)
		_, err = configs.TriggerConfig(t.Context(), &servov1.TriggerConfigRequest{Tenant: tenant, Config: "labelled"})
		require.NoError(t, err)
		w.failTask(w.claim(), "SHOP_CLOSED", "the door stayed closed")
		w.Go(view.TenantPath(tenant))
		w.Until(`document.body.textContent.includes("Runs by label")`)
		w.Click(`a[href*="by=team"]`)
		w.See("<growth>")
		require.Contains(t, browser.Eval[string](w.Window, `location.search`), "days=30")
	})

	t.Run("quotas show their use and are changed, unless another change was faster", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t)
		w.Allow("409")
		w.Go(view.TenantPath(tenant) + "?tab=quotas")
		w.See("no limit")
		w.Click("[data-dialog=quotas]")
		browser.Eval[bool](w.Window, `(() => { document.querySelector("[name=max_concurrent_runs]").value = "7"; document.querySelector("[name=zone]").value = "Asia/Tokyo"; return true })()`)
		w.Click("dialog#quotas button[type=submit]")
		w.See("Quotas updated")
		w.See("Asia/Tokyo")
		got, err := servov1.NewTenantServiceClient(w.conn).GetQuotas(t.Context(), &servov1.GetQuotasRequest{Tenant: tenant})
		require.NoError(t, err)
		require.EqualValues(t, 7, got.GetQuotas().GetMaxConcurrentRuns())
		require.EqualValues(t, -1, got.GetQuotas().GetMaxDailyRuns())

		answer, body := post(t, w.Server, view.TenantPath(tenant)+"/quotas", url.Values{"version": {"1"}, "max_concurrent_runs": {"9"}}, nil)
		require.Equal(t, http.StatusConflict, answer.StatusCode, body)
	})

	t.Run("workspaces are created, and the audit lists the actors", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t)
		w.Go(view.TenantPath(tenant) + "?tab=workspaces")
		w.Click("[data-dialog=new-workspace]")
		w.Type("dialog#new-workspace [name=name]", "staging")
		w.Click("dialog#new-workspace button[type=submit]")
		w.See("Workspace staging created")
		require.Equal(t, 2, w.Count("tbody tr"))
		w.Go(view.TenantPath(tenant) + "?tab=audit")
		w.See("TenantService/CreateWorkspace")
		w.Click("tbody details summary")
		w.See(`"staging"`)
		w.Go(view.TenantPath(tenant) + "?tab=audit&actor=missing")
		w.See("No calls")
	})
}

func TestKeys(t *testing.T) {
	t.Parallel()

	t.Run("a key is shown once: not in an address, a cookie or a cache", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t)
		w.Go(view.TenantPath(tenant) + "?tab=keys")
		w.See("No keys")
		w.Click("[data-dialog=new-key]")
		w.Type("dialog#new-key [name=name]", "ci")
		w.Click("dialog#new-key button[type=submit]")
		w.See("it is not shown again")
		secret := w.Text("#secret")
		require.True(t, strings.HasPrefix(secret, "sk_"))
		require.NotContains(t, w.Address(), "sk_")
		w.Go(view.TenantPath(tenant) + "?tab=keys")
		w.See("ci")
		require.NotContains(t, browser.Eval[string](w.Window, "document.documentElement.outerHTML"), secret)

		answer, body := post(t, w.Server, view.TenantPath(tenant)+"/keys", url.Values{"name": {"other"}, "role": {"viewer"}}, nil)
		require.Equal(t, http.StatusOK, answer.StatusCode)
		require.Contains(t, body, "sk_")
		require.Equal(t, "no-store", answer.Header.Get("Cache-Control"))
		require.Empty(t, answer.Header.Get("Location"))
		require.Empty(t, answer.Cookies())
	})

	t.Run("a key is rotated with an overlap, and revoked", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t)
		keys := servov1.NewKeyServiceClient(w.conn)
		made, err := keys.CreateKey(t.Context(), &servov1.CreateKeyRequest{Tenant: tenant, Name: "ci", Role: "operator"})
		require.NoError(t, err)
		old := made.GetKey().GetId()
		w.Go(view.TenantPath(tenant) + "?tab=keys")
		w.Click("[data-dialog=rotate-" + old + "]")
		w.Click("dialog#rotate-" + old + " button[type=submit]")
		w.See("Key ci rotated")
		require.NotEqual(t, made.GetSecret(), w.Text("#secret"))
		w.Click("dialog[open] section a.button")
		w.Until(`document.querySelector("#key-` + old + ` .state").textContent.includes("retiring")`)
		w.Click("[data-dialog=revoke-" + old + "]")
		w.Click("dialog#revoke-" + old + " button[type=submit]")
		w.See("Key ci revoked")
		require.Equal(t, 1, w.Count("tbody tr"))
		w.Go(view.TenantPath(tenant) + "?tab=keys&all=1")
		require.Equal(t, 2, w.Count("tbody tr"))
	})
}

func TestPortal(t *testing.T) {
	t.Parallel()
	server, platform := servertest.StartLocked(t)
	conn := server.Dial(t)
	ctx := metadata.AppendToOutgoingContext(t.Context(), "authorization", "Bearer "+platform)
	for _, name := range []string{tenant, "globex"} {
		_, err := servov1.NewTenantServiceClient(conn).CreateTenant(ctx, &servov1.CreateTenantRequest{Name: name})
		require.NoError(t, err)
	}
	login := func(t *testing.T, role, workspace string) *browser.Window {
		t.Helper()
		made, err := servov1.NewKeyServiceClient(conn).CreateKey(ctx, &servov1.CreateKeyRequest{Tenant: tenant, Name: role + workspace, Role: role, Workspace: workspace})
		require.NoError(t, err)
		w := chromium.Open(t, server.URL)
		w.Allow("403")
		w.Allow("404")
		w.Go("/ui/login?back=/ui/tenants")
		w.Type("#key", made.GetSecret())
		w.Click("button[type=submit]")
		w.Until(`document.querySelector("main h1")?.textContent === "` + tenant + `"`) // its own page, and no list
		return w
	}

	t.Run("a viewer sees its own tenant, and nothing of others or of keys", func(t *testing.T) {
		t.Parallel()
		w := login(t, "viewer", "")
		require.NotContains(t, browser.Eval[string](w, "document.documentElement.outerHTML"), "globex")
		require.Equal(t, 3, w.Count(".tabs a"), "overview, quotas and workspaces")
		require.Zero(t, w.Count("dialog"))
		w.Go(view.TenantPath(tenant) + "?tab=keys")
		w.See("Not permitted")
		w.Go(view.TenantPath("globex"))
		require.Zero(t, w.Count(".tabs"))
	})

	t.Run("an admin looks after its keys, and not after its quotas", func(t *testing.T) {
		t.Parallel()
		w := login(t, "admin", "")
		w.Go(view.TenantPath(tenant) + "?tab=quotas")
		w.See("Concurrent tasks")
		require.Zero(t, w.Count("[data-dialog=quotas]"))
		w.Go(view.TenantPath(tenant) + "?tab=keys")
		require.Equal(t, 1, w.Count("[data-dialog=new-key]"))
	})

	t.Run("a key of one workspace sees why there are no sums", func(t *testing.T) {
		t.Parallel()
		w := login(t, "viewer", "default")
		w.See("Your key is for the workspace default")
		w.See("No failed runs")
	})
}
