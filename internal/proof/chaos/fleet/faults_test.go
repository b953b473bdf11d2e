package fleet

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// faultKind is something that goes wrong.
type faultKind string

// Of workers: in the middle of a task, if there is one, or wherever they are.
const (
	workerDies    faultKind = "worker dies"    // SIGKILL to itself between a result and its report
	workerFreezes faultKind = "worker freezes" // SIGSTOP to itself there, SIGCONT when the lease is over
	workerLeaves  faultKind = "worker leaves"  // SIGTERM in the middle of a task
	workerKilled  faultKind = "worker killed"  // SIGKILL at any moment
	workerStopped faultKind = "worker stopped" // SIGSTOP at any moment, SIGCONT when its leases are over
)

// Of servers, the database and the lines between workers and servers.
const (
	serverKilled   faultKind = "server killed"
	serverStopped  faultKind = "server stopped"
	serverLeaves   faultKind = "server leaves"    // SIGTERM: it drains
	holderKilled   faultKind = "holder killed"    // the server that admits
	databaseCrash  faultKind = "database crashes" // stopped at once, started again after a while
	lineCut        faultKind = "line cut"         // all connections of a server, and no new ones for a while
	lineStalls     faultKind = "line stalls"      // nothing passes, nothing is lost
	answersGetLost faultKind = "answers get lost" // what a server answers, until the line is cut
)

// weighted are all kinds, each as often as it is likely.
func weighted() []faultKind {
	var all []faultKind
	for kind, weight := range map[faultKind]int{
		workerDies: 2, workerFreezes: 3, workerLeaves: 2, workerKilled: 2, workerStopped: 2,
		serverKilled: 2, serverStopped: 1, serverLeaves: 2, holderKilled: 1, databaseCrash: 1, lineCut: 2, lineStalls: 1, answersGetLost: 4,
	} {
		all = append(all, slices.Repeat([]faultKind{kind}, weight)...)
	}
	slices.Sort(all)
	return all
}

// mishap is one entry of the schedule.
type mishap struct {
	After time.Duration // since the one before
	Kind  faultKind
	At    int           // which worker or server
	For   time.Duration // how long it lasts
}

func (m mishap) String() string { return fmt.Sprintf("%s (%d, %v)", m.Kind, m.At, m.For) }

// newMishap is a function of the dice alone.
func newMishap(dice *rand.Rand, kind faultKind) mishap {
	between := func(least, most time.Duration) time.Duration {
		return (least + time.Duration(dice.Int64N(int64(most-least)))).Round(10 * time.Millisecond)
	}
	m := mishap{After: between(400*time.Millisecond, 1500*time.Millisecond), Kind: kind, At: dice.IntN(servers)}
	switch kind {
	case workerDies, workerLeaves, workerKilled:
		m.At, m.For = dice.IntN(workers), between(0, time.Second)
	case workerFreezes, workerStopped:
		m.At, m.For = dice.IntN(workers), between(leaseTime+1500*time.Millisecond, leaseTime+3*time.Second)
	case serverKilled, serverLeaves, holderKilled:
		m.For = between(0, time.Second)
	case serverStopped:
		m.For = between(500*time.Millisecond, 4*time.Second)
	case databaseCrash:
		m.For = between(0, 2*time.Second)
	case lineCut:
		m.For = between(0, 1500*time.Millisecond)
	case lineStalls:
		m.For = between(500*time.Millisecond, 3*time.Second)
	case answersGetLost:
		m.For = between(100*time.Millisecond, time.Second)
	}
	return m
}

// schedule is a function of the seed alone: every kind once, then whatever comes.
func schedule(seed uint64, total time.Duration) []mishap {
	dice := rand.New(rand.NewPCG(seed, 0))
	likely := weighted()
	kinds := slices.Compact(slices.Clone(likely))
	dice.Shuffle(len(kinds), func(i, j int) { kinds[i], kinds[j] = kinds[j], kinds[i] })
	var faults []mishap
	for at := time.Duration(0); ; {
		kind := likely[dice.IntN(len(likely))]
		if len(faults) < len(kinds) {
			kind = kinds[len(faults)]
		}
		m := newMishap(dice, kind)
		if at += m.After; at > total && len(faults) >= len(kinds) {
			return faults
		}
		faults = append(faults, m)
	}
}

// inflict goes through a schedule. Faults that last do so beside the next ones; one that
// finds its target in trouble already is left out. It returns when all have passed.
func (w *world) inflict(ctx context.Context, faults []mishap) error {
	var (
		lasting sync.WaitGroup
		mu      sync.Mutex
		failed  error
	)
	for _, m := range faults {
		if pause(ctx, m.After); ctx.Err() != nil {
			break
		}
		lasting.Go(func() {
			if err := w.apply(ctx, m); err != nil {
				mu.Lock()
				defer mu.Unlock()
				failed = fmt.Errorf("%s: %w", m, err)
			}
		})
	}
	lasting.Wait()
	mu.Lock()
	defer mu.Unlock()
	return failed
}

