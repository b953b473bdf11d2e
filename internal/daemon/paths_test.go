package daemon

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestPaths(t *testing.T) {
	t.Parallel()
	p := contractPaths()
	for path, want := range map[string]string{
		"/":                                     "/",
		"/readyz":                               "/readyz",
		"/v1/status":                            "/v1/status",
		"/v1/tenants":                           "/v1/tenants",
		"/v1/tenants/acme/runs":                 "/v1/tenants/{tenant}/runs",
		"/v1/tenants/acme/runs:plan":            "/v1/tenants/{tenant}/runs:plan",
		"/v1/tenants/acme/runs/1":               "/v1/tenants/{tenant}/runs/{run}",
		"/v1/tenants/acme/runs/1:cancel":        "/v1/tenants/{tenant}/runs/{run}:cancel",
		"/v1/tenants/acme/assets/gold/a":        "/v1/tenants/{tenant}/assets/{asset=*/*}",
		"/v1/tenants/a:b/runs/1":                "/v1/tenants/{tenant}/runs/{run}",
		"/v1/tenants/acme/runs/odd:name":        "/v1/tenants/{tenant}/runs/{run}",
		"/v1/workers:claim":                     "/v1/workers:claim",
		"/v1/tasks/1/attempts/2:complete":       "/v1/tasks/{task}/attempts/{attempt}:complete",
		"/v1/admin/tenants/a/runs/b:repair":     "/v1/admin/tenants/{tenant}/runs/{run}:repair",
		"/v1/tenants//runs":                     otherPath,
		"/v1/tenants/acme/runs/1/2/3/4":         otherPath,
		"/favicon.ico":                          otherPath,
		"/v1":                                   otherPath,
		"":                                      otherPath,
		"*":                                     otherPath,
		"/v1/tenants/acme/deployments/0/../../": otherPath,
	} {
		require.Equal(t, want, p.pattern(path), path)
	}
}
