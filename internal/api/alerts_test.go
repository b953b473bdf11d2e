package api_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"

	servov1 "go.arco.dev/servo/gen/servo/v1"
	"go.arco.dev/servo/internal/servotest/verifytest"
)

func TestAlerts(t *testing.T) {
	t.Parallel()

	t.Run("alerts are read by page, the newest first, by tenant", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		alerts := servov1.NewAlertServiceClient(b.conn)
		b.db.Exec(t, `INSERT INTO servo.alerts (tenant_id, id, version, kind, severity, about_id, name, message, raised_at, resolved_at)
			SELECT t.id, ('01930000-0000-7000-8000-00000000000' || n)::uuid, 1, 'PIPELINE_FAILING', 2, gen_random_uuid(), 'default/' || n, 'it fails', servo.clock(), CASE WHEN n = 1 THEN servo.clock() END
			FROM servo.tenants t, generate_series(1, 5) AS n WHERE t.name = 'acme'`)
		var names []string
		req := &servov1.ListAlertsRequest{Tenant: "acme", PageSize: 2, Open: true}
		for pages := 0; ; pages++ {
			require.Less(t, pages, 4)
			page, err := alerts.ListAlerts(t.Context(), req)
			require.NoError(t, err)
			for _, a := range page.GetAlerts() {
				names = append(names, a.GetName())
			}
			if req.PageToken = page.GetNextPageToken(); req.GetPageToken() == "" {
				break
			}
		}
		require.Equal(t, []string{"default/5", "default/4", "default/3", "default/2"}, names)

		all, err := alerts.ListAlerts(t.Context(), &servov1.ListAlertsRequest{Tenant: "acme"})
		require.NoError(t, err)
		require.Len(t, all.GetAlerts(), 5)
		require.NotNil(t, all.GetAlerts()[4].GetResolvedAt())
		mine, err := alerts.ListAlerts(t.Context(), &servov1.ListAlertsRequest{})
		require.NoError(t, err)
		require.Empty(t, mine.GetAlerts(), "the installation has its own")
		everywhere, err := alerts.ListAlerts(t.Context(), &servov1.ListAlertsRequest{AllTenants: true, PageSize: 3})
		require.NoError(t, err)
		require.Len(t, everywhere.GetAlerts(), 3)
		require.Equal(t, "acme", everywhere.GetAlerts()[0].GetTenant())
		rest, err := alerts.ListAlerts(t.Context(), &servov1.ListAlertsRequest{AllTenants: true, PageSize: 3, PageToken: everywhere.GetNextPageToken()})
		require.NoError(t, err)
		require.Len(t, rest.GetAlerts(), 1, "one is over")
		_, err = alerts.ListAlerts(t.Context(), &servov1.ListAlertsRequest{AllTenants: true, Tenant: "acme"})
		require.Equal(t, codes.InvalidArgument, codeOf(err))

		one := all.GetAlerts()[0]
		got, err := alerts.GetAlert(t.Context(), &servov1.GetAlertRequest{Tenant: "acme", Alert: one.GetId()})
		require.NoError(t, err)
		require.Equal(t, one.GetName(), got.GetName())
		_, err = alerts.GetAlert(t.Context(), &servov1.GetAlertRequest{Tenant: "brick", Alert: one.GetId()})
		require.Equal(t, codes.NotFound, codeOf(err))
		_, err = alerts.GetAlert(t.Context(), &servov1.GetAlertRequest{Alert: one.GetId()})
		require.Equal(t, codes.NotFound, codeOf(err))
	})

	t.Run("what cannot be is refused with its field", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		alerts := servov1.NewAlertServiceClient(b.conn)
		_, err := alerts.ListAlerts(t.Context(), &servov1.ListAlertsRequest{Tenant: "acme", Kind: "NO_SUCH"})
		requireRefused(t, err, codes.InvalidArgument, "kind")
		_, err = alerts.ListAlerts(t.Context(), &servov1.ListAlertsRequest{Tenant: "acme", PageSize: 101})
		requireRefused(t, err, codes.InvalidArgument, "page_size")
		_, err = alerts.GetAlert(t.Context(), &servov1.GetAlertRequest{Tenant: "acme", Alert: "x"})
		requireRefused(t, err, codes.InvalidArgument, "alert")
		for _, bad := range []struct {
			field string
			*servov1.CreateAlertChannelRequest
		}{
			{"url", &servov1.CreateAlertChannelRequest{Tenant: "acme", Name: "x"}},
			{"url", &servov1.CreateAlertChannelRequest{Tenant: "acme", Name: "x", Url: "gopher://example.com"}},
			{"name", &servov1.CreateAlertChannelRequest{Tenant: "acme", Url: "https://example.com"}},
			{"name", &servov1.CreateAlertChannelRequest{Tenant: "acme", Name: strings.Repeat("x", 101), Url: "https://example.com"}},
			{"severity", &servov1.CreateAlertChannelRequest{Tenant: "acme", Name: "x", Url: "https://example.com", Severity: 9}},
		} {
			_, err = alerts.CreateAlertChannel(t.Context(), bad.CreateAlertChannelRequest)
			requireRefused(t, err, codes.InvalidArgument, bad.field)
		}
		_, err = alerts.CreateAlertChannel(t.Context(), &servov1.CreateAlertChannelRequest{Tenant: "nobody", Name: "x", Url: "https://example.com"})
		require.Equal(t, codes.NotFound, codeOf(err))
		require.Zero(t, b.db.Count(t, `SELECT count(*) FROM servo.alert_channels`))
		verifytest.Clean(t, b.db)
	})
}