func (w *world) apply(ctx context.Context, m mishap) error {
	switch m.Kind {
	case databaseCrash:
		return w.exclusive(&w.crashing, m, func() error { return w.crash(ctx, m) })
	case lineCut, lineStalls, answersGetLost:
		line := w.lines[m.At]
		return w.exclusive(&line.busy, m, func() error { line.trouble(ctx, m); return nil })
	case holderKilled:
		holder, err := w.holder(ctx)
		if err != nil || holder < 0 { // the database does not answer, or no server admits at the moment
			w.journal.add("%s is left out: no server is known to admit", m)
			return nil
		}
		m.At = holder
		p := w.servers[holder]
		return w.exclusive(&p.busy, m, func() error { return w.afflict(ctx, p, m) })
	case serverKilled, serverStopped, serverLeaves:
		p := w.servers[m.At]
		return w.exclusive(&p.busy, m, func() error { return w.afflict(ctx, p, m) })
	default:
		p := w.workers[m.At]
		return w.exclusive(&p.busy, m, func() error { return w.afflict(ctx, p, m) })
	}
}

// exclusive does something to a target unless something else is being done to it.
func (w *world) exclusive(busy *sync.Mutex, m mishap, do func() error) error {
	if !busy.TryLock() {
		w.journal.add("%s is left out: there is trouble already", m)
		return nil
	}
	defer busy.Unlock()
	w.journal.add("%s", m)
	err := do()
	switch {
	case errors.Is(err, errNotCaught):
		w.journal.add("%s has come to nothing: no task began", m)
		return nil
	case err == nil:
		w.journal.count(m.Kind)
		w.journal.add("%s is over", m)
	}
	return err
}

// errNotCaught reports that a fault did not happen because there was no next task.
var errNotCaught = errors.New("no task began")

// afflict does something to a process, and starts it again if it has ended.
func (w *world) afflict(ctx context.Context, p *process, m mishap) error {
	switch m.Kind {
	case workerKilled, serverKilled, holderKilled:
		p.kill()
	case serverLeaves:
		if err := p.retire(exitGood); err != nil {
			return err
		}
	case workerStopped, serverStopped:
		p.signal(syscall.SIGSTOP)
		pause(ctx, m.For)
		p.signal(syscall.SIGCONT)
		return nil
	case workerFreezes:
		if _, caught := p.lure(ctx, wordFreeze); !caught {
			return errNotCaught
		}
		pause(ctx, m.For)
		p.signal(syscall.SIGCONT)
		return nil
	case workerDies:
		l, caught := p.lure(ctx, wordDie)
		if !caught {
			return errNotCaught
		}
		<-l.exited
	case workerLeaves:
		l, caught := p.lure(ctx, wordLeave)
		if !caught {
			return errNotCaught
		}
		if err := p.awaitEnd(l, exitGood, exitUnsaid); err != nil {
			return err
		}
	default:
		return fmt.Errorf("%s is nothing that happens to processes", m.Kind)
	}
	pause(ctx, m.For)
	return p.start()
}

// line is the way to one server, with its troubles.
type line struct {
	*relay

	busy sync.Mutex
}

func (l *line) trouble(ctx context.Context, m mishap) {
	switch m.Kind {
	case lineCut:
		l.set(func() { l.refuse = true })
		l.cut()
		pause(ctx, m.For)
		l.set(func() { l.refuse = false })
	case answersGetLost:
		l.set(func() { l.mute = true })
		pause(ctx, m.For)
		l.cut()
		l.set(func() { l.mute = false })
	default:
		l.set(func() { l.resume = time.Now().Add(m.For) })
		pause(ctx, m.For)
	}
}

// journal lists what was done, to understand a failure.
type journal struct {
	mu    sync.Mutex
	lines []string
	done  map[string]int
}

func newJournal() *journal { return &journal{done: map[string]int{}} }

func (j *journal) add(format string, args ...any) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.lines = append(j.lines, time.Now().UTC().Format("15:04:05.000 ")+fmt.Sprintf(format, args...))
}

func (j *journal) count(kind faultKind) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.done[string(kind)]++
}

func (j *journal) last(n int) []string {
	j.mu.Lock()
	defer j.mu.Unlock()
	return slices.Clone(j.lines[max(0, len(j.lines)-n):])
}

// inflicted is how often each kind of fault has happened.
func (j *journal) inflicted() map[string]int {
	j.mu.Lock()
	defer j.mu.Unlock()
	return maps.Clone(j.done)
}

func TestSchedule(t *testing.T) {
	t.Parallel()

	t.Run("a seed fixes everything, and every kind is there", func(t *testing.T) {
		t.Parallel()
		one := schedule(7, time.Minute)
		require.Equal(t, one, schedule(7, time.Minute))
		require.NotEqual(t, one, schedule(8, time.Minute))
		for _, kind := range weighted() {
			require.True(t, slices.ContainsFunc(one, func(m mishap) bool { return m.Kind == kind }), kind)
		}
		require.Len(t, schedule(7, 0), len(slices.Compact(weighted())), "every kind once, if there is time for nothing else")
	})
}
