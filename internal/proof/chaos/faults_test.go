package chaos

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"go.arco.dev/servo/internal/devkit/servotest"
)

// faultKind is something that goes wrong.
type faultKind string

const (
	faultKill  faultKind = "kill"  // SIGKILL to a server, started again after a while
	faultStop  faultKind = "stop"  // SIGSTOP to a server, SIGCONT after its leases are over
	faultCrash faultKind = "crash" // PostgreSQL stopped at once, started again after a while
	faultCut   faultKind = "cut"   // connections of a server broken at COMMIT
	faultDrop  faultKind = "drop"  // all connections of a server broken, and no new ones for a while
	faultStall faultKind = "stall" // nothing passes between a server and PostgreSQL
)

// mishap is one entry of the schedule.
type mishap struct {
	After  time.Duration // since the one before
	Kind   faultKind
	Server int
	For    time.Duration // how long it lasts

	// Of cuts at COMMIT: which of them, where, and the dice that choose.
	Percent int
	Fate    servotest.Fate
	Dice    uint64
}

func (f mishap) String() string {
	switch f.Kind {
	case faultCrash:
		return fmt.Sprintf("crash PostgreSQL for %v", f.For)
	case faultCut:
		side := "before"
		if f.Fate == servotest.CutAfter {
			side = "after"
		}
		return fmt.Sprintf("cut server %d off %s %d %% of its COMMITs for %v", f.Server, side, f.Percent, f.For)
	case faultDrop:
		return fmt.Sprintf("drop the connections of server %d, none for %v", f.Server, f.For)
	default:
		return fmt.Sprintf("%s server %d for %v", f.Kind, f.Server, f.For)
	}
}

// schedule is a function of the seed alone.
func schedule(seed uint64, total time.Duration) []mishap {
	dice := rand.New(rand.NewPCG(seed, 0))
	between := func(least, most time.Duration) time.Duration {
		return (least + time.Duration(dice.Int64N(int64(most-least)))).Round(10 * time.Millisecond)
	}
	var faults []mishap
	for at := time.Duration(0); ; {
		f := mishap{After: between(300*time.Millisecond, 1800*time.Millisecond), Server: dice.IntN(servers)}
		switch roll := dice.IntN(100); {
		case roll < 22:
			f.Kind, f.For = faultKill, between(0, 1500*time.Millisecond)
		case roll < 36:
			f.Kind, f.For = faultStop, between(leaseTime+500*time.Millisecond, leaseTime+5*time.Second)
		case roll < 46:
			f.Kind, f.For = faultCrash, between(0, 5*time.Second)
		case roll < 82:
			f.Kind, f.For, f.Percent, f.Dice = faultCut, between(500*time.Millisecond, 5*time.Second), 3+dice.IntN(50), dice.Uint64()
			f.Fate = []servotest.Fate{servotest.CutBefore, servotest.CutAfter}[dice.IntN(2)]
		case roll < 90:
			f.Kind, f.For = faultDrop, between(0, 3*time.Second)
		default:
			f.Kind, f.For = faultStall, between(500*time.Millisecond, 4*time.Second)
		}
		if at += f.After; at > total {
			return faults
		}
		faults = append(faults, f)
	}
}

// journal lists what was done, to understand a failure.
type journal struct {
	mu    sync.Mutex
	lines []string
	count map[string]int
}

func newJournal() *journal { return &journal{count: map[string]int{}} }

func (j *journal) add(what, format string, args ...any) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.count[what]++
	j.lines = append(j.lines, time.Now().UTC().Format("15:04:05.000 ")+fmt.Sprintf(format, args...))
}

func (j *journal) last(n int) []string {
	j.mu.Lock()
	defer j.mu.Unlock()
	return slices.Clone(j.lines[max(0, len(j.lines)-n):])
}

func (j *journal) counts() map[string]int {
	j.mu.Lock()
	defer j.mu.Unlock()
	all := map[string]int{}
	for what, n := range j.count {
		all[what] = n
	}
	return all
}

// inflict goes through a schedule. Faults that last do so beside the next ones; one that
// finds its target down already is left out. It returns when all have passed.
func (w *world) inflict(ctx context.Context, faults []mishap) error {
	var (
		lasting sync.WaitGroup
		mu      sync.Mutex
		failed  error
	)
	begin := func(apply func(context.Context, mishap) error, f mishap) {
		lasting.Go(func() {
			if err := apply(ctx, f); err != nil {
				mu.Lock()
				defer mu.Unlock()
				failed = fmt.Errorf("%s: %w", f, err)
			}
		})
	}
	for _, f := range faults {
		if pause(ctx, f.After); ctx.Err() != nil {
			break
		}
		s := w.servers[f.Server]
		switch f.Kind {
		case faultKill:
			begin(s.kill, f)
		case faultStop:
			begin(s.freeze, f)
		case faultCrash:
			begin(w.crash, f)
		case faultCut:
			begin(s.cut, f)
		case faultDrop:
			begin(s.cutOff, f)
		case faultStall:
			begin(s.silence, f)
		}
	}
	lasting.Wait()
	mu.Lock()
	defer mu.Unlock()
	return failed
}
