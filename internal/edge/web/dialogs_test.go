package web_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	servov1 "go.arco.dev/servo/gen/servo/v1"
	"go.arco.dev/servo/internal/devkit/servotest/browser"
	"go.arco.dev/servo/internal/edge/web/view"
)

func TestDialogs(t *testing.T) {
	t.Parallel()
	value := func(w *world, at string) string {
		return browser.Eval[string](w.Window, `document.querySelector("`+at+`").value`)
	}
	fill := func(w *world, at, text string) {
		browser.Eval[bool](w.Window, `(() => { document.querySelector("`+at+`").value = "`+text+`"; return true })()`)
	}

	t.Run("a refusal is shown beside its field, and the input stays until it is valid", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t)
		w.Allow("400")
		w.Go(view.TenantPath(tenant) + "?tab=keys")
		w.Click("[data-dialog=new-key]")
		w.Type("dialog#new-key [name=name]", "ci/of the shop")
		w.Type("dialog#new-key [name=pools]", "fast, slow")
		fill(w, "dialog#new-key [name=role]", "worker")
		w.Click("dialog#new-key button[type=submit]")
		w.Until(`document.querySelector("dialog#new-key[open] label:has([name=name]) .field-error")`)
		require.Equal(t, 1, w.Count("dialog#new-key .field-error"))
		require.Equal(t, 1, w.Count("dialog#new-key [name=name][aria-invalid=true]"))
		require.Equal(t, []string{"ci/of the shop", "fast, slow", "worker"},
			[]string{value(w, "dialog#new-key [name=name]"), value(w, "dialog#new-key [name=pools]"), value(w, "dialog#new-key [name=role]")})

		_, err := servov1.NewKeyServiceClient(w.conn).CreateKey(t.Context(), &servov1.CreateKeyRequest{Tenant: tenant, Name: "other", Role: "viewer"})
		require.NoError(t, err)
		w.Until(`document.querySelector("tr[id^=key-]")`) // the page is updated around it
		require.Equal(t, "fast, slow", value(w, "dialog#new-key [name=pools]"))

		fill(w, "dialog#new-key [name=name]", "ci")
		w.Click("dialog#new-key button[type=submit]")
		w.Until(`document.querySelector("dialog#new-key[open] label:has([name=pools]) .field-error")`) // they are not the tenant's
		require.Equal(t, 1, w.Count("dialog#new-key .field-error"), "what was wrong before is gone")
		fill(w, "dialog#new-key [name=pools]", "")
		fill(w, "dialog#new-key [name=role]", "viewer")
		w.Click("dialog#new-key button[type=submit]")
		w.See("it is not shown again")
		require.Zero(t, w.Count("dialog#new-key[open]"))
		w.Click("dialog[open] section a.button")
		w.Until(`document.querySelectorAll("tr[id^=key-]").length === 2 && !document.querySelector("dialog[open]")`)
	})

	t.Run("a field is found where the call has it elsewhere, and other errors are below", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t)
		w.Allow("400")
		w.Allow("409")
		w.Go(view.TenantPath(tenant) + "?tab=quotas")
		w.Click("[data-dialog=quotas]")
		fill(w, "[name=max_concurrent_runs]", "7")
		fill(w, "[name=zone]", "Mars/Base")
		w.Click("dialog#quotas button[type=submit]")
		w.Until(`document.querySelector("dialog#quotas[open] label:has([name=zone]) .field-error")`)
		fill(w, "[name=zone]", "Asia/Tokyo")

		runs := int32(9) // another operator is faster
		_, err := servov1.NewTenantServiceClient(w.conn).SetQuotas(t.Context(), &servov1.SetQuotasRequest{Tenant: tenant, Quotas: &servov1.Quotas{MaxConcurrentRuns: &runs}})
		require.NoError(t, err)
		w.Click("dialog#quotas button[type=submit]")
		w.Until(`document.querySelector("dialog#quotas[open] form > .field-error")`)
		require.Equal(t, 1, w.Count("dialog#quotas .field-error"), "what was wrong before is gone")
		require.Equal(t, "7", value(w, "[name=max_concurrent_runs]"))
	})
}
