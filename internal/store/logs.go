package store

import (
	"context"
	"errors"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"go.arco.dev/servo/internal/store/internal/db"
)

// LogChunk is a part of an attempt's log, as its worker sends it.
type LogChunk struct {
	TaskKey

	Token int64
	Seq   int64     // numbers the chunks of an attempt from 1; the same number again is a repeat
	At    time.Time // of its first line; zero is the time of arrival
	Text  string
}

// KeptChunk is a stored chunk.
type KeptChunk struct {
	Seq     int64
	At      time.Time
	Text    string
	Missing int64 // bytes that were dropped before it
}

// AttemptKey identifies an attempt.
type AttemptKey struct {
	TaskKey

	Attempt int32
}

// MaxLogBytes is how much of an attempt's log is kept: half from the beginning, half from the end.
// A chunk counts with an overhead for its row, which bounds many small chunks too.
const (
	MaxLogBytes   = 1 << 20
	chunkOverhead = 100
)

// WriteLogs adds chunks to the logs of attempts and drops chunks from the middle of full logs. It
// returns for each chunk whether its lease is held.
func (s *Store) WriteLogs(ctx context.Context, chunks []LogChunk) ([]bool, error) {
	var held []bool
	err := s.engine(ctx, func(ctx context.Context, tx *Tx) error {
		var (
			full []AttemptKey
			err  error
		)
		if held, full, err = tx.WriteLogs(ctx, chunks, MaxLogBytes); err != nil || len(full) == 0 {
			return err
		}
		return tx.TrimLogs(ctx, full, MaxLogBytes/2)
	})
	return held, err
}

// WriteLogs adds chunks. It returns for each chunk whether its lease is held, and which logs have
// grown beyond most bytes. The rows of attempt_logs are locked.
func (tx *Tx) WriteLogs(ctx context.Context, chunks []LogChunk, most int64) (held []bool, full []AttemptKey, err error) {
	rows, err := tx.q.WriteLogs(ctx, db.WriteLogsParams{
		Most: most, Overhead: chunkOverhead, Nths: ordinals(len(chunks)),
		TenantIds: column(chunks, func(c LogChunk) uuid.UUID { return c.Tenant.UUID }),
		RunIds:    column(chunks, func(c LogChunk) uuid.UUID { return c.Run.UUID }),
		TaskIds:   column(chunks, func(c LogChunk) uuid.UUID { return c.Task.UUID }),
		Tokens:    column(chunks, func(c LogChunk) int64 { return c.Token }),
		Seqs:      column(chunks, func(c LogChunk) int64 { return c.Seq }),
		Ats:       column(chunks, func(c LogChunk) time.Time { return c.At }),
		Bytes:     column(chunks, func(c LogChunk) int32 { return int32(len(c.Text)) }), //nolint:gosec // bounded by the engine
		Texts:     column(chunks, func(c LogChunk) string { return c.Text }),
	})
	held = make([]bool, len(chunks))
	for _, r := range rows {
		if r.Full {
			full = append(full, AttemptKey{taskKey(r.TenantID, r.RunID, r.TaskID), r.Attempt})
		} else {
			held[r.Nth] = true
		}
	}
	return held, full, err
}

// TrimLogs drops chunks that are neither in the first nor in the last half bytes of these logs.
func (tx *Tx) TrimLogs(ctx context.Context, logs []AttemptKey, half int64) error {
	return tx.q.TrimLogs(ctx, db.TrimLogsParams{
		Half: half, Overhead: chunkOverhead,
		TenantIds: column(logs, func(k AttemptKey) uuid.UUID { return k.Tenant.UUID }),
		RunIds:    column(logs, func(k AttemptKey) uuid.UUID { return k.Run.UUID }),
		TaskIds:   column(logs, func(k AttemptKey) uuid.UUID { return k.Task.UUID }),
		Attempts:  column(logs, func(k AttemptKey) int32 { return k.Attempt }),
	})
}

// Logs reads up to most chunks of an attempt's log after one, as its tenant, and how many bytes of
// the whole log were dropped. Missing is set in the chunk after the gap.
func (s *Store) Logs(ctx context.Context, key TaskKey, attempt int32, after int64, most int) ([]KeptChunk, int64, error) {
	var (
		chunks []KeptChunk
		gap    int64
	)
	err := s.Tenant(ctx, key.Tenant.String(), func(ctx context.Context, tx *Tx) error {
		// The chunks first: chunks that are dropped in between are then reported, and not lost silently.
		rows, err := tx.q.ReadLogs(ctx, db.ReadLogsParams{
			TenantID: key.Tenant.UUID, RunID: key.Run.UUID, TaskID: key.Task.UUID, Attempt: attempt, After: after,
			Most: int32(most), //nolint:gosec // a page size
		})
		if err != nil {
			return err
		}
		chunks = column(rows, func(r db.ReadLogsRow) KeptChunk { return KeptChunk{Seq: r.Seq, At: r.At, Text: r.Text} })
		dropped, err := tx.q.DroppedLogs(ctx, db.DroppedLogsParams{
			TenantID: key.Tenant.UUID, RunID: key.Run.UUID, TaskID: key.Task.UUID, Attempt: attempt,
		})
		if errors.Is(err, pgx.ErrNoRows) {
			return nil // nothing was ever logged
		}
		if err != nil {
			return err
		}
		gap = dropped.DroppedBytes
		for i := range chunks {
			if after < dropped.DroppedSeq && chunks[i].Seq > dropped.DroppedSeq {
				chunks[i].Missing = gap
				break
			}
		}
		return nil
	})
	return chunks, gap, err
}
