package api

import (
	"context"

	servov1 "go.arco.dev/servo/gen/servo/v1"
)

type logChunk struct{}

func chunkOf(handle, *servov1.LogChunk) (logChunk, error) { return logChunk{}, nil }

func (s workerService) applyLogs(context.Context, *batch) {}
