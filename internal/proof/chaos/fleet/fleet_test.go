package fleet

import (
	"context"
	crand "crypto/rand"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"go.arco.dev/servo/internal/base/fault"
	"go.arco.dev/servo/internal/devkit/servotest"
	"go.arco.dev/servo/internal/devkit/servotest/verifytest"
	"go.arco.dev/servo/internal/domain/run"
	"go.arco.dev/servo/internal/store"
)

// What people set to make the test longer or to replay it.
const (
	seedVariable = "SERVO_CHAOS_SEED"
	smokeTime    = 12 * time.Second // of faults in make test; make soak sets a longer one
)

// Deadlines for what is stuck; no measures of speed.
const (
	drainPatience = 4 * time.Minute // once nothing breaks any more
	showPatience  = 2 * time.Minute // for what the schedule has not caused
)

func TestFleet(t *testing.T) {
	t.Parallel()
	total, seed := settings(t)
	w := newWorld(t, seed)
	t.Cleanup(func() { w.explain(t) })

	loading, enoughFaults := context.WithCancel(t.Context())
	watching, stopWatching := context.WithCancel(t.Context())
	var (
		beside sync.WaitGroup
		sent   *requests
		loaded = make(chan struct{})
	)
	defer beside.Wait()
	defer stopWatching()
	defer enoughFaults()
	beside.Go(func() { w.watchDuty(watching) })
	beside.Go(func() { sent = w.load(loading, t.Context()); close(loaded) })

	begun := time.Now()
	require.NoError(t, w.inflict(t.Context(), schedule(seed, total)))
	shown := w.showMissing(t, total > smokeTime)
	t.Logf("faults for %v", time.Since(begun).Round(time.Millisecond))
	w.journal.add("no more faults")
	enoughFaults()
	<-loaded
	for _, err := range sent.errs {
		t.Error(err)
	}
	w.drain(t)
	stopWatching()
	orderly := w.retire(t)
	w.audit(t, sent, orderly)
	t.Logf("what was put to the test: %+v", shown)
	w.auditLogs(t)
	db, err := store.Open(t.Context(), store.Options{URL: w.url})
	require.NoError(t, err)
	defer db.Close()
	verifytest.NoDeadlocks(t, w.postgres)
	t.Logf("verified: %+v", verifytest.Clean(t, &servotest.Database{Store: db, URL: w.url}))
}

func settings(t *testing.T) (total time.Duration, seed uint64) {
	t.Helper()
	var raw [8]byte
	_, _ = crand.Read(raw[:]) // never fails: crypto/rand panics instead
	total, seed = servotest.Duration(t, smokeTime), binary.BigEndian.Uint64(raw[:])>>1
	if text := os.Getenv(seedVariable); text != "" {
		var err error
		seed, err = strconv.ParseUint(text, 10, 64)
		require.NoError(t, err, seedVariable)
	}
	t.Logf("seed %d, %v: replay with %s=%d SERVO_SOAK=%v go test -v -count=1 -run TestFleet ./internal/proof/chaos/fleet", seed, total, seedVariable, seed, total)
	return total, seed
}

// proof is how often that has happened without which the test would show nothing.
type proof struct {
	Refused     int // ends of attempts that came too late
	Contested   int // those that came while another worker had the task
	Repeated    int // reports whose answer was lost
	Expired     int // leases
	Retried     int // attempts that failed
	Yielded     int
	Interrupted int
	DutyMoves   int // of admission, from one server to another
}

// missing are the faults that have not been inflicted, and those that would cause what
// has not happened yet. A report during a later attempt is required of long runs only: recovery is so
// quick that the later attempt has usually ended when a frozen worker reports.
func (p proof) missing(inflicted map[string]int, long bool) []faultKind {
	late := p.Refused
	if long {
		late = min(late, p.Contested)
	}
	var kinds []faultKind
	for _, kind := range slices.Compact(weighted()) {
		if inflicted[string(kind)] == 0 {
			kinds = append(kinds, kind)
		}
	}
	for _, want := range []struct {
		seen int
		by   faultKind
	}{
		{late, workerFreezes},
		{p.Repeated, answersGetLost},
		{p.Expired, workerDies},
		{p.Interrupted, workerLeaves},
		{p.DutyMoves, holderKilled},
		{min(p.Retried, p.Yielded), answersGetLost}, // they come with the load
	} {
		if want.seen == 0 && !slices.Contains(kinds, want.by) {
			kinds = append(kinds, want.by)
		}
	}
	return kinds
}

// prove counts.
func (w *world) prove(ctx context.Context) (proof, error) {
	p := proof{DutyMoves: w.moves()}
	notes, err := readLedgers(w.dir)
	if err != nil {
		return p, err
	}
	p.Contested = contested(notes)
	for _, n := range notes {
		if n.Refused == string(fault.Stale) && ends(n.Action) {
			p.Refused++
		}
		if n.Repeat {
			p.Repeated++
		}
	}
	return p, w.query(ctx, fmt.Sprintf(`
		SELECT count(*) FILTER (WHERE data->>'reason' IN ('%s', '%s')), count(*) FILTER (WHERE data->'error'->>'code' = '%s'),
		       count(*) FILTER (WHERE data->>'reason' = '%s'), count(*) FILTER (WHERE data->>'reason' = '%s')
		FROM   servo.run_events WHERE type IN ('task.returned', 'task.retrying')`,
		run.ReturnExpired, run.ReturnWorkerDied, servoNetworkError, run.ReturnYielded, run.ReturnInterrupted),
		&p.Expired, &p.Retried, &p.Yielded, &p.Interrupted)
}

