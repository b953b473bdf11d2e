package chaos

import (
	"context"
	crand "crypto/rand"
	"encoding/binary"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"go.arco.dev/servo/internal/base/event"
	"go.arco.dev/servo/internal/base/id"
	"go.arco.dev/servo/internal/devkit/servotest"
	"go.arco.dev/servo/internal/devkit/servotest/verifytest"
	"go.arco.dev/servo/internal/domain/run"
)

func TestMain(m *testing.M) {
	if config := os.Getenv(serverVariable); config != "" {
		os.Exit(serve(config))
	}
	os.Exit(m.Run())
}

// What people set to make the test longer or to replay it.
const (
	seedVariable = "SERVO_CHAOS_SEED"
	smokeTime    = 15 * time.Second // of faults in make test; make soak sets a longer one
)

// drainTime is how long everything may take to end once nothing breaks any more. It is a
// deadline for what is stuck, not a measure of speed.
const drainTime = 4 * time.Minute

// longestWait is what the slowest move may have taken: two rounds of the reaper. What the
// rounds themselves take, some dozens of statements, is measured by the pace of the machine.
func longestWait(pace time.Duration) time.Duration { return 2*reaperTick + 10*pace }

func TestChaos(t *testing.T) {
	t.Parallel()
	total, seed := servotest.Duration(t, smokeTime), randomSeed()
	if text := os.Getenv(seedVariable); text != "" {
		var err error
		seed, err = strconv.ParseUint(text, 10, 64)
		require.NoError(t, err, seedVariable)
	}
	t.Logf("seed %d, %v: replay with %s=%d SERVO_SOAK=%v go test -v -count=1 -run TestChaos ./internal/proof/chaos", seed, total, seedVariable, seed, total)

	w := newWorld(t, seed)
	t.Cleanup(func() { w.explain(t) })
	watching, stop := context.WithCancel(t.Context())
	var watchers sync.WaitGroup
	defer watchers.Wait()
	defer stop()
	watchers.Go(func() { w.pace = w.probe(watching) })
	watchers.Go(func() { t.Logf("looked %d times at some runs in between", w.inspect(watching, t)) })
	require.NoError(t, w.inflict(t.Context(), schedule(seed, total)))
	w.drain(t)
	stop()
	watchers.Wait()
	for _, s := range w.servers {
		require.NoError(t, s.retire())
	}
	w.audit(t)
	w.verifyAll(t)
	verifytest.NoDeadlocks(t, w.postgres)
}

func randomSeed() uint64 {
	var raw [8]byte
	_, _ = crand.Read(raw[:]) // never fails: crypto/rand panics instead
	return binary.BigEndian.Uint64(raw[:]) >> 1
}

// explain prints what was done last if the test has failed.
func (w *world) explain(t *testing.T) {
	t.Helper()
	if !t.Failed() {
		return
	}
	t.Logf("FAILED with seed %d; the last actions:\n  %s", w.seed, strings.Join(w.journal.last(40), "\n  "))
	for _, s := range w.servers {
		if log, err := os.ReadFile(filepath.Join(w.dir, fmt.Sprintf("s%d-%d.log", s.index, s.life))); err == nil {
			t.Logf("the end of the log of s%d-%d:\n%s", s.index, s.life, log[max(0, len(log)-4000):])
		}
	}
}

// drain ends the faults and waits until every run has ended.
func (w *world) drain(t *testing.T) {
	t.Helper()
	for _, s := range w.servers {
		s.send(wordDrain)
	}
	w.journal.add("drain", "no more faults, no more runs")
	begun := time.Now()
	open := -1
	for time.Since(begun) < drainTime && open != 0 {
		quiet := true
		for _, s := range w.servers {
			require.NoError(t, s.failure())
			quiet = quiet && s.isQuiet()
		}
		if n := w.openRuns(t); quiet { // else there may be more
			open = n
		}
		pause(t.Context(), 200*time.Millisecond)
	}
	if open != 0 {
		t.Errorf("%d runs have not ended after %v without faults", open, drainTime)
	}
	t.Logf("drained in %v", time.Since(begun).Round(time.Millisecond))
}

func (w *world) openRuns(t *testing.T) int {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), w.url)
	require.NoError(t, err)
	defer func() { _ = conn.Close(context.Background()) }()
	var open int
	require.NoError(t, conn.QueryRow(t.Context(), `SELECT count(*) FROM servo.runs WHERE state < 10`).Scan(&open))
	return open
}

