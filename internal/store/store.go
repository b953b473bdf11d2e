package store

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync/atomic"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgtype"
	"github.com/jackc/pgx/v5/pgxpool"
	pgxuuid "github.com/vgarvardt/pgx-google-uuid/v5"

	"go.arco.dev/servo/internal/base/event"
	"go.arco.dev/servo/internal/base/id"
	"go.arco.dev/servo/internal/domain/access"
	"go.arco.dev/servo/internal/domain/alert"
	"go.arco.dev/servo/internal/domain/backfill"
	"go.arco.dev/servo/internal/domain/config"
	"go.arco.dev/servo/internal/domain/platform"
	"go.arco.dev/servo/internal/domain/run"
	"go.arco.dev/servo/internal/domain/subscription"
	"go.arco.dev/servo/internal/domain/tenant"
	"go.arco.dev/servo/internal/store/internal/db"
)

// Options configure the connection to the database.
type Options struct {
	URL      string
	MaxConns int32 // 0 means the value of the URL or the driver's default
	Pooler   bool  // a pooler assigns server connections per transaction (see withoutSession)
	Logger   *slog.Logger

	// Watch changes the pool before it is opened, to observe released connections or statements.
	Watch func(*pgxpool.Config)
}

// Store is a pool of connections to one Servo database.
type Store struct {
	pool   *pgxpool.Pool
	urgent *pgxpool.Pool // one connection for statements that must not wait for work (see TakeDuty)
	codec  *event.Codec
	log    *slog.Logger
	stats  *counter
	pooler bool

	lineage lineage
}

// Stats count the transactions and statements since the store was opened.
type Stats struct {
	Transactions int64
	Statements   int64
	Deadlocks    int64 // statements that PostgreSQL cancelled because of a deadlock
	Retries      int64 // transactions that were retried after a transient error
}

// Open connects to the database and checks that it answers.
func Open(ctx context.Context, o Options) (*Store, error) {
	if err := CheckURL("database", o.URL); err != nil {
		return nil, err
	}
	config, err := pgxpool.ParseConfig(o.URL)
	if err != nil {
		return nil, fmt.Errorf("database URL: %w", err)
	}
	if o.MaxConns > 0 {
		config.MaxConns = o.MaxConns
	}
	stats := &counter{}
	config.ConnConfig.Tracer = stats
	log := o.Logger
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	s := &Store{codec: Codec(), log: log, stats: stats, pooler: o.Pooler}
	config.AfterConnect = func(ctx context.Context, conn *pgx.Conn) error {
		registerTypes(conn)
		return s.follow(ctx, conn)
	}
	if o.Pooler {
		withoutSession(config.ConnConfig)
	}
	if o.Watch != nil {
		o.Watch(config)
	}
	if s.pool, err = pgxpool.NewWithConfig(ctx, config); err != nil {
		return nil, fmt.Errorf("open the database: %w", err)
	}
	if err := s.pool.Ping(ctx); err != nil {
		s.pool.Close()
		return nil, fmt.Errorf("reach the database: %w", err)
	}
	if !o.Pooler {
		if err := s.requireDirect(ctx); err != nil {
			s.pool.Close()
			return nil, err
		}
	}
	one := config.Copy()
	one.MaxConns, one.MinConns, one.MinIdleConns = 1, 0, 0
	if s.urgent, err = pgxpool.NewWithConfig(ctx, one); err != nil {
		s.pool.Close()
		return nil, fmt.Errorf("open the database: %w", err)
	}
	return s, nil
}

// withoutSession keeps a connection from leaving session state on the server: the next transaction
// would look for a prepared statement on another connection. Descriptions of statements are still
// cached.
func withoutSession(config *pgx.ConnConfig) {
	config.DefaultQueryExecMode = pgx.QueryExecModeCacheDescribe
	config.StatementCacheCapacity = 0
	config.DescriptionCacheCapacity = describedStatements
}

// describedStatements is the size of that cache: more than there are statements.
const describedStatements = 512

// Codec returns a codec for all events of this version of Servo.
func Codec() *event.Codec {
	return event.NewCodec(slices.Concat(run.Events(), backfill.Events(), tenant.Events(), platform.Events(), config.Events(), alert.Events(), access.Events(), subscription.Events())...)
}

// registerTypes encodes UUIDs in binary and decodes times in UTC.
func registerTypes(conn *pgx.Conn) {
	pgxuuid.Register(conn.TypeMap())
	conn.TypeMap().RegisterType(&pgtype.Type{
		Name: "timestamptz", OID: pgtype.TimestamptzOID, Codec: &pgtype.TimestamptzCodec{ScanLocation: time.UTC},
	})
}

// Close waits for connections in use and closes all connections.
func (s *Store) Close() {
	s.pool.Close()
	s.urgent.Close()
}

