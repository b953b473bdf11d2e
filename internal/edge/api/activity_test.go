package api_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	servov1 "go.arco.dev/servo/gen/servo/v1"
	"go.arco.dev/servo/internal/domain/access"
)

func TestActivity(t *testing.T) {
	t.Parallel()
	g := twoTenants(t)
	service := servov1.NewStatusServiceClient(g.conn)
	operator, viewer := with(t.Context(), g.roleKey(t, access.Platform)), with(t.Context(), g.roleKey(t, access.Viewer))
	hour := time.Now().UTC().Truncate(time.Hour).Add(time.Hour) // the next, so that the clock goes forward
	cancel := func(tenant string, made time.Time, after time.Duration) {
		g.db.SetClock(t, made)
		answer, err := g.runs.TriggerRun(t.Context(), &servov1.TriggerRunRequest{Tenant: tenant, Pipeline: "single"})
		require.NoError(t, err)
		g.db.SetClock(t, made.Add(after))
		_, err = g.runs.CancelRun(t.Context(), &servov1.CancelRunRequest{Tenant: tenant, Run: answer.GetRun().GetId()})
		require.NoError(t, err)
	}
	cancel("acme", hour.Add(time.Minute), time.Minute)
	cancel("brick", hour.Add(5*time.Minute), 3*time.Minute)
	_, err := g.db.MergeTotals(t.Context(), 1)
	require.NoError(t, err)
	cancel("brick", hour.Add(time.Hour-time.Minute), time.Minute) // it ends as the next hour begins
	idle := func(at time.Time) *servov1.HourActivity {
		return &servov1.HourActivity{Hour: timestamppb.New(at), TotalDuration: durationpb.New(0)}
	}
	cancelled := func(at time.Time, n int64, seconds time.Duration) *servov1.HourActivity {
		return &servov1.HourActivity{
			Hour: timestamppb.New(at), CancelledRuns: n, TotalDuration: durationpb.New(seconds * time.Second),
			AverageDuration: durationpb.New(seconds * time.Second / time.Duration(n)), LongestStartDelay: durationpb.New(0),
		}
	}

	{ // an operator sees the hours of all together, those without runs too
		got, err := service.GetActivity(operator, &servov1.GetActivityRequest{Hours: 3})
		require.NoError(t, err)
		requireMessage(t, &servov1.Activity{Hours: []*servov1.HourActivity{idle(hour.Add(-time.Hour)), cancelled(hour, 2, 240), cancelled(hour.Add(time.Hour), 1, 60)}}, got)
	}
	{ // a tenant sees its own, a day of them by default
		got, err := service.GetActivity(viewer, &servov1.GetActivityRequest{Tenant: "acme"})
		require.NoError(t, err)
		require.Len(t, got.GetHours(), 24)
		requireMessage(t, cancelled(hour, 1, 60), got.GetHours()[22])
		requireMessage(t, idle(hour.Add(time.Hour)), got.GetHours()[23])
	}
	{ // no tenant sees those of others
		_, err := service.GetActivity(viewer, &servov1.GetActivityRequest{})
		require.Equal(t, codes.PermissionDenied, status.Code(err), "%v", err)
		_, err = service.GetActivity(viewer, &servov1.GetActivityRequest{Tenant: "brick"})
		require.NotEqual(t, codes.OK, status.Code(err))
		_, err = service.GetActivity(operator, &servov1.GetActivityRequest{Tenant: "missing"})
		requireRefused(t, err, codes.NotFound, "tenant")
	}
	{ // a week at most
		got, err := service.GetActivity(operator, &servov1.GetActivityRequest{Tenant: "brick", Hours: 168})
		require.NoError(t, err)
		require.Len(t, got.GetHours(), 168)
		_, err = service.GetActivity(operator, &servov1.GetActivityRequest{Hours: 169})
		requireRefused(t, err, codes.InvalidArgument, "hours")
	}
}
