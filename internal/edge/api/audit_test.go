package api_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/types/known/timestamppb"

	servov1 "go.arco.dev/servo/gen/servo/v1"
	"go.arco.dev/servo/internal/domain/access"
)

// TestAuditLog makes every call: those that change something are written down, the others not.
func TestAuditLog(t *testing.T) {
	t.Parallel()

	t.Run("every call that changes something is written down once, with who and from where", func(t *testing.T) {
		t.Parallel()
		g := setupGuarded(t)
		key, _ := g.key(t, "", access.Settings{Name: "ops", Role: access.Platform})
		for i, method := range methods(t) {
			if method.IsStreamingServer() {
				continue
			}
			m := access.Methods()[pathOf(method)]
			req := request(t, method, "acme")
			name := strings.TrimPrefix(pathOf(method), "/servo.v1.")
			ctx := metadata.AppendToOutgoingContext(with(t.Context(), key), "x-request-id", fmt.Sprintf("request-%d", i))
			err := g.conn.Invoke(ctx, pathOf(method), req, newAnswer(t, method))
			rows := g.db.Count(t, fmt.Sprintf(`SELECT count(*) FROM servo.audit_log
				WHERE method = '%s' AND actor = 'platform/ops' AND request_id = 'request-%d' AND allowed AND address <> '' AND (code = '') = %t`, name, i, err == nil))
			if m.Audited() {
				require.Equal(t, 1, rows, "%s: %v", name, err)
			} else {
				require.Zero(t, rows, name)
			}
		}
		require.Zero(t, g.db.Count(t, `SELECT count(*) FROM servo.audit_log WHERE method LIKE 'WorkerService/%'`))
		require.NotZero(t, g.db.Count(t, `SELECT count(*) FROM servo.audit_log a JOIN servo.tenants t ON t.id = a.tenant_id AND t.name = 'acme' WHERE method = 'TenantService/SetQuotas'`),
			"the tenant sees what was done to it")
		require.NotZero(t, g.db.Count(t, `SELECT count(*) FROM servo.audit_log WHERE method = 'TenantService/CreateTenant' AND tenant_id = '00000000-0000-0000-0000-000000000000'`))
	})

	t.Run("a denied call is in the audit of its own tenant, and an unknown caller is not", func(t *testing.T) {
		t.Parallel()
		g := setupGuarded(t)
		viewer, _ := g.key(t, "acme", access.Settings{Name: "eyes", Role: access.Viewer})
		boss := with(t.Context(), g.roleKey(t, access.TenantAdmin))
		runs := servov1.NewRunServiceClient(g.conn)
		for _, tenant := range []string{"acme", "brick", "missing"} {
			_, err := runs.TriggerRun(with(t.Context(), viewer), &servov1.TriggerRunRequest{Tenant: tenant, Pipeline: "diamond"})
			require.Error(t, err)
		}
		_, err := runs.TriggerRun(t.Context(), &servov1.TriggerRunRequest{Tenant: "acme", Pipeline: "diamond"})
		require.Equal(t, codes.Unauthenticated, codeOf(err))
		audit := servov1.NewAuditServiceClient(g.conn)
		answer, err := audit.ListAudit(boss, &servov1.ListAuditRequest{Tenant: "acme", Actor: "key/eyes"})
		require.NoError(t, err)
		var entries []string
		for _, e := range answer.GetEntries() {
			entries = append(entries, fmt.Sprint(e.GetCode(), " ", e.GetSubject(), " ", e.GetAllowed(), " ", e.GetRequest().AsMap()["tenant"]))
		}
		require.ElementsMatch(t, []string{"NOT_FOUND pipeline/diamond false missing", "NOT_FOUND pipeline/diamond false brick", "FORBIDDEN pipeline/diamond false acme"}, entries,
			"in no defined order: they may be of one millisecond")
		require.Equal(t, 3, g.db.Count(t, `SELECT count(*) FROM servo.audit_log WHERE NOT allowed`))

		page, err := audit.ListAudit(boss, &servov1.ListAuditRequest{Tenant: "acme", Actor: "key/eyes", PageSize: 2})
		require.NoError(t, err)
		require.Len(t, page.GetEntries(), 2)
		rest, err := audit.ListAudit(boss, &servov1.ListAuditRequest{Tenant: "acme", Actor: "key/eyes", PageSize: 2, PageToken: page.GetNextPageToken()})
		require.NoError(t, err)
		require.Len(t, rest.GetEntries(), 1)
		none, err := audit.ListAudit(boss, &servov1.ListAuditRequest{Tenant: "acme", Since: timestamppb.New(answer.GetEntries()[0].GetAt().AsTime().AddDate(1, 0, 0))})
		require.NoError(t, err)
		require.Empty(t, none.GetEntries())
		_, err = audit.ListAudit(with(t.Context(), viewer), &servov1.ListAuditRequest{Tenant: "acme"})
		require.Equal(t, codes.PermissionDenied, codeOf(err))
		_, err = audit.ListAudit(boss, &servov1.ListAuditRequest{})
		require.Equal(t, codes.PermissionDenied, codeOf(err))
	})

	t.Run("over REST it has the caller's address and the id of the request, whatever the headers are", func(t *testing.T) {
		t.Parallel()
		g := setupGuarded(t)
		key := g.roleKey(t, access.Platform)
		code, _, header := g.rest(t, "POST", "/v1/admin/dispatch:pause", true, key)
		require.Equal(t, 200, code)
		require.Equal(t, 1, g.db.Count(t, `SELECT count(*) FROM servo.audit_log WHERE address = '127.0.0.1' AND request_id = '`+header.Get("X-Request-Id")+`'`))
		// A caller of gRPC cannot state its address.
		ctx := metadata.AppendToOutgoingContext(with(t.Context(), key), "x-remote-address", "192.0.2.1")
		_, err := servov1.NewAdminServiceClient(g.conn).ResumeDispatch(ctx, &servov1.ResumeDispatchRequest{})
		require.NoError(t, err)
		require.Zero(t, g.db.Count(t, `SELECT count(*) FROM servo.audit_log WHERE address = '192.0.2.1'`))
	})

	t.Run("a call whose row cannot be written is answered, and logged with all that there is", func(t *testing.T) {
		t.Parallel()
		g := setupGuarded(t)
		key := g.roleKey(t, access.Operator)
		g.db.Exec(t, `ALTER TABLE servo.audit_log RENAME TO gone`)
		_, err := servov1.NewRunServiceClient(g.conn).TriggerRun(with(t.Context(), key), &servov1.TriggerRunRequest{Tenant: "acme", Pipeline: "diamond"})
		require.NoError(t, err)
		lines := g.log.with("cannot write an audit entry")
		require.Len(t, lines, 1)
		require.Equal(t, "RunService/TriggerRun", lines[0]["method"])
	})
}
