package api

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"

	servov1 "go.arco.dev/servo/gen/servo/v1"
	"go.arco.dev/servo/internal/base/fault"
	"go.arco.dev/servo/internal/edge/intercept"
	"go.arco.dev/servo/internal/engine"
	"go.arco.dev/servo/internal/store"
)

// chunkOf is some lines that an attempt has logged.
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

// ListTaskLogs implements servov1.TaskServiceServer.
func (s taskService) ListTaskLogs(ctx context.Context, req *servov1.ListTaskLogsRequest) (*servov1.ListTaskLogsResponse, error) {
	key, err := s.taskKey(ctx, req)
	if err != nil {
		return nil, err
	}
	page, err := pageOf(req)
	if err != nil {
		return nil, err
	}
	place, err := logPosition(page)
	if err != nil {
		return nil, err
	}
	// The task first: if its attempt is over now, what is read next is all that it has logged.
	task, err := s.store.GetTask(ctx, key)
	if err != nil {
		return nil, err
	}
	place.attempt, err = attemptOf(req.GetAttempt(), place.attempt, task)
	if err != nil {
		return nil, err
	}
	over := task.State.Terminal() || place.attempt > 0 && (place.attempt < task.Attempt || !task.State.Leased())
	chunks, dropped, err := s.store.Logs(ctx, key, place.attempt, place.seq, page.size+1)
	if err != nil {
		return nil, err
	}
	answer := &servov1.ListTaskLogsResponse{Attempt: place.attempt, DroppedBytes: dropped}
	chunks, answer.NextPageToken = cut(page, chunks, func(c store.KeptChunk) int { return len(c.Text) }, func(c store.KeptChunk) string {
		return logPlace{place.attempt, c.Seq}.String()
	})
	for _, c := range chunks {
		answer.Chunks = append(answer.Chunks, &servov1.LogChunk{Seq: c.Seq, At: timestamp(c.At), Text: c.Text})
		place.seq = c.Seq
	}
	if answer.GetNextPageToken() == "" && !over {
		answer.NextPageToken = page.next(place.String())
	}
	return answer, nil
}

// attemptOf is the attempt that is read: the one that is asked for, the one that the pages
// before were of, or the latest.
func attemptOf(asked, before int32, task store.TaskView) (int32, error) {
	switch {
	case asked > task.Attempt:
		return 0, fault.New(fault.NotFound, fmt.Sprintf("the task has had no attempt %d", asked), fault.Field("attempt"),
			fault.Remedy("leave it out for the latest"), fault.Value("attempts", task.Attempt))
	case asked > 0:
		return asked, nil
	case before > 0:
		return before, nil
	}
	return task.Attempt, nil
}

// logPlace is a place in the logs of a task.
type logPlace struct {
	attempt int32 // 0 before there is any
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
		return logPlace{}, intercept.BadPageToken("is not a page token")
	}
	return logPlace{int32(attempt), seq}, nil
}
