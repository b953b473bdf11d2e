package fault_test

import (
	"errors"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"go.arco.dev/servo/internal/base/fault"
)

func TestFault(t *testing.T) {
	t.Parallel()

	t.Run("one line has field, mistake and remedy", func(t *testing.T) {
		t.Parallel()
		err := fault.New(fault.InvalidArgument, "must be 1 to 10", fault.Field("priority"), fault.Remedy("use 5"))
		require.Equal(t, "priority: must be 1 to 10 (use 5)", err.Error())
	})

	t.Run("the code survives wrapping", func(t *testing.T) {
		t.Parallel()
		err := fmt.Errorf("trigger: %w", fault.New(fault.NotFound, "no such run"))
		require.Equal(t, fault.NotFound, fault.CodeOf(err))
		require.True(t, fault.Is(err, fault.NotFound))
	})

	t.Run("anything else is internal", func(t *testing.T) {
		t.Parallel()
		require.Equal(t, fault.Internal, fault.CodeOf(errors.New("boom")))
		require.Empty(t, fault.CodeOf(nil))
		require.False(t, fault.Is(errors.New("boom"), fault.Internal))
	})

	t.Run("the cause is kept and not shown", func(t *testing.T) {
		t.Parallel()
		cause := errors.New("dial tcp: refused")
		err := fault.New(fault.Unavailable, "the database does not answer", fault.Cause(cause))
		require.ErrorIs(t, err, cause)
		require.NotContains(t, err.Error(), "refused")
	})

	t.Run("violations are reported together", func(t *testing.T) {
		t.Parallel()
		require.NoError(t, fault.FromViolations(nil))
		err := fault.FromViolations([]fault.Violation{
			{Code: fault.CycleDetected, Field: "assets[a]", Message: "cycle"},
			{Code: fault.InvalidManifest, Field: "assets[b]", Message: "bad"},
		})
		f, ok := fault.As(err)
		require.True(t, ok)
		require.Equal(t, fault.CycleDetected, f.Code)
		require.Len(t, f.Violations(), 2)
		require.Equal(t, "assets[a]: cycle, and 1 more", err.Error())
	})
}

func TestUnder(t *testing.T) {
	t.Parallel()

	t.Run("the field of a part is named below the part", func(t *testing.T) {
		t.Parallel()
		cause := errors.New("no such zone")
		inner := fault.New(fault.InvalidArgument, "unknown zone", fault.Field("timezone"), fault.Remedy("use UTC"), fault.Value("near", "UTC"), fault.Cause(cause))
		f, ok := fault.As(fault.Under("configs[3]", fmt.Errorf("save: %w", inner)))
		require.True(t, ok)
		require.Equal(t, "configs[3].timezone: unknown zone (use UTC)", f.Error())
		require.Equal(t, fault.InvalidArgument, f.Code)
		require.ErrorIs(t, f, cause)
		require.Equal(t, "timezone: unknown zone (use UTC)", inner.Error(), "what was wrapped stays as it is")
	})

	t.Run("a mistake without a field is the part's", func(t *testing.T) {
		t.Parallel()
		require.EqualError(t, fault.Under("configs[0]", fault.New(fault.Conflict, "is stale")), "configs[0]: is stale")
	})

	t.Run("all violations are named below the part, and parts nest", func(t *testing.T) {
		t.Parallel()
		inner := fault.FromViolations([]fault.Violation{
			{Code: fault.InvalidArgument, Field: "a", Message: "bad"}, {Code: fault.InvalidArgument, Field: "b", Message: "bad"}, {Code: fault.Conflict, Message: "bad"},
		})
		f, ok := fault.As(fault.Under("x", fault.Under("y", inner)))
		require.True(t, ok)
		var fields []string
		for _, v := range f.Violations() {
			fields = append(fields, v.Field)
		}
		require.Equal(t, []string{"x.y.a", "x.y.b", "x.y"}, fields)
	})

	t.Run("what is no fault is not touched", func(t *testing.T) {
		t.Parallel()
		boom := errors.New("boom")
		require.Equal(t, boom, fault.Under("x", boom))
		require.NoError(t, fault.Under("x", nil))
	})
}
