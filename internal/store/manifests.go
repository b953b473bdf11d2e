package store

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"

	"go.arco.dev/servo/internal/store/internal/db"
)

// manifestChunk is how many bytes of a manifest one row has. A row of 16 MiB would need several times its
// size in memory on both sides of the connection.
const manifestChunk = 256 << 10

// StoreManifest stores a canonical manifest by its digest, unless it is stored.
func (tx *Tx) StoreManifest(ctx context.Context, digest string, manifest json.RawMessage) error {
	stored, err := tx.q.HasManifest(ctx, digest)
	if err != nil || stored {
		return err
	}
	return tx.q.InsertManifest(ctx, db.InsertManifestParams{
		Digest: digest, Size: int32(len(manifest)), Chunks: slices.Collect(slices.Chunk([]byte(manifest), manifestChunk)), //nolint:gosec // at most 16 MiB
	})
}

// Manifests reads manifests by their digests. One that is not stored, or not as a whole, is absent.
func (tx *Tx) Manifests(ctx context.Context, digests []string) (map[string]json.RawMessage, error) {
	rows, err := tx.q.Manifests(ctx, digests)
	if err != nil {
		return nil, err
	}
	found := make(map[string]json.RawMessage, len(digests))
	sizes := make(map[string]int32, len(digests))
	for _, r := range rows {
		if found[r.Digest] == nil {
			found[r.Digest] = make(json.RawMessage, 0, r.Size)
		}
		found[r.Digest] = append(found[r.Digest], r.Chunk...)
		sizes[r.Digest] = r.Size
	}
	for digest, manifest := range found {
		if len(manifest) != int(sizes[digest]) {
			return nil, fmt.Errorf("manifest %s has %d bytes, expected %d: a chunk is missing", digest, len(manifest), sizes[digest])
		}
	}
	return found, nil
}

// CodeRow is the manifest of a deployment, by its digest.
type CodeRow struct {
	DeploymentKey

	Digest string
}

// Code reads the digests of deployments, and the manifests with a digest that is not known. Callers parse
// them after this transaction.
func (s *Store) Code(ctx context.Context, keys []DeploymentKey, known func(digest string) bool) (rows []CodeRow, manifests map[string]json.RawMessage, err error) {
	err = s.engine(ctx, func(ctx context.Context, tx *Tx) error {
		deployments, err := tx.Deployments(ctx, keys)
		if err != nil {
			return err
		}
		rows = rows[:0]
		var wanted []string
		for _, d := range deployments {
			rows = append(rows, CodeRow{DeploymentKey: DeploymentKey{Tenant: d.Tenant, Deployment: d.ID}, Digest: d.Digest})
			if !known(d.Digest) && !slices.Contains(wanted, d.Digest) {
				wanted = append(wanted, d.Digest)
			}
		}
		manifests, err = tx.Manifests(ctx, wanted)
		return err
	})
	return rows, manifests, err
}
