package web_test

import (
	"strings"
	"testing"

	"github.com/chromedp/chromedp/kb"
	"github.com/stretchr/testify/require"

	servov1 "go.arco.dev/servo/gen/servo/v1"
)

func TestSearch(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.addTenant("brick")
	made := w.trigger("brick")
	_, err := servov1.NewConfigServiceClient(w.conn).CreateConfig(t.Context(), &servov1.CreateConfigRequest{
		Tenant: tenant, Name: "shop-nightly", Spec: &servov1.ConfigSpec{Pipeline: "shop", Trigger: &servov1.ConfigTrigger{Cron: "30 2 * * *"}},
	})
	require.NoError(t, err)
	const box = `header .search input`

	t.Log("an id is offered while it is typed, whatever tenant was chosen, and Enter leads to it")
	w.Go("/ui/runs?tenant=" + tenant)
	w.Type(box, made.GetId())
	w.Until(`document.querySelector("#suggest a .kind")?.textContent === "run"`)
	w.Press("\r")
	w.Until(`location.pathname === "/ui/tenants/brick/runs/` + made.GetId() + `"`)

	t.Log("a name is reached by the keyboard alone")
	w.Go("/ui/?tenant=" + tenant)
	w.Press("/")
	w.Until(`document.activeElement.matches(".search input") && (document.activeElement.value = "", true)`) // a key that is sent types too
	w.Type(box, "shop-n")
	w.Until(`document.querySelector("#suggest a .kind")?.textContent === "config"`)
	w.Press(kb.ArrowDown)
	w.Until(`document.activeElement.matches("#suggest a")`)
	w.Press("\r")
	w.Until(`location.pathname.endsWith("/configs/shop-nightly")`)

	t.Log("the page shows results by kind, and states what to do if there are none")
	w.Go("/ui/search?tenant=" + tenant + "&q=shop")
	w.See("shop-nightly")
	w.See("shop/orders")
	w.See("Pipelines")
	w.Go("/ui/search?q=nothing-like-it")
	w.See("No matches")
	answer, body := get(t, w.Server, "/ui/find?q="+strings.Repeat("x", 300), nil)
	require.Equal(t, 200, answer.StatusCode)
	require.Contains(t, body, "too long")
}
