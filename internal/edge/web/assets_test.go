package web_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	servov1 "go.arco.dev/servo/gen/servo/v1"
	"go.arco.dev/servo/internal/edge/web/view"
)

func TestAssets(t *testing.T) {
	t.Parallel()

	t.Run("the catalogue: a tenant is chosen, assets are found by selection and text, and drawn", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t)
		w.Go("/ui/assets")
		w.See("Select a tenant")
		w.Click(`main a[href="/ui/assets?tenant=acme"]`)
		w.Until(`document.querySelectorAll("tbody tr").length === 4`)
		w.See("What was sold.")
		w.Go("/ui/assets?tenant=acme&select=%2Bshop/clean")
		require.Equal(t, 2, w.Count("tbody tr"))
		w.Go("/ui/assets?tenant=acme&q=SOLD")
		require.Equal(t, 1, w.Count("tbody tr"))
		w.Go("/ui/assets?tenant=acme&q=nothing+of+the+kind")
		w.See("No matching assets")
		w.Go("/ui/assets?tenant=acme&select=shop/order")
		w.See("Unknown asset shop/order")
		w.Go("/ui/assets?tenant=acme&view=graph")
		require.Equal(t, 4, w.Count("svg.draw a"))
		require.Equal(t, 4, w.Count("svg.draw .edge"))
		_, err := servov1.NewAssetServiceClient(w.conn).PauseAsset(t.Context(), &servov1.PauseAssetRequest{Tenant: tenant, Asset: "shop/rates"})
		require.NoError(t, err)
		w.Until(`document.querySelector("svg.draw").textContent.includes("paused")`) // without a reload

		_, err = servov1.NewTenantServiceClient(w.conn).CreateTenant(t.Context(), &servov1.CreateTenantRequest{Name: "bare"})
		require.NoError(t, err)
		w.Go("/ui/assets?tenant=bare")
		w.See("No deployment")
		w.See("servo deploy --tenant bare")
	})

	t.Run("an asset shows how it is made and in which pipelines, and is paused and resumed with a reason", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t)
		run := w.trigger(tenant)
		w.Go(view.AssetPath(tenant, "", "shop/clean"))
		require.Equal(t, 3, w.Count("svg.draw a"), "upstream, itself, downstream")
		w.See("Go handler")
		w.Until(`document.querySelector('main a[href$="` + run.GetId() + `"]')`)
		w.Click("[data-dialog=pause]")
		w.See("Queued and running tasks continue")
		w.Type("dialog#pause [name=reason]", "the rates are wrong")
		w.Click("dialog#pause button[type=submit]")
		w.See("New tasks of this asset wait")
		w.See("the rates are wrong")
		w.Click("[data-dialog=resume]")
		w.Click("dialog#resume button[type=submit]")
		w.See("Asset resumed")
		w.Until(`!document.querySelector(".head .state")`)

		w.Allow("404")
		w.Go(view.AssetPath(tenant, "", "shop/cleen"))
		w.See("did you mean shop/clean?")
	})
}
