package store_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"go.arco.dev/servo/internal/base/event"
	"go.arco.dev/servo/internal/base/fault"
	"go.arco.dev/servo/internal/domain/subscription"
	"go.arco.dev/servo/internal/store"
	"go.arco.dev/servo/internal/store/internal/db"
)

// follower reads the feed, page by page.
type follower struct {
	*world

	after event.Position
	seen  []subscription.Recorded
}

func (f *follower) read(t testing.TB, most int) {
	t.Helper()
	for {
		page := must(f.Feed(t.Context(), f.after, most, false))(t)
		for _, e := range page {
			require.Positive(t, e.At.Compare(f.after), "in order")
			f.after = e.At
		}
		f.seen = append(f.seen, page...)
		if len(page) < most {
			return
		}
	}
}

// until reads until so many events have been seen. Transactions of other tests in the same
// cluster hold events back for as long as they run.
func (f *follower) until(t testing.TB, n int) {
	t.Helper()
	for len(f.seen) < n {
		require.NoError(t, t.Context().Err())
		f.read(t, 7)
	}
	require.Equal(t, n, len(f.seen))
}

// TestFeed: 32 writers at once take positions, dawdle, and commit or roll back in any order.
// A reader sees each event that was committed once, in order, and no other.
func TestFeed(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	acme := w.account(t, "acme")
	f := &follower{world: w}
	f.until(t, w.Count(t, `SELECT count(*) FROM servo.entity_events`))
	f.seen = nil
	const writers, each = 32, 25
	var (
		all       sync.WaitGroup
		mu        sync.Mutex
		committed []string
		running   atomic.Int64
	)
	running.Store(writers)
	for i := range writers {
		all.Go(func() {
			defer running.Add(-1)
			conn, err := pgx.Connect(t.Context(), w.URL)
			if err != nil {
				t.Error(err)
				return
			}
			defer func() { _ = conn.Close(context.Background()) }()
			for n := range each {
				names, err := dawdle(t.Context(), conn, acme.tenant.UUID, fmt.Sprintf("%d-%d", i, n))
				if err != nil {
					t.Error(err)
					return
				}
				mu.Lock()
				committed = append(committed, names...)
				mu.Unlock()
			}
		})
	}
	for running.Load() > 0 { // beside them
		f.read(t, 1+rand.IntN(50))
	}
	all.Wait()
	for w.Count(t, `SELECT count(*) FROM servo.run_events WHERE txid >= pg_snapshot_xmin(pg_current_snapshot())`) > 0 { // another test holds it back
		require.NoError(t, t.Context().Err())
	}
	f.read(t, 7)
	var seen []string
	for _, e := range f.seen {
		seen = append(seen, e.Actor)
	}
	slices.Sort(seen)
	slices.Sort(committed)
	require.True(t, slices.Equal(committed, seen), "each once")
	require.Less(t, len(committed), writers*each*3, "some were rolled back")
	require.True(t, slices.IsSortedFunc(f.seen, func(a, b subscription.Recorded) int { return a.At.Compare(b.At) }))

	again := &follower{world: w}
	again.read(t, 1000)
	require.True(t, slices.EqualFunc(f.seen, again.seen[len(again.seen)-len(f.seen):], func(a, b subscription.Recorded) bool { return a.At == b.At }),
		"a later reader reads the same feed")
}

