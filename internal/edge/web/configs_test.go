package web_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/proto"

	servov1 "go.arco.dev/servo/gen/servo/v1"
	"go.arco.dev/servo/internal/devkit/servotest/browser"
	"go.arco.dev/servo/internal/edge/web/view"
)

// addConfig makes a config of the pipeline that the world has.
func (w *world) addConfig(tenant, name string, change func(*servov1.ConfigSpec)) *servov1.Config {
	w.t.Helper()
	spec := &servov1.ConfigSpec{Pipeline: "shop", Timezone: "Europe/Berlin", Trigger: &servov1.ConfigTrigger{Cron: "30 2 * * *"}, Labels: map[string]string{"provider": "AWS"}}
	if change != nil {
		change(spec)
	}
	made, err := servov1.NewConfigServiceClient(w.conn).CreateConfig(w.t.Context(), &servov1.CreateConfigRequest{Tenant: tenant, Name: name, Spec: spec})
	require.NoError(w.t, err)
	return made
}

// everySecond lets a config fire while the test looks on.
func everySecond(s *servov1.ConfigSpec) {
	s.Trigger, s.MaxConsecutiveFailures = &servov1.ConfigTrigger{Interval: "1s"}, proto.Int32(1)
}

func TestConfig(t *testing.T) {
	t.Parallel()

	t.Run("a config shows when it fires, in its zone and in the reader's, and its changes", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t)
		w.addConfig(tenant, "nightly", nil)
		at := view.ConfigPath(tenant, "", "nightly")
		w.Go(at)
		w.See("daily at 02:30")
		w.See("Europe/Berlin")
		require.Equal(t, 8, w.Count(".slots tbody tr"))
		require.Contains(t, w.Text(".slots tbody td"), "02:30")
		w.See("No runs yet")

		w.Click("[data-dialog=pause]")
		w.See("recorded as skipped")
		w.Type("dialog#pause [name=reason]", "the shop is closed")
		w.Click("dialog#pause button[type=submit]")
		w.Until(`document.querySelector(".head .state").textContent.includes("paused")`)
		w.See("the shop is closed") // why it does not fire
		require.NotContains(t, w.Text("main"), "Next:")
		require.NotContains(t, w.Text("main"), "next slot is")
		w.Click("[data-dialog=resume]")
		w.Click("dialog#resume button[type=submit]")
		w.Until(`document.querySelector(".head .state").textContent.includes("active")`)

		year := time.Now().AddDate(0, 2, 0).Format("2006-01-02")
		w.Click("[data-dialog=reschedule]")
		browser.Eval[bool](w.Window, `(() => { document.querySelector("dialog#reschedule [name=slot]").value = "`+year+`T05:45"; return true })()`)
		w.Click("dialog#reschedule button[type=submit]")
		w.See("Next slot rescheduled")
		require.Contains(t, w.Text(".slots tbody td"), "05:45")

		w.Go(at + "?tab=audit")
		w.See("the shop is closed")
		w.See("rescheduled_to")
		w.Go(at + "?tab=settings")
		w.See("5 failures")
	})

	t.Run("it is triggered and leads to its run, and is deleted after a question", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t)
		w.addConfig(tenant, "nightly", nil)
		w.Go(view.ConfigPath(tenant, "", "nightly"))
		w.Click("[data-dialog=trigger]")
		w.Click("dialog#trigger button[type=submit]")
		w.See("Run created")
		require.Contains(t, w.Address(), "/runs/")
		w.Go(view.ConfigPath(tenant, "", "nightly"))
		w.Until(`document.querySelectorAll("tr[id^=run-]").length === 1`)
		w.Click("[data-dialog=delete]")
		w.See("This cannot be undone")
		w.Click("dialog#delete button[type=submit]")
		w.See("nightly deleted")
	})

	t.Run("a failing one explains itself, and its calendar is updated on an open page", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t)
		w.addConfig(tenant, "often", everySecond)
		w.Go(view.ConfigPath(tenant, "", "often"))
		w.Until(`document.querySelector(".calendar a.day")`) // without a reload
		w.failTask(w.claim(), "SHOP_CLOSED", "the door stayed closed")
		w.Until(`document.querySelector(".head .state").textContent.includes("disabled")`)
		w.See("the door stayed closed")
		w.Until(`document.querySelector(".calendar a.t-bad")`)
		w.Click(".calendar a.t-bad")
		w.Until(`document.querySelector("#day")`)
		require.Contains(t, w.Text("#day tbody"), "failed")
		w.Click("#day tbody a")
		w.See("SHOP_CLOSED")
	})
}
