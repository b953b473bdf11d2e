package web_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	servov1 "go.arco.dev/servo/gen/servo/v1"
)

func TestAlerts(t *testing.T) {
	t.Parallel()

	t.Run("an alert is raised and resolved on an open page, with the channels that received it", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t)
		configs := servov1.NewConfigServiceClient(w.conn)
		_, err := configs.CreateConfig(t.Context(), &servov1.CreateConfigRequest{
			Tenant: tenant, Name: "shop-nightly", Spec: &servov1.ConfigSpec{Pipeline: "shop", Trigger: &servov1.ConfigTrigger{Cron: "30 2 1 1 *"}},
		})
		require.NoError(t, err)
		_, err = servov1.NewAlertServiceClient(w.conn).CreateAlertChannel(t.Context(), &servov1.CreateAlertChannelRequest{Tenant: tenant, Name: "on-call", Url: "http://127.0.0.1:1/closed"})
		require.NoError(t, err)
		trigger := func() {
			_, err := configs.TriggerConfig(t.Context(), &servov1.TriggerConfigRequest{Tenant: tenant, Config: "shop-nightly"})
			require.NoError(t, err)
		}
		w.Go("/ui/alerts?tenant=" + tenant)
		w.See("No open alerts")
		for range 3 {
			trigger()
			w.failTask(w.claim(), "SHOP_CLOSED", "the door stayed closed")
		}
		w.Until(`document.querySelectorAll("[id^=alert-]").length === 2`) // without a reload: of the first failure, and of three
		w.See("pipeline failing")
		require.Equal(t, 2, w.Count(`[id^=alert-] a[href="/ui/tenants/acme/configs/shop-nightly"]`), "each leads to what it is about")
		w.Click("[id^=alert-] td.wide a")
		w.See("on-call")
		w.Until(`document.querySelector("tbody .state")?.textContent.includes("retrying")`)

		w.Go("/ui/alerts?tenant=" + tenant)
		trigger()
		for range 4 {
			w.complete(w.claim())
		}
		w.See("No open alerts")
		w.Until(`document.querySelector("[id^=alert-]").textContent.includes("resolved")`)
		w.Go("/ui/alerts?state=open&tenant=" + tenant)
		require.Zero(t, w.Count("[id^=alert-]"))
		w.Go("/ui/alerts?kind=RUN_LATE&tenant=" + tenant)
		require.Zero(t, w.Count("[id^=alert-]"))
	})

	t.Run("a channel is made, with its secret shown once, and deleted", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t)
		for _, at := range []string{"/ui/alerts?tenant=" + tenant, "/ui/alerts"} {
			w.Go(at)
			w.See("No channels")
			w.Click("[data-dialog=new-channel]")
			w.Type("dialog#new-channel [name=name]", "on-call")
			w.Type("dialog#new-channel [name=url]", "https://hooks.example.com/servo")
			w.Click("dialog#new-channel button[type=submit]")
			w.See("it is not shown again")
			require.NotEmpty(t, w.Text("#secret"))
			w.Click("section a.button")
			w.Until(`document.querySelector("#channel-on-call")`)
			w.Click("#channel-on-call button.danger")
			w.Click("#channel-on-call dialog button[type=submit]")
			w.See("No channels")
		}
	})
}
