package store

import (
	"context"
	"time"

	"github.com/google/uuid"

	"go.arco.dev/servo/internal/base/id"
	"go.arco.dev/servo/internal/domain/release"
	"go.arco.dev/servo/internal/domain/run"
	"go.arco.dev/servo/internal/store/internal/db"
)

func (tx *Tx) insertReleaseEnds(ctx context.Context, c Changes) error {
	rows := c.Released
	return tx.writes.write("insert release_ends", len(rows), func(q *db.Queries) error {
		return q.InsertReleaseEnds(ctx, db.InsertReleaseEndsParams{
			TenantIds:    column(rows, func(r run.Run) uuid.UUID { return r.Tenant.UUID }),
			WorkspaceIds: column(rows, func(r run.Run) uuid.UUID { return r.Workspace.UUID }),
			RunIds:       column(rows, func(r run.Run) uuid.UUID { return r.ID.UUID }),
			ReleaseIds:   column(rows, func(r run.Run) uuid.UUID { return r.Deployment.UUID }),
			ConfigIds:    column(rows, configOf),
			CreatedAts:   column(rows, func(r run.Run) time.Time { return r.CreatedAt }),
			States:       column(rows, func(r run.Run) int16 { return int16(r.State) }),
		})
	})
}

// MergeReleaseEnds adds up to most ends of runs to the totals of their releases, and returns their number.
func (s *Store) MergeReleaseEnds(ctx context.Context, most int) (int, error) {
	return read(ctx, s.engine, func(ctx context.Context, tx *Tx) (int, error) {
		n, err := tx.q.MergeReleaseEnds(ctx, int32(most)) //nolint:gosec // a batch size
		return int(n), err
	})
}

// RolloutEvidence reads the runs by which a rollout is judged, as far as their ends are merged.
func (tx *Tx) RolloutEvidence(ctx context.Context, r *release.Rollout) (release.Evidence, error) {
	if r == nil {
		return release.Evidence{}, nil
	}
	row, err := tx.q.RolloutEvidence(ctx, db.RolloutEvidenceParams{NewID: r.To.UUID, OldID: r.From.UUID, RolloutID: r.ID})
	return release.Evidence{
		New: release.Counts{Ended: row.NewEnded, Failed: row.NewFailed}, Old: release.Counts{Ended: row.OldEnded, Failed: row.OldFailed},
	}, err
}

// RolloutEvidence is Tx.RolloutEvidence in a transaction of its own.
func (s *Store) RolloutEvidence(ctx context.Context, r *release.Rollout) (release.Evidence, error) {
	return read(ctx, s.engine, func(ctx context.Context, tx *Tx) (release.Evidence, error) { return tx.RolloutEvidence(ctx, r) })
}

// RolloutFailure counts the failed runs of a tenant with an error.
type RolloutFailure struct {
	Tenant string
	Error  string
	Runs   int64
}

// RolloutFailures reads the failed runs of a rollout by tenant and error, most first.
func (tx *Tx) RolloutFailures(ctx context.Context, r *release.Rollout, most int) ([]RolloutFailure, error) {
	return list(func(row db.RolloutFailuresRow) RolloutFailure { return RolloutFailure(row) })(
		tx.q.RolloutFailures(ctx, db.RolloutFailuresParams{NewID: r.To.UUID, RolloutID: r.ID, Most: int32(most)})) //nolint:gosec // a short list
}

// RolloutFailures is Tx.RolloutFailures in a transaction of its own.
func (s *Store) RolloutFailures(ctx context.Context, r *release.Rollout, most int) ([]RolloutFailure, error) {
	return read(ctx, s.engine, func(ctx context.Context, tx *Tx) ([]RolloutFailure, error) { return tx.RolloutFailures(ctx, r, most) })
}

// ReleaseTotals reads the ended runs of releases by error; "" are successes.
func (s *Store) ReleaseTotals(ctx context.Context, ids []id.Release) (map[id.Release]map[string]int64, error) {
	return read(ctx, s.engine, func(ctx context.Context, tx *Tx) (map[id.Release]map[string]int64, error) {
		rows, err := tx.q.ReleaseTotals(ctx, column(ids, func(r id.Release) uuid.UUID { return r.UUID }))
		found := map[id.Release]map[string]int64{}
		for _, r := range rows {
			of := id.Of[id.Release](r.ReleaseID)
			if found[of] == nil {
				found[of] = map[string]int64{}
			}
			found[of][r.Error] = r.Runs
		}
		return found, err
	})
}

// ForgetReleaseTotals deletes up to most totals of releases that no channel uses.
func (s *Store) ForgetReleaseTotals(ctx context.Context, most int) (int64, error) {
	return read(ctx, s.engine, func(ctx context.Context, tx *Tx) (int64, error) {
		channels, err := tx.AllReleaseChannels(ctx)
		if err != nil {
			return 0, err
		}
		kept := []uuid.UUID{}
		for _, c := range channels {
			kept = append(kept, c.Current.UUID)
			if c.Rollout != nil {
				kept = append(kept, c.Rollout.From.UUID, c.Rollout.To.UUID)
			}
		}
		return tx.q.ForgetReleaseTotals(ctx, db.ForgetReleaseTotalsParams{Kept: kept, Most: int32(most)}) //nolint:gosec // a batch size
	})
}

// ReleaseWork reports whether a rollout is rolling, and whether ends of runs wait to be merged.
func (s *Store) ReleaseWork(ctx context.Context) (rolling, ended bool, err error) {
	err = s.engine(ctx, func(ctx context.Context, tx *Tx) error {
		row, err := tx.q.ReleaseWork(ctx)
		rolling, ended = row.Rolling, row.Ended
		return err
	})
	return rolling, ended, err
}
