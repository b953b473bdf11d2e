package web_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	servov1 "go.arco.dev/servo/gen/servo/v1"
)

func TestAdmin(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.trigger(tenant)

	// Servers, duties, and whether work is given out.
	w.Go("/ui/admin")
	w.See(t.Name()) // the server is named after the test
	w.See("admission")
	w.Click("[data-dialog=pause-dispatch]")
	w.See("No task of any tenant or pool starts until you resume dispatch")
	w.Type("dialog#pause-dispatch [name=reason]", "new disks")
	w.Click("dialog#pause-dispatch button[type=submit]")
	w.See("new disks")
	w.See("workers hold no tasks")
	status, err := servov1.NewAdminServiceClient(w.conn).GetDispatch(t.Context(), &servov1.GetDispatchRequest{})
	require.NoError(t, err)
	require.True(t, status.GetDispatch().GetPaused())
	w.Click("[data-dialog=resume-dispatch]")
	w.Click("dialog#resume-dispatch button[type=submit]")
	w.Until(`document.querySelector("[data-dialog=pause-dispatch]")`)

	// The audit of the installation has both.
	w.Go("/ui/admin?tab=audit")
	w.See("AdminService/PauseDispatch")
	w.See("AdminService/ResumeDispatch")

	// Whether the tables equal the events.
	w.Go("/ui/admin?tab=projections")
	w.Type("[name=tenant]", tenant)
	w.Click("main button[type=submit]")
	w.See("The tables match the event log")
	w.See("1 run and 4 tasks")

	// Keys of the installation.
	w.Go("/ui/admin?tab=keys")
	w.Click("[data-dialog=new-key]")
	w.Type("dialog#new-key [name=name]", "ops")
	w.Click("dialog#new-key button[type=submit]")
	w.See("it is not shown again")
	require.True(t, strings.HasPrefix(w.Text("#secret"), "sk_"))
	w.Click("section a.button")
	w.Until(`location.search === "?tab=keys"`)
	require.Contains(t, w.Text("tbody"), "platform")

	// Subscriptions of the installation.
	_, err = servov1.NewSubscriptionServiceClient(w.conn).CreateSubscription(t.Context(), &servov1.CreateSubscriptionRequest{Name: "warehouse", Url: "https://hooks.example.com/all"})
	require.NoError(t, err)
	w.Go("/ui/admin?tab=subscriptions")
	w.Click("#subscription-warehouse button")
	w.Click("#subscription-warehouse dialog button[type=submit]")
	w.See("warehouse paused")
	w.Click("#subscription-warehouse button")
	w.Click("#subscription-warehouse dialog button[type=submit]")
	w.Until(`document.querySelector(".toast")?.textContent.includes("warehouse resumed")`)

	w.Go("/ui/admin?tab=signing")
	w.See("Signing keys")
}
