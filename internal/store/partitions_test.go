package store_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"go.arco.dev/servo/internal/base/id"
	"go.arco.dev/servo/internal/devkit/servotest"
	"go.arco.dev/servo/internal/domain/run"
)

// partitions counts those of the tables of runs.
const partitions = `SELECT count(*) FROM pg_inherits WHERE inhparent IN
	('servo.runs'::regclass, 'servo.tasks'::regclass, 'servo.edges'::regclass, 'servo.run_event_rows'::regclass,
	 'servo.task_logs'::regclass, 'servo.attempt_logs'::regclass, 'servo.attempt_progress'::regclass, 'servo.attempt_stages'::regclass)`

func TestPartitions(t *testing.T) {
	t.Parallel()
	far := time.Date(2041, 2, 28, 23, 59, 59, 0, time.UTC)

	t.Run("they are made ahead of need, once, and take runs of their month", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t)
		a := w.account(t, "acme")
		require.Zero(t, must(w.MakePartitions(t.Context()))(t), "the migration has made those of today")
		before := w.Count(t, partitions)

		w.SetClock(t, far)
		w.now, w.mint = far, id.NewMinter(far)
		spec := run.Run{Tenant: a.tenant, ID: id.New[id.Run](w.mint)}
		err := w.Engine(t.Context(), func(ctx context.Context, tx *Tx) error {
			_, err := tx.Raw().Exec(ctx, `INSERT INTO servo.edges VALUES ($1, $2, $2, $2)`, a.tenant.UUID, spec.ID.UUID)
			return err
		})
		require.Equal(t, "23514", servotest.SQLState(err), "no partition: the row has no place")

		require.Equal(t, 32, must(w.MakePartitions(t.Context()))(t), "eight tables, four months")
		require.Equal(t, before+32, w.Count(t, partitions))
		require.Zero(t, must(w.MakePartitions(t.Context()))(t))
		for _, at := range []time.Time{far, far.Add(time.Second), time.Date(2041, 5, 31, 23, 59, 59, 999e6, time.UTC)} {
			w.mint = id.NewMinter(at)
			g := w.newRun(t, a, nil, nil, []int32{0})
			require.Equal(t, []run.TaskState{run.Ready, run.Pending}, w.states(t, g))
			for table, key := range map[string]string{"runs": "id", "tasks": "run_id", "edges": "run_id", "run_event_rows": "run_id"} {
				place := `SELECT count(*) FROM servo.` + table + ` WHERE ` + key + ` = $1 AND tableoid = ('servo.` + table + at.Format("_2006_01") + `')::regclass`
				require.NotZero(t, w.Count(t, place, g.run.ID.UUID), "%s of %s", table, at)
			}
		}
	})

	t.Run("their bounds meet, whatever the time zone of the session", func(t *testing.T) {
		t.Parallel()
		for _, zone := range []string{"America/New_York", "Europe/Berlin"} {
			w := newWorld(t)
			w.SetClock(t, far)
			w.engine(t, func(tx *Tx) {
				_, err := tx.Raw().Exec(t.Context(), `SET LOCAL timezone = '`+zone+`'`)
				require.NoError(t, err)
				var made int
				require.NoError(t, tx.Raw().QueryRow(t.Context(), `SELECT servo.make_partitions(14)`).Scan(&made))
				require.Equal(t, 8*15, made)
			})
			for month := time.Date(2041, 2, 1, 0, 0, 0, 0, time.UTC); month.Year() < 2042; month = month.AddDate(0, 1, 0) {
				bounds := `SELECT count(*) FROM pg_class WHERE oid = to_regclass($1) AND pg_get_expr(relpartbound, oid) = $2`
				want := "FOR VALUES FROM ('" + id.Floor(month).String() + "') TO ('" + id.Floor(month.AddDate(0, 1, 0)).String() + "')"
				require.Equal(t, 1, w.Count(t, bounds, "servo.runs"+month.Format("_2006_01"), want), "%s: %s", zone, month)
			}
		}
	})

	t.Run("many servers may make them at once", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t)
		w.SetClock(t, far)
		made := make([]int, 6)
		group, ctx := errgroup.WithContext(t.Context())
		for i := range made {
			group.Go(func() (err error) {
				made[i], err = w.MakePartitions(ctx)
				return err
			})
		}
		require.NoError(t, group.Wait())
		total := 0
		for _, n := range made {
			total += n
		}
		require.Equal(t, 32, total)
	})

	t.Run("the number of months is bounded", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t)
		for _, ahead := range []int{-1, 61} {
			err := w.Engine(t.Context(), func(ctx context.Context, tx *Tx) error {
				_, err := tx.Raw().Exec(ctx, `SELECT servo.make_partitions($1)`, ahead)
				return err
			})
			require.ErrorContains(t, err, "the range is 0 to 60")
		}
	})
}

func TestFencingTokens(t *testing.T) {
	t.Parallel()
	next := func(t *testing.T, w *world) int64 {
		t.Helper()
		return int64(w.Count(t, `SELECT nextval('servo.fencing_token')`))
	}

	t.Run("a server that starts raises them to the time", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t)
		require.NoError(t, w.Prepare(t.Context()))
		token := next(t, w)
		require.Greater(t, token, w.now.Unix()<<20)

		w.SetClock(t, w.now.Add(time.Hour))
		require.NoError(t, w.Prepare(t.Context()))
		require.Equal(t, w.now.Add(time.Hour).Round(time.Second).Unix()<<20+1, next(t, w))
	})

	t.Run("a clock that goes back, or a restore to an earlier time, does not lower them", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t)
		require.NoError(t, w.Prepare(t.Context()))
		before := next(t, w)
		w.SetClock(t, w.now.AddDate(-1, 0, 0))
		require.NoError(t, w.Prepare(t.Context()))
		require.Equal(t, before+1, next(t, w))
	})

	t.Run("servers that start while others claim give out no token twice", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t)
		tokens := make([][]int64, 4)
		group, ctx := errgroup.WithContext(t.Context())
		for i := range tokens {
			group.Go(func() error {
				for range 20 {
					if err := w.Prepare(ctx); err != nil {
						return err
					}
					var token int64
					if err := w.Pool().QueryRow(ctx, `SELECT nextval('servo.fencing_token')`).Scan(&token); err != nil {
						return err
					}
					tokens[i] = append(tokens[i], token)
				}
				return nil
			})
		}
		require.NoError(t, group.Wait())
		seen := map[int64]bool{}
		for _, mine := range tokens {
			require.IsIncreasing(t, mine)
			for _, token := range mine {
				require.False(t, seen[token], "token %d was given out twice", token)
				seen[token] = true
			}
		}
	})
}
