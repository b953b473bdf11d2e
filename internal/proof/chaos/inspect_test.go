package chaos

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"go.arco.dev/servo/internal/proof/verify"
	"go.arco.dev/servo/internal/store"
)

// How the tables are compared with the log while faults happen: some runs, now and then.
const (
	inspectEvery  = 5 * time.Second
	inspectSample = 200
)

// inspect compares the tables with the log again and again, in the middle of everything:
// whatever breaks, each moment that can be seen is whole.
func (w *world) inspect(ctx context.Context, t *testing.T) (looks int) {
	t.Helper()
	for pause(ctx, inspectEvery); ctx.Err() == nil; pause(ctx, inspectEvery) {
		if report, err := w.verify(ctx, inspectSample); err == nil { // PostgreSQL may be down
			looks++
			requireClean(t, report)
		}
	}
	return looks
}

// verify compares the tables with the log: all runs, or a sample of them.
func (w *world) verify(ctx context.Context, sample int) (verify.Report, error) {
	db, err := store.Open(ctx, store.Options{URL: w.url, MaxConns: 1})
	if err != nil {
		return verify.Report{}, err
	}
	defer db.Close()
	return verify.Verify(ctx, db, verify.Options{Sample: sample, Keep: 20})
}

func requireClean(t *testing.T, report verify.Report) {
	t.Helper()
	if report.Clean() {
		return
	}
	var text strings.Builder
	report.Text(&text)
	t.Errorf("at %s the tables differ from the log:\n%s", time.Now().UTC().Format("15:04:05.000"), text.String())
}

// verifyAll is the last look, at everything.
func (w *world) verifyAll(t *testing.T) {
	t.Helper()
	report, err := w.verify(t.Context(), 0)
	require.NoError(t, err)
	requireClean(t, report)
	t.Logf("verified %d runs, %d tasks, %d events", report.Runs, report.Tasks, report.Events)
}