// contested counts the ends of attempts that were answered, however, while a later attempt
// of the same task was under way.
func contested(notes []note) int {
	type span struct {
		attempt    int
		begun, end time.Time
	}
	spans := map[string][]span{}
	for _, n := range notes {
		switch of := spans[n.Task]; n.What {
		case noteBegin:
			spans[n.Task] = append(of, span{attempt: n.Attempt, begun: n.At})
		case noteResult, noteNone:
			for i := range of {
				if of[i].attempt == n.Attempt {
					of[i].end = n.At
				}
			}
		}
	}
	count := 0
	for _, n := range notes {
		if n.What == noteAnswer && ends(n.Action) && slices.ContainsFunc(spans[n.Task], func(s span) bool {
			return s.attempt > n.Attempt && s.begun.Before(n.At) && n.At.Before(s.end)
		}) {
			count++
		}
	}
	return count
}

// showMissing continues with faults until all that should be shown has happened.
func (w *world) showMissing(t *testing.T, long bool) proof {
	t.Helper()
	dice := rand.New(rand.NewPCG(w.seed, 1))
	for until := time.Now().Add(showPatience); ; {
		p, err := w.prove(t.Context())
		require.NoError(t, err)
		missing := p.missing(w.journal.inflicted(), long)
		if len(missing) == 0 {
			return p
		}
		require.True(t, time.Now().Before(until), "this has not happened: %+v", p)
		var more []mishap
		for _, kind := range missing {
			w.journal.add("%s, since something has not happened yet", kind)
			more = append(more, newMishap(dice, kind))
		}
		require.NoError(t, w.inflict(t.Context(), more))
	}
}

// drain waits until every run has ended.
func (w *world) drain(t *testing.T) {
	t.Helper()
	begun := time.Now()
	open := -1
	for ; open != 0 && time.Since(begun) < drainPatience; pause(t.Context(), 100*time.Millisecond) {
		for _, p := range w.processes() {
			require.NoError(t, p.failure())
		}
		require.NoError(t, w.query(t.Context(), `SELECT count(*) FROM servo.runs WHERE state < 10`, &open))
	}
	if open != 0 {
		t.Errorf("%d runs have not ended after %v without faults", open, drainPatience)
	}
	t.Logf("drained in %v", time.Since(begun).Round(time.Millisecond))
}

// retire ends everything in good order, workers first, and sees that nothing is left. It
// gives the lives that have ended like that.
func (w *world) retire(t *testing.T) map[string]bool {
	t.Helper()
	orderly := map[string]bool{}
	for _, p := range w.processes() {
		require.NoError(t, p.retire(exitGood))
		require.NoError(t, p.failure())
		require.Empty(t, p.leftovers())
		for _, l := range p.lives {
			orderly[l.name] = l.code() == exitGood
		}
	}
	return orderly
}

// audit compares what the workers have written down with the database.
func (w *world) audit(t *testing.T, sent *requests, orderly map[string]bool) {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), w.url)
	require.NoError(t, err)
	defer func() { _ = conn.Close(context.Background()) }()
	runs, err := readHistories(t.Context(), conn)
	require.NoError(t, err)
	notes, err := readLedgers(w.dir)
	require.NoError(t, err)
	for _, text := range auditTriggers(sent.sent, sent.runs, runs) {
		t.Error(text)
	}
	e := gather(notes, orderly)
	known := map[string]shape{}
	for _, s := range shapes() {
		known[s.name] = s
	}
	broken := 0
	count := map[string]int{"runs": len(runs), "notes": len(notes)}
	for _, h := range runs {
		if wrong := auditRun(h, known[h.pipeline], e); len(wrong) > 0 {
			if broken++; broken <= 3 {
				t.Errorf("run %s (%s of %s):\n  %s", h.id, h.pipeline, h.tenant, strings.Join(wrong, "\n  "))
			}
		}
		h.count(count)
	}
	require.LessOrEqual(t, broken, 3, "broken runs; the first are above")
	require.GreaterOrEqual(t, count["tasks"], enough*tasksEach)
	for _, n := range notes {
		if n.Refused != "" {
			count["refused "+n.Action+" as "+n.Refused]++
		}
		if n.What == noteLost {
			count["notified by a heartbeat that a lease is lost"]++
		}
	}
	t.Logf("faults %v", w.journal.inflicted())
	t.Logf("seen %v", count)
}

// count adds a run to a summary.
func (h *history) count(to map[string]int) {
	for _, s := range h.tasks {
		to["tasks"]++
		ends, _ := s.attempts(func(string, ...any) {})
		to["attempts"] += len(ends)
		for _, how := range ends {
			to[how]++
		}
	}
}

// auditLogs looks for what no process should ever log.
func (w *world) auditLogs(t *testing.T) {
	t.Helper()
	never := regexp.MustCompile(`(?m)^.*(DATA RACE|panic:|panicked|batch failed|rows instead of|something went wrong|a call failed).*$`)
	paths, err := filepath.Glob(filepath.Join(w.dir, "*.log"))
	require.NoError(t, err)
	for _, path := range paths {
		log, err := os.ReadFile(path)
		require.NoError(t, err)
		for _, line := range never.FindAll(log, 5) {
			t.Errorf("%s contains:\n%s", filepath.Base(path), line)
		}
	}
}

// explain prints what was done last if the test has failed.
func (w *world) explain(t *testing.T) {
	t.Helper()
	if !t.Failed() {
		return
	}
	t.Logf("FAILED with seed %d; the last actions:\n  %s", w.seed, strings.Join(w.journal.last(60), "\n  "))
	for _, p := range w.processes() {
		if l := p.current(); l != nil {
			if log, err := os.ReadFile(filepath.Join(w.dir, l.name+".log")); err == nil {
				t.Logf("the end of the log of %s:\n%s", l.name, log[max(0, len(log)-3000):])
			}
		}
	}
}
