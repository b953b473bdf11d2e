package engine

import (
	"context"
	"fmt"
	"time"

	"go.arco.dev/servo/internal/base/fault"
	"go.arco.dev/servo/internal/engine/batch"
	"go.arco.dev/servo/internal/store"
)

// LogChunk is some lines of an attempt's log: plain text, a line for each entry.
type LogChunk = store.LogChunk

// Limits of log chunks: the text of one, how many one call sends, and how many may wait, which bounds
// their memory.
const (
	MaxChunkBytes = 64 << 10
	MaxLogChunks  = 1000
	maxLogsWait   = 1000
)

// Logs adds chunks to the logs of attempts, and returns an error or nil for each; a repeated chunk gets the
// answer of the first. They have a lane of their own, so that no other command waits for them. Chunks
// beyond LogRates are answered like others and not stored. A worker sends the rest of a log before it ends
// the attempt: afterwards the lease is over.
func (e *Engine) Logs(ctx context.Context, chunks []LogChunk) []error {
	errs := make([]error, len(chunks))
	if len(chunks) > MaxLogChunks {
		for i := range errs {
			errs[i] = fault.New(fault.LimitExceeded, fmt.Sprintf("has %d chunks, the limit of one call is %d", len(chunks), MaxLogChunks),
				fault.Field("chunks"), fault.Remedy("send them in several calls"), fault.Value("limit", MaxLogChunks))
		}
		return errs
	}
	var (
		kept   []LogChunk
		places []int
	)
	for i, c := range chunks {
		if errs[i] = validateChunk(c); errs[i] != nil {
			continue
		}
		if stored, ok := e.logMeter.pass(c, time.Now()); ok {
			kept, places = append(kept, stored), append(places, i)
		}
	}
	_, refused := e.logs.DoAll(ctx, kept)
	for i, err := range refused {
		errs[places[i]] = err
	}
	return errs
}

func validateChunk(c LogChunk) error {
	switch {
	case c.Seq < 1:
		return fault.New(fault.InvalidArgument, fmt.Sprintf("is %d", c.Seq), fault.Field("seq"), fault.Remedy("number the chunks of an attempt from 1"))
	case c.Text == "":
		return fault.New(fault.InvalidArgument, "is empty", fault.Field("text"), fault.Remedy("send lines, or nothing at all"))
	}
	if err := checkTime("at", c.At); err != nil {
		return err
	}
	return checkText("text", c.Text, MaxChunkBytes)
}

// checkTime refuses years that cannot be right and that some readers cannot parse. Zero is no time.
func checkTime(field string, at time.Time) error {
	if !at.IsZero() && (at.Year() < 1970 || at.Year() > 9999) {
		return fault.New(fault.InvalidArgument, fmt.Sprintf("is in the year %d", at.Year()), fault.Field(field), fault.Remedy("use a year from 1970 to 9999"))
	}
	return nil
}

// chunkWeight bounds the bytes of a batch to about ten megabytes.
func chunkWeight(c LogChunk) int { return 1 + len(c.Text)>>10 }

func (e *Engine) runLogs(ctx context.Context, calls []*batch.Call[LogChunk, struct{}]) error {
	chunks := make([]LogChunk, len(calls))
	for i, c := range calls {
		chunks[i] = c.Request
	}
	held, err := e.store.WriteLogs(ctx, chunks)
	if err != nil {
		return err
	}
	for i, c := range calls {
		if !held[i] {
			c.Err = leaseOver(c.Request.Task)
		}
	}
	return nil
}