// Stats returns the counts so far.
func (s *Store) Stats() Stats {
	return Stats{
		Transactions: s.stats.transactions.Load(), Statements: s.stats.statements.Load(),
		Deadlocks: s.stats.deadlocks.Load(), Retries: s.stats.retries.Load(),
	}
}

// counter counts the statements that the driver sends.
type counter struct{ transactions, statements, deadlocks, retries atomic.Int64 }

func (c *counter) TraceQueryStart(ctx context.Context, _ *pgx.Conn, data pgx.TraceQueryStartData) context.Context {
	c.statements.Add(1)
	if data.SQL == "commit" {
		c.transactions.Add(1)
	}
	return ctx
}

func (c *counter) TraceQueryEnd(_ context.Context, _ *pgx.Conn, data pgx.TraceQueryEndData) {
	c.failed(data.Err)
}

func (c *counter) failed(err error) {
	if pg, ok := errors.AsType[*pgconn.PgError](err); ok && pg.Code == deadlock {
		c.deadlocks.Add(1)
	}
}

func (c *counter) TraceBatchStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceBatchStartData) context.Context {
	return ctx
}

func (c *counter) TraceBatchQuery(_ context.Context, _ *pgx.Conn, data pgx.TraceBatchQueryData) {
	c.statements.Add(1)
	c.failed(data.Err)
}

func (c *counter) TraceBatchEnd(context.Context, *pgx.Conn, pgx.TraceBatchEndData) {}

// Tx is one transaction. It sends reads and locks immediately. It collects writes, and flush sends
// them together.
type Tx struct {
	tx     pgx.Tx
	q      *db.Queries
	codec  *event.Codec
	writes *pipeline
}

// Engine runs fn in a transaction of the engine's role, which spans tenants, writes the changes
// that fn collected, and commits. In the transaction of an idempotent call the commit comes later,
// together with the call's answer (see CallTx).
func (s *Store) Engine(ctx context.Context, fn func(ctx context.Context, tx *Tx) error) error {
	if c := callOf(ctx); c != nil {
		if c.state.Load() != callFree { // a part of the call's transaction
			return c.effect(ctx, fn)
		}
		return s.again(ctx, func() (bool, error) { return false, c.effect(ctx, fn) })
	}
	return s.engine(ctx, fn)
}

// engine is Engine for the store's own statements, which are no part of a call.
func (s *Store) engine(ctx context.Context, fn func(ctx context.Context, tx *Tx) error) error {
	if Uncommitted(ctx) {
		return callOf(ctx).use(ctx, func(ctx context.Context, tx *Tx) error { return s.run(ctx, tx.tx, fn) })
	}
	return s.again(ctx, func() (bool, error) {
		committing, err := s.attempt(ctx, s.pool, pgx.TxOptions{BeginQuery: s.begin()}, fn)
		return committing, s.refollow(ctx, err)
	})
}

// engineAt is engine for functions that need the database's time.
func (s *Store) engineAt(ctx context.Context, fn func(ctx context.Context, tx *Tx, now time.Time) error) error {
	return s.engine(ctx, func(ctx context.Context, tx *Tx) error {
		now, err := tx.Clock(ctx)
		if err != nil {
			return err
		}
		return fn(ctx, tx, now)
	})
}

// snapshot is a read-only transaction that sees one moment.
var snapshot = pgx.TxOptions{IsoLevel: pgx.RepeatableRead, AccessMode: pgx.ReadOnly}

// Snapshot runs fn in a read-only transaction of the engine's role that sees one moment.
func (s *Store) Snapshot(ctx context.Context, fn func(ctx context.Context, tx *Tx) error) error {
	return s.entered(snapshot, (*db.Queries).EnterEngineRead)(ctx, fn)
}

// Tenant runs fn in a transaction that sees the rows of one tenant only.
func (s *Store) Tenant(ctx context.Context, tenant string, fn func(ctx context.Context, tx *Tx) error) error {
	return s.entered(pgx.TxOptions{}, enterTenant(tenant))(ctx, fn)
}

// tenant is Tenant for functions that take the kind of transaction.
func (s *Store) tenant(tenant id.Tenant) within {
	return s.entered(pgx.TxOptions{}, enterTenant(tenant.String()))
}

// tenantSnapshot runs functions in read-only transactions that see one moment of a tenant's rows.
func (s *Store) tenantSnapshot(tenant id.Tenant) within {
	return s.entered(snapshot, enterTenant(tenant.String()))
}

// enter is a statement that sets the role of a transaction.
type enter func(q *db.Queries, ctx context.Context) error

func enterTenant(tenant string) enter {
	return func(q *db.Queries, ctx context.Context) error { return q.EnterTenant(ctx, tenant) }
}

// within runs a function in a transaction of some kind.
type within func(ctx context.Context, fn func(ctx context.Context, tx *Tx) error) error

