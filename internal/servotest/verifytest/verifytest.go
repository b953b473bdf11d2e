// Package verifytest lets a test end with one line that proves that its database is what
// the events say. It is a package of its own so that servotest does not import what is
// tested with it.
package verifytest

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"go.arco.dev/servo/internal/servotest"
	"go.arco.dev/servo/internal/verify"
)

// Clean verifies the whole database and fails the test if anything diverges from the log.
func Clean(t testing.TB, db *servotest.Database) verify.Report {
	t.Helper()
	report, err := verify.Verify(t.Context(), db.Store, verify.Options{})
	require.NoError(t, err)
	var text strings.Builder
	report.Text(&text)
	require.True(t, report.Clean(), text.String())
	return report
}