// dawdle draws a position, waits, gets a transaction id at some moment, waits, writes an event of
// a run and one of an entity, waits, and commits nine times out of ten.
func dawdle(ctx context.Context, conn *pgx.Conn, tenant uuid.UUID, name string) ([]string, error) {
	tx, err := conn.Begin(ctx)
	if err != nil {
		return nil, err
	}
	defer func() { _ = tx.Rollback(context.WithoutCancel(ctx)) }()
	wait := func() error {
		_, err := tx.Exec(ctx, `SELECT pg_sleep($1)`, rand.Float64()*rand.Float64()*0.02)
		return err
	}
	var position int64
	if err := tx.QueryRow(ctx, `SELECT nextval('servo.event_position')`).Scan(&position); err != nil {
		return nil, err
	}
	if err := wait(); err != nil {
		return nil, err
	}
	if _, err := tx.Exec(ctx, `INSERT INTO servo.run_event_rows (tenant_id, run_id, position, recorded_at, events)
		VALUES ($1, servo.uuid_floor(now()), $2, now(), jsonb_build_array(jsonb_build_object('t', 'run.created', 'v', 1, 'a', $3::text, 'd', '{}'::jsonb),
			jsonb_build_object('t', 'task.queued', 's', gen_random_uuid(), 'v', 1, 'a', $3 || ' task', 'd', '{}'::jsonb)))`, tenant, position, name+" run"); err != nil {
		return nil, err
	}
	if err := wait(); err != nil {
		return nil, err
	}
	if _, err := tx.Exec(ctx, `INSERT INTO servo.entity_events (tenant_id, subject_id, version, recorded_at, schema, type, actor, data)
		VALUES ($1, gen_random_uuid(), 1, now(), 1, 'config.created', $2, '{}')`, tenant, name+" entity"); err != nil {
		return nil, err
	}
	if err := wait(); err != nil {
		return nil, err
	}
	if rand.IntN(10) == 0 {
		return nil, tx.Rollback(ctx)
	}
	return []string{name + " run", name + " run task", name + " entity"}, tx.Commit(ctx)
}

func TestFeedIsHeldBack(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	f := &follower{world: w}
	elsewhere := w.hold(t, func(ctx context.Context, tx *Tx) error { // it writes no event at all
		if err := patient(ctx, tx); err != nil {
			return err
		}
		_, err := tx.Raw().Exec(ctx, `SELECT pg_current_xact_id()`)
		return err
	})
	w.account(t, "acme")
	f.read(t, 10)
	require.Empty(t, f.seen, "what was committed after it began waits for it")
	w.Exec(t, `UPDATE servo.entity_events SET recorded_at = recorded_at - interval '1 hour'`)
	require.Greater(t, must(w.FeedState(t.Context()))(t).Age, 59*time.Minute, "the feed reports how long")
	elsewhere.commit(t)
	f.until(t, w.Count(t, `SELECT count(*) FROM servo.entity_events`))
	lag := must(w.FeedLag(t.Context(), f.after))(t)
	require.Zero(t, lag)
	require.Greater(t, must(w.FeedLag(t.Context(), event.Position{}))(t), 59*time.Minute)
}

func TestFeedPlace(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.account(t, "acme")
	w.engine(t, func(tx *Tx) {
		require.Equal(t, event.Position{Epoch: 1}, must(tx.FeedPlace(t.Context(), "from", "beginning"))(t))
		require.Equal(t, event.Position{Epoch: 1, Tx: 5, Position: 6, Ordinal: 7}, must(tx.FeedPlace(t.Context(), "from", "1.5.6.7"))(t))
		for _, text := range []string{"yesterday", "1.5.6", "1.99999999999.1.1"} {
			_, err := tx.FeedPlace(t.Context(), "from", text)
			require.True(t, fault.Is(err, fault.InvalidArgument), text)
		}
	})
}

func TestFeedEpochs(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.account(t, "acme")
	w.Exec(t, `UPDATE servo.feed_epochs SET cluster = ''`)
	require.EqualValues(t, 1, must(w.CheckFeedEpoch(t.Context()))(t), "the first look only records which cluster it is")
	require.EqualValues(t, 1, must(w.CheckFeedEpoch(t.Context()))(t))
	require.Regexp(t, `^\d+/[0-9A-F]{8}$`, w.Texts(t, `SELECT cluster FROM servo.feed_epochs`)[0])
	first := &follower{world: w}
	first.until(t, w.Count(t, `SELECT count(*) FROM servo.entity_events`))
	require.EqualValues(t, 1, first.after.Epoch)

	w.Exec(t, `UPDATE servo.feed_epochs SET cluster = 'another/00000001'`)
	require.EqualValues(t, 2, must(w.CheckFeedEpoch(t.Context()))(t), "the cluster was restored")
	require.EqualValues(t, 2, must(w.CheckFeedEpoch(t.Context()))(t))
	w.account(t, "brick")
	n := w.Count(t, `SELECT count(*) FROM servo.entity_events`)
	second := &follower{world: w}
	second.until(t, n)
	require.EqualValues(t, 1, second.seen[0].At.Epoch, "what there was keeps its names")
	require.EqualValues(t, 2, second.after.Epoch, "what is new has new ones")

	// A reader was further than the cluster was restored to.
	ahead := must(w.Feed(t.Context(), event.Position{Epoch: 1, Tx: 1 << 40, Position: 5}, 100, true))(t)
	require.Len(t, ahead, n-len(first.seen), "it sees the events now at this position")
	require.EqualValues(t, 3, must(w.RaiseFeedEpoch(t.Context(), "by hand"))(t))
}

