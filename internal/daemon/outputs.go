package daemon

import (
	"context"

	"go.arco.dev/servo/internal/data/blob"
	"go.arco.dev/servo/internal/data/commit"
	"go.arco.dev/servo/internal/domain/output"
)

// outputs reads committed versions from the blob store.
type outputs struct{ store *blob.Store }

// ReadOutput implements engine.OutputReader.
func (o outputs) ReadOutput(ctx context.Context, of output.Attempt) (output.Marker, output.Metadata, error) {
	return commit.Read(ctx, o.store, of)
}

// Blobs returns the blob store of outputs; nil if there is none.
func (d *Daemon) Blobs() *blob.Store { return d.blobs }

// openBlobs opens the blob store of outputs, if there is one.
func (d *Daemon) openBlobs(ctx context.Context) (err error) {
	if d.config.BlobURL == "" {
		return nil
	}
	if d.blobs, err = blob.Open(ctx, d.config.BlobURL, blob.Options{}); err != nil {
		return err
	}
	d.config.Engine.Outputs = outputs{d.blobs}
	return nil
}
