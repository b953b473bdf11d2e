package intercept_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/proto"

	servov1 "go.arco.dev/servo/gen/servo/v1"
	"go.arco.dev/servo/internal/base/fault"
	"go.arco.dev/servo/internal/edge/intercept"
)

func TestValidation(t *testing.T) {
	t.Parallel()
	check := intercept.Check
	refusals := func(t *testing.T, req proto.Message) []fault.Violation {
		t.Helper()
		f, ok := fault.As(check(req))
		require.True(t, ok)
		require.Equal(t, fault.InvalidArgument, f.Code)
		for _, v := range f.Violations() {
			require.NotEmpty(t, v.Message)
			require.NotEmpty(t, v.Remedy, v.Field)
		}
		return f.Violations()
	}

	t.Run("all violations are reported at once, by the names of the contract", func(t *testing.T) {
		t.Parallel()
		found := refusals(t, &servov1.ClaimRequest{ClaimId: "x", Max: 5000})
		fields := map[string]string{}
		for _, v := range found {
			fields[v.Field] = v.Message
		}
		require.Equal(t, map[string]string{
			"worker_id": "must be at least 1 characters", "claim_id": "must be a valid UUID",
			"pools": "must contain at least 1 item(s)", "max": "must be greater than or equal to 1 and less than or equal to 1000",
		}, fields)
	})

	t.Run("a field inside a list has its place", func(t *testing.T) {
		t.Parallel()
		item := &servov1.ReportItem{Lease: "x", Action: &servov1.ReportItem_Start{Start: &servov1.Start{}}}
		bad := &servov1.ReportItem{Lease: "x", Action: &servov1.ReportItem_Fail{Fail: &servov1.Fail{Error: &servov1.Failure{}}}}
		found := refusals(t, &servov1.ReportRequest{WorkerId: "w", Items: []*servov1.ReportItem{item, bad, {Lease: "x"}}})
		require.Len(t, found, 2)
		require.Equal(t, "items[1].fail.error.code", found[0].Field)
		require.Equal(t, "items[2].action", found[1].Field)
	})

	t.Run("a hundred broken rules are enough", func(t *testing.T) {
		t.Parallel()
		items := make([]*servov1.ReportItem, 1000)
		for i := range items {
			items[i] = &servov1.ReportItem{}
		}
		require.Len(t, refusals(t, &servov1.ReportRequest{WorkerId: "w", Items: items}), 100)
	})

	t.Run("what keeps the rules passes", func(t *testing.T) {
		t.Parallel()
		require.NoError(t, check(&servov1.ListRunsRequest{Tenant: "acme", PageSize: 100}))
		require.NoError(t, check("no message"))
	})
}