// TestFeedPlans: a read of the next thousand events costs what a thousand events cost, however
// many precede and follow them, and for any statistics.
func TestFeedPlans(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	acme := w.account(t, "acme")
	early := w.connection(t)
	feedBlocks(t, early, event.Position{})
	conn := w.Connect(t)
	const transactions, each = 300, 200
	for range transactions {
		_, err := conn.Exec(t.Context(), `INSERT INTO servo.run_event_rows (tenant_id, run_id, recorded_at, events)
			SELECT $1, servo.uuid_floor(now()), now(), jsonb_build_array(e.one, e.one) FROM generate_series(1, $2 / 2) AS i
			CROSS JOIN LATERAL (SELECT jsonb_build_object('t', 'task.queued', 's', gen_random_uuid(), 'v', i, 'd', jsonb_build_object('text', repeat('x', 100))) AS one) AS e`, acme.tenant.UUID, each)
		require.NoError(t, err)
	}
	var middle int64
	require.NoError(t, conn.QueryRow(t.Context(), `SELECT (txid::text)::bigint FROM servo.run_events ORDER BY txid OFFSET 30000 LIMIT 1`).Scan(&middle))
	whole := w.Count(t, `SELECT sum(pg_relation_size(inhrelid)) / 8192 FROM pg_inherits WHERE inhparent = 'servo.run_event_rows'::regclass`)
	check := func(claim string, conn *pgx.Conn) {
		for _, at := range []int64{0, middle, middle * 2} {
			blocks, rows := feedBlocks(t, conn, event.Position{Tx: at, Position: 3})
			require.Less(t, blocks, 300, "%s at %d: %d blocks of %d", claim, at, blocks, whole)
			require.LessOrEqual(t, rows, 1000)
			t.Logf("%s at %d: %d blocks for %d events, of %d", claim, at, blocks, rows, whole)
		}
	}
	require.Greater(t, whole, 1000)
	check("planned when the log was empty", early)
	check("without statistics", w.connection(t))
	w.Exec(t, `ANALYZE`)
	check("with statistics", w.connection(t))
}

// feedBlocks is how many blocks a read of a thousand events touches.
func feedBlocks(t testing.TB, conn *pgx.Conn, after event.Position) (blocks, rows int) {
	t.Helper()
	tx, err := conn.Begin(t.Context())
	require.NoError(t, err)
	defer func() { _ = tx.Rollback(t.Context()) }()
	require.NoError(t, db.New(tx).EnterFeed(t.Context()))
	root := explain(t, tx, "Feed", statement{sqlOf("Feed"), []any{fmt.Sprint(after.Tx), after.Position, after.Ordinal, int32(1000)}})
	root.walk(func(n *node) { require.NotContains(t, []string{"Seq Scan", "Bitmap Heap Scan"}, n.NodeType) })
	found, err := db.New(tx).Feed(t.Context(), db.FeedParams{Tx: fmt.Sprint(after.Tx), Position: after.Position, Most: 1000})
	require.NoError(t, err)
	return root.Hit + root.Read, len(found)
}

func TestEventTypes(t *testing.T) {
	t.Parallel()
	require.Contains(t, store.EventTypes(), "subscription.created")
}