// audit compares the answers that the workers got with the database, run by run.
func (w *world) audit(t *testing.T) {
	t.Helper()
	answers, err := readLedgers(w.dir)
	require.NoError(t, err)
	require.NotEmpty(t, answers, "at least one call was answered")
	conn, err := pgx.Connect(t.Context(), w.url)
	require.NoError(t, err)
	defer func() { _ = conn.Close(context.Background()) }()

	byRun := map[id.Run][]entry{}
	for _, e := range answers {
		if e.Run == (id.Run{}) && !e.accepted() {
			t.Errorf("%s of %s was answered %s%s", e.Kind, e.Who, e.Refused, e.Broken)
		}
		if e.Run != (id.Run{}) {
			byRun[e.Run] = append(byRun[e.Run], e)
		}
	}
	for _, text := range auditKeys(answers) {
		t.Error(text)
	}
	sum := newTally()
	broken := 0
	err = eachHistory(t.Context(), conn, func(h history) {
		sum.add(h)
		wrong := auditRun(h, byRun[h.run])
		delete(byRun, h.run)
		if len(wrong) == 0 {
			return
		}
		if broken++; broken <= 3 {
			t.Errorf("run %s:\n  %s\n%s", h.run, strings.Join(wrong, "\n  "), strings.Join(h.describe(), "\n"))
		}
	})
	require.NoError(t, err)
	require.LessOrEqual(t, broken, 3, "broken runs; the first are above")
	for missing, entries := range byRun {
		for _, e := range entries {
			t.Errorf("run %s does not exist, and %s was answered: %+v", missing, e.Who, e)
		}
	}
	w.auditLogs(t)
	w.auditWaits(t, conn)
	w.report(t, answers, sum)
}

// auditLogs looks for what no server should ever log.
func (w *world) auditLogs(t *testing.T) {
	t.Helper()
	never := regexp.MustCompile(`(?m)^.*(DATA RACE|panic:|batch failed|rows instead of).*$`)
	paths, err := filepath.Glob(filepath.Join(w.dir, "*.log"))
	require.NoError(t, err)
	for _, path := range paths {
		log, err := os.ReadFile(path)
		require.NoError(t, err)
		if found := never.FindAll(log, 5); found != nil {
			t.Errorf("%s contains:\n%s", filepath.Base(path), found)
		}
	}
}

// auditWaits looks for tasks that were stuck.
func (w *world) auditWaits(t *testing.T, conn *pgx.Conn) {
	t.Helper()
	waits, err := measureWaits(t.Context(), conn, w.excused)
	require.NoError(t, err)
	bound := longestWait(w.pace)
	for _, what := range []string{"lease", "retry", "ready"} {
		l := waits[what]
		t.Logf("%s: %d late\n  the longest %s\n  the worst %s", what, l.count, l.longest, l.worst)
	}
	t.Logf("the bound is %v, and %v more for each silent server; the machine's pace was %v", bound, silenceTimeout, w.pace)
	for _, cause := range []string{causeDatabase, causeServers, causeMachine, causeSilence} {
		t.Logf("%v: %s", w.excused.total(cause).Round(time.Millisecond), cause)
	}
	require.NotZero(t, waits["lease"].count, "leases have expired")
	require.Less(t, waits["lease"].worst.over(), bound, "%s", waits["lease"].worst)
	require.Less(t, waits["retry"].worst.over(), bound, "%s", waits["retry"].worst)
}

// tally counts what has happened.
type tally struct {
	runs   map[string]int
	tasks  map[string]int
	events map[event.Type]int
}

func newTally() *tally {
	return &tally{runs: map[string]int{}, tasks: map[string]int{}, events: map[event.Type]int{}}
}

func (c *tally) add(h history) {
	c.runs["all"]++
	c.runs[h.state.String()]++
	for _, row := range h.tasks {
		c.tasks["all"]++
		c.tasks[row.state.String()]++
	}
	for _, e := range h.events {
		c.events[e.Body.EventType()]++
	}
}

// report prints what the test has seen, and fails if it saw too little to mean anything.
func (w *world) report(t *testing.T, answers []entry, sum *tally) {
	t.Helper()
	counts := map[string]int{}
	for _, e := range answers {
		name := e.Kind
		if e.Action != "" {
			name = e.Action
		}
		if e.Refused != "" {
			name += " refused as " + e.Refused
		}
		if e.Late {
			name += " too late"
		}
		if e.Repeat {
			name += " again"
		}
		counts[name]++
	}
	var before, after int
	for _, s := range w.servers {
		b, a := s.wire.cuts()
		before, after = before+b, after+a
	}
	t.Logf("runs %v", sum.runs)
	t.Logf("tasks %v", sum.tasks)
	t.Logf("events %v", sum.events)
	t.Logf("answers %v", counts)
	t.Logf("faults %v, cuts %d before and %d after COMMIT", w.journal.counts(), before, after)
	require.NotZero(t, sum.runs[run.RunSucceeded.String()], "runs have succeeded")
	require.NotZero(t, sum.events["task.succeeded"], "tasks have succeeded")
}
