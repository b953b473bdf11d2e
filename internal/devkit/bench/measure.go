package bench

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"

	"go.arco.dev/servo/internal/store"
)

// reading has the counters at one moment.
type reading struct {
	at       time.Time
	stats    store.Stats
	inserted int64
	updated  int64
	deleted  int64
	walBytes int64
	pgCPU    time.Duration
	goCPU    time.Duration
}

// Cost is what happened between two readings.
type Cost struct {
	Elapsed      time.Duration `json:"elapsed_ns"`
	Transactions int64         `json:"transactions"`
	Statements   int64         `json:"statements"`
	Inserted     int64         `json:"rows_inserted"`
	Updated      int64         `json:"rows_updated"`
	Deleted      int64         `json:"rows_deleted"`
	WALBytes     int64         `json:"wal_bytes"`
	PostgresCPU  time.Duration `json:"postgres_cpu_ns"` // 0 where it cannot be read
	GoCPU        time.Duration `json:"go_cpu_ns"`
}

func (b *bencher) read(ctx context.Context) (reading, error) {
	r := reading{at: time.Now(), stats: b.store.Stats(), goCPU: ownCPU(), pgCPU: postgresCPU(b.postmaster)}
	// Backends hand in their counts at most once a second and when asked.
	err := b.admin.QueryRow(ctx, `
		SELECT sum(n_tup_ins), sum(n_tup_upd), sum(n_tup_del), pg_wal_lsn_diff(pg_current_wal_lsn(), '0/0')::bigint
		FROM   pg_stat_all_tables WHERE schemaname = 'servo'`).Scan(&r.inserted, &r.updated, &r.deleted, &r.walBytes)
	return r, err
}

// settle waits until the backends have handed in their counts.
func (b *bencher) settle(ctx context.Context) error {
	return sleep(ctx, 1200*time.Millisecond)
}

func (r reading) until(end reading, elapsed time.Duration) Cost {
	return Cost{
		Elapsed:      elapsed,
		Transactions: end.stats.Transactions - r.stats.Transactions, Statements: end.stats.Statements - r.stats.Statements,
		Inserted: end.inserted - r.inserted, Updated: end.updated - r.updated, Deleted: end.deleted - r.deleted,
		WALBytes: end.walBytes - r.walBytes, PostgresCPU: end.pgCPU - r.pgCPU, GoCPU: end.goCPU - r.goCPU,
	}
}

func ownCPU() time.Duration {
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
		return 0
	}
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}

// clockTick is the unit of processor times under /proc: 1/100 s on every Linux that counts.
const clockTick = 10 * time.Millisecond

// postgresCPU adds up the processor time of the postmaster, its children, and the children
// that it has waited for. It is 0 without /proc or without a postmaster of our own.
func postgresCPU(postmaster int) time.Duration {
	if postmaster == 0 {
		return 0
	}
	total := time.Duration(0)
	stats, _ := filepath.Glob("/proc/[0-9]*/stat")
	for _, path := range stats {
		data, err := os.ReadFile(path) //nolint:gosec // a file of the kernel
		if err != nil {
			continue // it has just ended
		}
		pid, parent, own, waited := processTimes(string(data))
		switch postmaster {
		case pid:
			total += own + waited
		case parent:
			total += own
		}
	}
	return total
}

// processTimes reads pid, parent, own time and the time of children waited for out of a
// line of /proc/PID/stat. The name in parentheses may hold anything.
func processTimes(line string) (pid, parent int, own, waited time.Duration) {
	open, end := strings.IndexByte(line, '('), strings.LastIndexByte(line, ')')
	if open < 0 || end < open {
		return 0, 0, 0, 0
	}
	pid, _ = strconv.Atoi(strings.TrimSpace(line[:open]))
	fields := strings.Fields(line[end+1:])
	if len(fields) < 15 {
		return 0, 0, 0, 0
	}
	number := func(i int) time.Duration {
		n, _ := strconv.ParseInt(fields[i], 10, 64)
		return time.Duration(n) * clockTick
	}
	parent, _ = strconv.Atoi(fields[1])
	return pid, parent, number(11) + number(12), number(13) + number(14)
}

// TableSize is how large a table is on disk, with its indexes.
type TableSize struct {
	Table string `json:"table"`
	Bytes int64  `json:"bytes"`
}

// queueSizes are the sizes of the tables that must stay small.
func (b *bencher) queueSizes(ctx context.Context) ([]TableSize, error) {
	rows, err := b.admin.Query(ctx, `
		SELECT c.relname, pg_total_relation_size(c.oid)
		FROM   pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
		WHERE  n.nspname = 'servo' AND c.relname IN ('waiting', 'ready_q', 'pool_q', 'leases', 'retry_q', 'heartbeats')
		ORDER  BY 1`)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, pgx.RowToStructByPos[TableSize])
}

// Statement is a line of pg_stat_statements.
type Statement struct {
	Name  string  `json:"name"`
	Calls int64   `json:"calls"`
	MS    float64 `json:"ms"`
	Rows  int64   `json:"rows"`
}

// statements returns the most expensive statements since the last reset, none without the extension.
func (b *bencher) statements(ctx context.Context) ([]Statement, error) {
	rows, err := b.admin.Query(ctx, `
		SELECT coalesce(substring(query FROM '-- name: (\w+)'), left(regexp_replace(query, '\s+', ' ', 'g'), 40)), sum(calls)::bigint,
		       sum(total_exec_time)::float8, sum(rows)::bigint
		FROM   pg_stat_statements JOIN pg_database d ON d.oid = dbid
		WHERE  d.datname = current_database()
		GROUP  BY 1 ORDER BY 3 DESC LIMIT 14`)
	if err != nil {
		return nil, fmt.Errorf("pg_stat_statements: %w", err)
	}
	return pgx.CollectRows(rows, pgx.RowToStructByPos[Statement])
}

func sleep(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
