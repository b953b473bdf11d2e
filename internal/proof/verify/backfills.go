package verify

import (
	"fmt"
	"maps"
	"slices"

	"go.arco.dev/servo/internal/base/event"
	"go.arco.dev/servo/internal/base/id"
	"go.arco.dev/servo/internal/domain/backfill"
	"go.arco.dev/servo/internal/domain/tenant"
	"go.arco.dev/servo/internal/store"
)

// Backfills are entities with a fold of their own, like configs.
const kindBackfill tenant.Kind = "backfill"

// chunkKey identifies a chunk of a backfill.
type chunkKey struct{ round, chunk int32 }

// backfillFold is the fold of a backfill with the rows of its chunks.
type backfillFold struct {
	backfill.Backfill

	chunks map[chunkKey]*store.BackfillChunkRow
}

// apply folds one event.
func (f *backfillFold) apply(e event.Event) (err error) {
	if f.Backfill, err = f.Evolve(e); err != nil {
		return err
	}
	switch body := e.Body.(type) {
	case backfill.ChunkStarted:
		if f.chunks == nil {
			f.chunks = map[chunkKey]*store.BackfillChunkRow{}
		}
		f.chunks[chunkKey{body.Round, body.Chunk}] = &store.BackfillChunkRow{
			TenantID: e.Tenant.UUID, BackfillID: e.Subject, Round: body.Round, Chunk: body.Chunk, RunID: body.Run.UUID, StartedAt: e.At,
		}
	case backfill.ChunkEnded:
		if row := f.chunks[chunkKey{body.Round, body.Chunk}]; row != nil {
			row.EndedAt, row.Failed, row.Skipped = &e.At, body.Failed.Count(), body.Skipped.Count()
		}
	}
	return nil
}

func (c *entityCheck) backfillRow(got store.BackfillRow) error {
	return entityRow(c, c.tables.backfills, kindBackfill, got.TenantID, got.ID, got, func(en *entity) store.BackfillRow { return wantBackfill(en.backfill.Backfill) })
}

func wantBackfill(b backfill.Backfill) store.BackfillRow {
	return store.BackfillRow{
		TenantID: b.Tenant.UUID, ID: b.ID.UUID, WorkspaceID: b.Workspace.UUID, Version: b.Version, State: int16(b.State), Reason: b.Reason,
		Asset: b.Settings.Asset, Settings: jsonOrNull(&b.Settings), Round: b.Round, Partitions: jsonOrNull(&b.Set), Undone: jsonOrNull(&b.Undone),
		Chunks: b.Chunks(), NextChunk: b.Next, OpenRuns: b.Open, MaxRuns: b.Settings.MaxConcurrentRuns,
		Total: b.Total, Completed: b.Completed, Failed: b.Failed, Skipped: b.Skipped, RoundFailed: b.RoundFailed,
		CreatedBy: b.CreatedBy, CreatedAt: b.CreatedAt, PausedAt: timeOrNull(b.PausedAt), FinishedAt: timeOrNull(b.FinishedAt),
	}
}

// chunkRow compares the row of a chunk with the events of its backfill.
func (c *entityCheck) chunkRow(got store.BackfillChunkRow) error {
	key := entityKey{id.Of[id.Tenant](got.TenantID), got.BackfillID}
	en := c.entities[key]
	if en != nil && en.broken {
		return nil
	}
	at := chunkKey{got.Round, got.Chunk}
	var want *store.BackfillChunkRow
	if en != nil {
		want = en.backfill.chunks[at]
	}
	if want == nil {
		c.diverges(Surplus, "backfill_chunks", "", key, "", fmt.Sprintf("chunk %d of round %d, which no event explains", got.Chunk, got.Round))
		return nil
	}
	compareEntity(c, c.tables.chunks, key, want, &got)
	delete(en.backfill.chunks, at)
	return nil
}

// missingChunks reports chunks that have events and no row.
func (c *entityCheck) missingChunks(key entityKey, en *entity) {
	for _, at := range slices.SortedFunc(maps.Keys(en.backfill.chunks), func(a, b chunkKey) int { return int(a.round-b.round)<<20 + int(a.chunk-b.chunk) }) {
		c.diverges(Missing, "backfill_chunks", "", key, fmt.Sprintf("chunk %d of round %d", at.chunk, at.round), "")
	}
}

// partitionStatus compares the status of partitions with the ends of tasks, within what is retained: of
// each partition the last end decides.
func (v *verifier) partitionStatus(row store.StatusDifference) error {
	v.report.add(Divergence{
		Kind: Invariant, Table: "partition_status", Column: row.Column, Tenant: row.Tenant, Subject: row.Workspace.UUID,
		Want: fmt.Sprintf("%s series %q: %d partitions as their last task ended", row.Asset, row.Series, row.Count), Got: row.Got,
	})
	return nil
}
