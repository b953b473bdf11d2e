package api_test

import (
	"encoding/base64"
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"

	servov1 "go.arco.dev/servo/gen/servo/v1"
	"go.arco.dev/servo/internal/base/webhook"
	"go.arco.dev/servo/internal/devkit/servotest/verifytest"
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

	t.Run("a test message is signed and sent at once, and the answer is shown", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		alerts := servov1.NewAlertServiceClient(b.conn)
		var got http.Header
		var body []byte
		status := http.StatusAccepted
		receiver := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			got = r.Header
			body, _ = io.ReadAll(r.Body)
			w.WriteHeader(status)
			_, _ = w.Write([]byte("words of the receiver"))
		}))
		t.Cleanup(receiver.Close)
		made, err := alerts.CreateAlertChannel(t.Context(), &servov1.CreateAlertChannelRequest{Tenant: "acme", Name: "hook", Url: receiver.URL, Severity: servov1.Alert_CRITICAL})
		require.NoError(t, err)
		answer, err := alerts.TestAlertChannel(t.Context(), &servov1.TestAlertChannelRequest{Tenant: "acme", Channel: "hook"})
		require.NoError(t, err)
		require.True(t, answer.GetDelivered())
		require.Equal(t, "202 Accepted", answer.GetStatus())
		require.Empty(t, answer.GetError())
		require.Equal(t, answer.GetMessageId(), got.Get("Webhook-Id"))
		secret, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(made.GetSecret(), "whsec_"))
		require.NoError(t, err)
		at, err := strconv.ParseInt(got.Get("Webhook-Timestamp"), 10, 64)
		require.NoError(t, err)
		require.Equal(t, webhook.Sign(secret, answer.GetMessageId(), time.Unix(at, 0), body), got.Get("Webhook-Signature"))
		require.Contains(t, string(body), `"type":"alert.test"`)

		status = http.StatusTeapot
		answer, err = alerts.TestAlertChannel(t.Context(), &servov1.TestAlertChannelRequest{Tenant: "acme", Channel: "hook"})
		require.NoError(t, err)
		require.False(t, answer.GetDelivered())
		require.Equal(t, "418 I'm a teapot", answer.GetStatus())
		require.Contains(t, answer.GetError(), "418")
		require.NotContains(t, answer.String(), "words of the receiver", "a tenant must not read through the server")
		receiver.Close()
		answer, err = alerts.TestAlertChannel(t.Context(), &servov1.TestAlertChannelRequest{Tenant: "acme", Channel: "hook"})
		require.NoError(t, err)
		require.False(t, answer.GetDelivered())
		require.NotEmpty(t, answer.GetError())
		require.Empty(t, answer.GetStatus())

		_, err = alerts.TestAlertChannel(t.Context(), &servov1.TestAlertChannelRequest{Tenant: "brick", Channel: "hook"})
		require.Equal(t, codes.NotFound, codeOf(err))
		require.Zero(t, b.db.Count(t, `SELECT count(*) FROM servo.alerts`))
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
		_, err = alerts.CreateAlertChannel(t.Context(), &servov1.CreateAlertChannelRequest{Tenant: "missing", Name: "x", Url: "https://example.com"})
		require.Equal(t, codes.NotFound, codeOf(err))
		require.Zero(t, b.db.Count(t, `SELECT count(*) FROM servo.alert_channels`))
		verifytest.Clean(t, b.db)
	})
}
