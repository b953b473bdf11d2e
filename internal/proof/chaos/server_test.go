package chaos

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/uuid"

	"go.arco.dev/servo/internal/base/event"
	"go.arco.dev/servo/internal/base/fault"
	"go.arco.dev/servo/internal/base/id"
	"go.arco.dev/servo/internal/devkit/servotest/ledger"
	"go.arco.dev/servo/internal/domain/run"
	"go.arco.dev/servo/internal/engine"
	"go.arco.dev/servo/internal/loops/admission"
	"go.arco.dev/servo/internal/loops/reaper"
	"go.arco.dev/servo/internal/store"
)

// serverVariable turns the test binary into a server; its value is a serverConfig.
const serverVariable = "SERVO_CHAOS_SERVER"

// serverConfig is the configuration of a server process.
type serverConfig struct {
	Name     string      `json:"name"` // of this life: a restarted server has another
	Database string      `json:"database"`
	Ledger   string      `json:"ledger"`
	Seed     uint64      `json:"seed"` // of the schedule, the same for all
	Life     uint64      `json:"life"` // sets this life's dice
	Epoch    time.Time   `json:"epoch"`
	Tenants  []id.Tenant `json:"tenants"`
}

// Words between the test and a server, one a line.
const (
	wordReady = "ready" // from the server: it works
	wordDrain = "drain" // to the server: no new runs, no more mischief
	wordQuiet = "quiet" // from the server: whatever it asked for was answered, it asks for nothing new
)

// server is a server process: the engine with its loops, and workers that call it.
type server struct {
	serverConfig

	engine   *engine.Engine
	ledger   *ledger.Ledger
	log      *slog.Logger
	draining atomic.Bool
}

// serve is the life of a server process. It ends when its standard input does, so it never
// outlives the test.
func serve(text string) int {
	log := slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn}))
	s := &server{log: log}
	if err := json.Unmarshal([]byte(text), &s.serverConfig); err != nil {
		log.Error("configuration", "error", err)
		return 2
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	go s.listen(cancel)
	if err := s.live(ctx); err != nil && ctx.Err() == nil {
		log.Error("server failed", "error", err)
		return 1
	}
	return 0
}

// listen receives the lines of the test. At their end the server has half a
// minute to stop.
func (s *server) listen(stop func()) {
	words := bufio.NewScanner(os.Stdin)
	for words.Scan() {
		if words.Text() == wordDrain {
			s.draining.Store(true)
		}
	}
	time.AfterFunc(30*time.Second, func() {
		s.log.Error("server does not stop")
		os.Exit(3)
	})
	stop()
}

func (s *server) live(ctx context.Context) error {
	var err error
	if s.ledger, err = ledger.Open(s.Ledger); err != nil {
		return err
	}
	db, err := s.open(ctx)
	if err != nil {
		return err
	}
	defer db.Close()
	s.engine = engine.New(db, engine.Config{
		Lease: leaseTime, HeartbeatTimeout: heartbeatTimeout, CallTimeout: callTimeout, PollEvery: 500 * time.Millisecond,
	}, s.log)
	admitting := admission.Start(db, s.engine, admission.Config{Holder: s.Name, Logger: s.log})
	reaping := reaper.Start(db, s.engine, reaper.Config{Logger: s.log})
	var busy sync.WaitGroup
	for i := range workers {
		w := &worker{server: s, name: fmt.Sprintf("%s-w%d", s.Name, i), dice: rand.New(rand.NewPCG(s.Life, uint64(i)))}
		busy.Go(func() { w.work(ctx) })
	}
	busy.Go(func() { s.triggerSlots(ctx) })
	if _, err := fmt.Fprintln(os.Stdout, wordReady); err != nil {
		return err
	}
	busy.Wait()
	ending, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
	defer cancel()
	reaping.Stop()
	err = admitting.Stop(ending)
	s.engine.Stop()
	return err
}

// open waits for PostgreSQL, which may be down at the moment, as a server would.
func (s *server) open(ctx context.Context) (*store.Store, error) {
	for {
		db, err := store.Open(ctx, store.Options{URL: s.Database, MaxConns: connsEach, Logger: s.log})
		if err == nil {
			if err = db.Prepare(ctx); err == nil {
				return db, nil
			}
			db.Close()
		}
		s.log.Warn("no database yet", "error", err)
		if pause(ctx, 100*time.Millisecond); ctx.Err() != nil {
			return nil, ctx.Err()
		}
	}
}