// entered runs functions in transactions that begin by setting their role.
func (s *Store) entered(options pgx.TxOptions, role enter) within {
	return func(ctx context.Context, fn func(ctx context.Context, tx *Tx) error) error {
		return s.in(ctx, options, func(ctx context.Context, tx *Tx) error {
			if err := role(tx.q, ctx); err != nil {
				return err
			}
			return fn(ctx, tx)
		})
	}
}

// read returns the result of a function that runs in a transaction.
func read[T any](ctx context.Context, in within, fn func(ctx context.Context, tx *Tx) (T, error)) (found T, err error) {
	err = in(ctx, func(ctx context.Context, tx *Tx) error {
		found, err = fn(ctx, tx)
		return err
	})
	return found, err
}

func (s *Store) in(ctx context.Context, options pgx.TxOptions, fn func(ctx context.Context, tx *Tx) error) error {
	if Uncommitted(ctx) { // only the call's transaction sees its changes
		return callOf(ctx).read(ctx, fn)
	}
	return s.again(ctx, func() (committing bool, err error) { return s.attempt(ctx, s.pool, options, fn) })
}

// attempt runs fn in a transaction, once. Committing is true if the changes may be committed,
// even with an error.
func (s *Store) attempt(ctx context.Context, pool *pgxpool.Pool, options pgx.TxOptions, fn func(ctx context.Context, tx *Tx) error) (committing bool, err error) {
	err = pgx.BeginTxFunc(ctx, pool, options, func(raw pgx.Tx) error {
		err := s.run(ctx, raw, fn)
		committing = err == nil && options.AccessMode != pgx.ReadOnly
		return err
	})
	return committing, err
}

// run runs fn in an open transaction and writes the changes that it collected.
func (s *Store) run(ctx context.Context, raw pgx.Tx, fn func(ctx context.Context, tx *Tx) error) error {
	tx := s.tx(raw)
	if err := fn(ctx, tx); err != nil {
		return err
	}
	return tx.writes.flush(ctx, raw)
}

func (s *Store) tx(raw pgx.Tx) *Tx {
	return &Tx{tx: raw, q: db.New(arrays{raw}), codec: s.codec, writes: &pipeline{}}
}

// Clock returns the database's current time. The engine reads it once, after its locks.
func (tx *Tx) Clock(ctx context.Context) (time.Time, error) { return tx.q.Clock(ctx) }

// arrays sends the arrays of ids in a form that the driver encodes without reflection.
type arrays struct{ db.DBTX }

func (a arrays) Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error) {
	return a.DBTX.Exec(ctx, sql, flat(args)...)
}

func (a arrays) Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error) {
	return a.DBTX.Query(ctx, sql, flat(args)...)
}

func (a arrays) QueryRow(ctx context.Context, sql string, args ...any) pgx.Row {
	return a.DBTX.QueryRow(ctx, sql, flat(args)...)
}

func flat(args []any) []any {
	for i, arg := range args {
		if ids, ok := arg.([]uuid.UUID); ok {
			args[i] = pgtype.FlatArray[uuid.UUID](ids)
		}
	}
	return args
}

// pipeline takes the place of a connection and collects the writes of sqlc's methods, which are
// then sent in one round trip.
type pipeline struct {
	batch  pgx.Batch
	expect []expectation
}

type expectation struct {
	what string
	rows int
}

// Exec implements db.DBTX.
func (p *pipeline) Exec(_ context.Context, sql string, args ...any) (pgconn.CommandTag, error) {
	p.batch.Queue(sql, flat(args)...)
	return pgconn.CommandTag{}, nil
}

// Query implements db.DBTX.
func (p *pipeline) Query(context.Context, string, ...any) (pgx.Rows, error) {
	return nil, errReadInPipeline
}

// QueryRow implements db.DBTX.
func (p *pipeline) QueryRow(context.Context, string, ...any) pgx.Row { return readInPipeline{} }

type readInPipeline struct{}

func (readInPipeline) Scan(...any) error { return errReadInPipeline }

// write collects one statement that must change exactly rows rows.
func (p *pipeline) write(what string, rows int, queue func(q *db.Queries) error) error {
	if rows == 0 {
		return nil
	}
	p.expect = append(p.expect, expectation{what, rows})
	return queue(db.New(p))
}

// flush sends the collected statements and checks every row count. The rows are locked, so a
// different count means that an invariant is broken: the batch is rolled back.
func (p *pipeline) flush(ctx context.Context, tx pgx.Tx) error {
	if len(p.expect) == 0 {
		return nil
	}
	results := tx.SendBatch(ctx, &p.batch)
	defer func() { _ = results.Close() }() // Exec has returned its error before
	for _, e := range p.expect {
		tag, err := results.Exec()
		if err != nil {
			return fmt.Errorf("%s: %w", e.what, err)
		}
		if got := tag.RowsAffected(); e.rows >= 0 && got != int64(e.rows) {
			return &MismatchError{Statement: e.what, Want: e.rows, Got: int(got)}
		}
	}
	*p = pipeline{}
	return results.Close()
}
