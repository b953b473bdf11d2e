package store

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"go.arco.dev/servo/internal/domain/run"
	"go.arco.dev/servo/internal/store/internal/db"
)

// Seen is one statement that the database has executed without an error.
type Seen func(sql string, args []any)

// Trace makes the store report every statement from now on.
func (s *Store) Trace(ctx context.Context, seen Seen) error {
	for _, pool := range []**pgxpool.Pool{&s.pool, &s.urgent} {
		config := (*pool).Config()
		config.ConnConfig.Tracer = &tracer{counter: s.stats, seen: seen}
		traced, err := pgxpool.NewWithConfig(ctx, config)
		if err != nil {
			return err
		}
		(*pool).Close()
		*pool = traced
	}
	return nil
}

// Pack is how the store packs the events of a transaction.
var Pack = pack

// Pool is what transactions take their connections from and give them back to.
func (s *Store) Pool() *pgxpool.Pool { return s.pool }

// Raw is the transaction itself, for SQL that the store would never send.
func (tx *Tx) Raw() pgx.Tx { return tx.tx }

// CappedQueueDepths is QueueDepths that stops counting earlier.
func (s *Store) CappedQueueDepths(ctx context.Context, most int32) (map[run.TaskState]int, error) {
	return s.queueDepths(ctx, most)
}

// CappedLive is Live that stops counting earlier.
func (s *Store) CappedLive(ctx context.Context, tenants int, most int32) (Live, error) {
	return s.live(ctx, tenants, most)
}

// CappedPoolDepths is PoolDepths that stops counting earlier.
func (s *Store) CappedPoolDepths(ctx context.Context, most int32) ([]PoolDepth, error) {
	return s.poolDepths(ctx, most)
}

type tracer struct {
	*counter

	seen Seen
}

type tracedKey struct{}

func (t *tracer) TraceQueryStart(ctx context.Context, conn *pgx.Conn, data pgx.TraceQueryStartData) context.Context {
	return context.WithValue(t.counter.TraceQueryStart(ctx, conn, data), tracedKey{}, data)
}

func (t *tracer) TraceQueryEnd(ctx context.Context, conn *pgx.Conn, end pgx.TraceQueryEndData) {
	t.counter.TraceQueryEnd(ctx, conn, end)
	if data, ok := ctx.Value(tracedKey{}).(pgx.TraceQueryStartData); ok && end.Err == nil {
		t.seen(data.SQL, data.Args)
	}
}

func (t *tracer) TraceBatchQuery(ctx context.Context, conn *pgx.Conn, data pgx.TraceBatchQueryData) {
	t.counter.TraceBatchQuery(ctx, conn, data)
	if data.Err == nil {
		t.seen(data.SQL, data.Args)
	}
}

// ReadInPipeline puts a read where only writes may go.
func ReadInPipeline(ctx context.Context) error {
	q := db.New(&pipeline{})
	if _, err := q.Clock(ctx); err != nil {
		_, err = q.ListTenants(ctx, db.ListTenantsParams{})
		return err
	}
	return nil
}

// CappedSlotOutcomes is SlotOutcomes that stops counting earlier.
func (s *Store) CappedSlotOutcomes(ctx context.Context, key ConfigKey, bounds []time.Time, most int64) ([]SlotOutcome, time.Time, error) {
	return s.slotOutcomes(ctx, key, bounds, most)
}

// KnowCluster makes the store assume that it has prepared for a cluster.
func (s *Store) KnowCluster(name string) {
	s.lineage.mu.Lock()
	defer s.lineage.mu.Unlock()
	s.lineage.known = name
}

// ReadMultirange and Multirange are how ranges are read and written.
var (
	ReadMultirange = readMultirange
	Multirange     = multirange
)