func pause(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}

// persist calls until there is an answer: a fault that asks for a retry is none. Each try
// has a deadline of its own, often too short.
func (s *server) persist(ctx context.Context, dice *rand.Rand, call func(ctx context.Context) error) error {
	for {
		try, cancel := context.WithTimeout(ctx, time.Second+time.Duration(dice.Int64N(int64(5*time.Second))))
		err := call(try)
		cancel()
		if !fault.Is(err, fault.Unavailable) || ctx.Err() != nil {
			return err
		}
		pause(ctx, time.Duration(dice.Int64N(int64(200*time.Millisecond))))
	}
}

// note writes an answer into the ledger. Without it the process must not continue.
func (s *server) note(e entry, err error) entry {
	e.At = time.Now()
	if err != nil {
		if code := fault.CodeOf(err); code != fault.Internal {
			e.Refused = string(code)
		} else {
			e.Broken = err.Error()
		}
	}
	if err := s.ledger.Write(e); err != nil {
		s.log.Error("ledger", "error", err)
		os.Exit(4)
	}
	return e
}

// triggerSlots makes the runs, until the server drains. All servers trigger the same slots
// with the same idempotency keys, and now and then one of their own without a key.
func (s *server) triggerSlots(ctx context.Context) {
	dice := rand.New(rand.NewPCG(s.Life, 1<<32))
	var calls sync.WaitGroup
	defer func() {
		calls.Wait()
		_, _ = fmt.Fprintln(os.Stdout, wordQuiet) // the test may be gone
	}()
	for last := int64(-1); ctx.Err() == nil && !s.draining.Load(); {
		slot := int64(time.Since(s.Epoch) / slotEvery)
		if slot == last {
			pause(ctx, time.Until(s.Epoch.Add(time.Duration(slot+1)*slotEvery)))
			continue
		}
		last = slot
		key := fmt.Sprintf("slot-%d", slot)
		switch dice.IntN(10) {
		case 0:
			key = "" // one of its own
		case 1, 2, 3:
			continue // left to the others
		}
		life := rand.New(rand.NewPCG(dice.Uint64(), dice.Uint64()))
		calls.Go(func() { s.trigger(ctx, life, slot, key) })
	}
}

// trigger makes one run, and cancels a few of them a little later.
func (s *server) trigger(ctx context.Context, dice *rand.Rand, slot int64, key string) {
	of := shapeOf(s.Seed, slot, s.Tenants)
	e := entry{Who: s.Name, Kind: kindTrigger, Trace: uuid.NewString(), Tenant: of.tenant, Key: key}
	request := engine.Trigger{
		Tenant: of.tenant, Workspace: of.workspace, Pipeline: of.pipeline, IdempotencyKey: key, Meta: event.Meta{Actor: s.Name, Trace: e.Trace},
	}
	err := s.persist(ctx, dice, func(ctx context.Context) error {
		triggered, err := s.engine.TriggerRun(ctx, request)
		e.Run, e.Repeat = triggered.Run, triggered.Repeat
		return err
	})
	if ctx.Err() != nil {
		return
	}
	if e = s.note(e, err); !e.accepted() || dice.IntN(100) >= 8 {
		return
	}
	pause(ctx, time.Duration(dice.Int64N(int64(3*time.Second))))
	c := entry{Who: s.Name, Kind: kindCancel, Trace: uuid.NewString(), Tenant: e.Tenant, Run: e.Run}
	err = s.persist(ctx, dice, func(ctx context.Context) error {
		cancelled, err := s.engine.CancelRun(ctx, engine.Cancel{
			Tenant: e.Tenant, Run: e.Run, Reason: "chaos", Meta: event.Meta{Actor: s.Name, Trace: c.Trace},
		})
		c.RunState, c.Repeat = cancelled.State, cancelled.Repeat
		return err
	})
	if ctx.Err() == nil {
		s.note(c, err)
	}
}

// cancelled is what a worker reports when it was asked to stop.
func cancelled() engine.Fail { return engine.Fail{Failure: run.Failure{Code: run.CodeCancelled}} }
