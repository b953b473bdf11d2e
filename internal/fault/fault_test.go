package fault_test

import (
	"errors"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"go.arco.dev/servo/internal/fault"
)

func TestFault(t *testing.T) {
	t.Parallel()

	t.Run("one line says field, mistake and remedy", func(t *testing.T) {
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
		err := fault.New(fault.Unavailable, "the database is away", fault.Cause(cause))
		require.ErrorIs(t, err, cause)
		require.NotContains(t, err.Error(), "refused")
	})

	t.Run("violations are told together", func(t *testing.T) {
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
