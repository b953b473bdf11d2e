package api

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"

	servov1 "go.arco.dev/servo/gen/servo/v1"
	"go.arco.dev/servo/internal/base/fault"
	"go.arco.dev/servo/internal/engine"
	"go.arco.dev/servo/internal/store"
)

// chunkOf maps lines that an attempt has logged.
func chunkOf(h handle, c *servov1.LogChunk) (engine.LogChunk, error) {
	at, err := timeOf("at", c.GetAt())
	return engine.LogChunk{TaskKey: h.TaskKey, Token: h.token, Seq: c.GetSeq(), At: at, Text: c.GetText()}, err
}

func (s workerService) applyLogs(ctx context.Context, b *batch) {
	place := 0
	for some := range slices.Chunk(b.logs.items, engine.MaxLogChunks) {
		for _, err := range s.engine.Logs(ctx, some) {
			b.errs[b.logs.places[place]] = err
			place++
		}
	}
}

// ListTaskLogs implements servov1.TaskServiceServer. While the attempt runs, the last page has a token
// too: later pages have what is logged meanwhile.
func (s taskService) ListTaskLogs(ctx context.Context, req *servov1.ListTaskLogsRequest) (*servov1.ListTaskLogsResponse, error) {
	key, err := s.taskKey(ctx, req)
	if err != nil {
		return nil, err
	}
	answer := &servov1.ListTaskLogsResponse{}
	var place logPlace
	var over bool
	answer.Chunks, answer.NextPageToken, err = list(req, func(p page) (chunks []store.KeptChunk, err error) {
		if place, err = logPosition(p); err != nil {
			return nil, err
		}
		// The task is read first: if its attempt has ended, the chunks that are read next are complete.
		task, err := s.store.GetTask(ctx, key)
		if err != nil {
			return nil, err
		}
		if place.attempt, err = attemptOf(req.GetAttempt(), place.attempt, task); err != nil {
			return nil, err
		}
		over = task.State.Terminal() || place.attempt > 0 && (place.attempt < task.Attempt || !task.State.Leased())
		chunks, answer.DroppedBytes, err = s.store.Logs(ctx, key, place.attempt, place.seq, p.size+1)
		return chunks, err
	}, func(c store.KeptChunk) string { return logPlace{place.attempt, c.Seq}.String() }, func(c store.KeptChunk) int { return len(c.Text) },
		func(c store.KeptChunk) (*servov1.LogChunk, error) {
			place.seq = c.Seq
			return &servov1.LogChunk{Seq: c.Seq, At: timestamp(c.At), Text: c.Text}, nil
		})
	answer.Attempt = place.attempt
	if answer.GetNextPageToken() == "" && !over {
		answer.NextPageToken = place.String()
	}
	return answer, err
}

// attemptOf returns the attempt whose logs are read: the requested one, that of the previous pages, or
// the latest.
func attemptOf(asked, before int32, task store.TaskView) (int32, error) {
	switch {
	case asked > task.Attempt:
		return 0, fault.New(fault.NotFound, fmt.Sprintf("the task has no attempt %d", asked), fault.Field("attempt"),
			fault.Remedy("remove the attempt to read the latest"), fault.Value("attempts", task.Attempt))
	case asked > 0:
		return asked, nil
	case before > 0:
		return before, nil
	}
	return task.Attempt, nil
}

// logPlace is a place in the logs of a task.
type logPlace struct {
	attempt int32 // 0 before the first
	seq     int64
}

func (p logPlace) String() string { return fmt.Sprintf("%d/%d", p.attempt, p.seq) }

func logPosition(p page) (logPlace, error) {
	if p.after == "" {
		return logPlace{}, nil
	}
	first, second, _ := strings.Cut(p.after, "/")
	attempt, attemptErr := strconv.ParseInt(first, 10, 32)
	seq, seqErr := strconv.ParseInt(second, 10, 64)
	if attemptErr != nil || seqErr != nil {
		return logPlace{}, notAToken()
	}
	return logPlace{int32(attempt), seq}, nil
}
