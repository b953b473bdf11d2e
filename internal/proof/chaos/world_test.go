package chaos

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"go.arco.dev/servo/internal/base/event"
	"go.arco.dev/servo/internal/base/id"
	"go.arco.dev/servo/internal/devkit/devpg"
	"go.arco.dev/servo/internal/devkit/servotest/ledger"
	"go.arco.dev/servo/internal/domain/tenant"
	"go.arco.dev/servo/internal/engine"
	"go.arco.dev/servo/internal/store"
)

// world is what the faults happen to: PostgreSQL and the servers on it.
type world struct {
	seed     uint64
	dir      string // ledgers and logs
	url      string // straight to the database, past all proxies
	epoch    time.Time
	tenants  []id.Tenant
	postgres *devpg.Server
	servers  []*process
	journal  *journal
	excused  *windows
	pace     time.Duration // of the machine, once it was measured

	crashing sync.Mutex
	mu       sync.Mutex
	reasons  [servers]int // why each server cannot work
}

// Causes of windows.
const (
	causeDatabase = "PostgreSQL is down"
	causeServers  = "no server is alive"
	causeMachine  = "the machine is too busy"
	causeSilence  = "a silent server may hold locks"
)

const database = "chaos"

// startTimeout is how long a server may take until it works, PostgreSQL's own start and a
// machine with better things to do included.
const startTimeout = 2 * time.Minute

// newWorld starts PostgreSQL, makes the database with its tenants, and starts the servers.
func newWorld(t *testing.T, seed uint64) *world {
	t.Helper()
	postgres, err := devpg.Start(t.Context(), devpg.Options{Settings: map[string]string{"shared_buffers": "64MB", "log_min_messages": "log"}})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, postgres.Stop(context.Background())) })
	w := &world{
		seed: seed, dir: t.TempDir(), url: postgres.URL(database), postgres: postgres,
		journal: newJournal(), excused: newWindows(),
	}
	execute(t, postgres.URL(""), `CREATE DATABASE `+database)
	w.populate(t)
	w.epoch = time.Now()
	for i := range servers {
		s := &process{world: w, index: i, wire: newWire(t, "postgres://servo@"+postgres.TCPAddr()+"/"+database)}
		t.Cleanup(s.end)
		w.servers = append(w.servers, s)
		w.impair(i)
		require.NoError(t, s.start(t.Context()))
	}
	return w
}

// populate migrates the database, makes tenants and deploys to each.
func (w *world) populate(t *testing.T) {
	t.Helper()
	db, err := store.Open(t.Context(), store.Options{URL: w.url})
	require.NoError(t, err)
	defer db.Close()
	_, err = db.Migrate(t.Context())
	require.NoError(t, err)
	execute(t, w.url, watchSQL)
	e := engine.New(db, engine.Config{Quotas: tenant.NoLimits(), QueueWithoutWorkers: 5000}, nil)
	defer e.Stop()
	deployed, err := manifest()
	require.NoError(t, err)
	for i := range tenants {
		created, err := e.CreateTenant(t.Context(), fmt.Sprintf("tenant-%d", i), event.Meta{Actor: "chaos"})
		require.NoError(t, err)
		_, err = e.Deploy(t.Context(), created, "default", deployed, event.Meta{Actor: "chaos"})
		require.NoError(t, err)
		w.tenants = append(w.tenants, created)
	}
	_, err = e.CreateWorkspace(t.Context(), w.tenants[0], wide, event.Meta{Actor: "chaos"})
	require.NoError(t, err)
	deployed, err = wideManifest()
	require.NoError(t, err)
	_, err = e.Deploy(t.Context(), w.tenants[0], wide, deployed, event.Meta{Actor: "chaos"})
	require.NoError(t, err)
}

func execute(t *testing.T, url, sql string) {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), url)
	require.NoError(t, err)
	defer func() { _ = conn.Close(context.Background()) }()
	_, err = conn.Exec(t.Context(), sql)
	require.NoError(t, err)
}

// crash stops PostgreSQL as a crash would and starts it again.
func (w *world) crash(ctx context.Context, f mishap) error {
	if !w.crashing.TryLock() {
		w.journal.add("left out", "%s: it is down", f)
		return nil
	}
	defer w.crashing.Unlock()
	w.journal.add("crash", "%s", f)
	w.excused.begin(causeDatabase, time.Now())
	if err := w.postgres.StopImmediate(ctx); err != nil {
		return err
	}
	pause(ctx, f.For)
	if err := w.postgres.Restart(context.WithoutCancel(ctx)); err != nil {
		return err
	}
	w.excused.end(causeDatabase, time.Now())
	w.journal.add("recovery", "PostgreSQL is back")
	return nil
}

// impair takes note that a server cannot work, and for how many reasons; recover takes one
// back.
func (w *world) impair(server int) { w.weigh(server, 1) }

func (w *world) recover(server int) { w.weigh(server, -1) }

func (w *world) weigh(server, reasons int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.reasons[server] += reasons
	if slices.Contains(w.reasons[:], 0) {
		w.excused.end(causeServers, time.Now())
	} else {
		w.excused.begin(causeServers, time.Now())
	}
}

// fallSilent takes note that a server may have stopped in the middle of a transaction. Its
// locks are its own until PostgreSQL gives up on it.
func (w *world) fallSilent(server int) {
	now := time.Now()
	w.excused.add(causeSilence, span{now, now.Add(silenceTimeout)})
}

// process is a place for a server: its wire stays, its processes come and go.
type process struct {
	world *world
	index int
	wire  *wire

	busy    sync.Mutex // one fault of the process at a time
	cutting sync.Mutex // one way to cut its COMMITs at a time

	mu     sync.Mutex
	life   int
	cmd    *exec.Cmd
	words  io.WriteCloser // the orders to the server
	quiet  chan struct{}  // closed when the server asks for nothing new
	exited chan struct{}
	err    error // how it ended
	asked  bool  // its end is ours
}

// start begins a life and waits until the server works.
func (s *process) start(ctx context.Context) error {
	program, err := os.Executable()
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.life++
	name := fmt.Sprintf("s%d-%d", s.index, s.life)
	config, err := json.Marshal(serverConfig{
		Name: name, Database: s.wire.url,
		Ledger: filepath.Join(s.world.dir, name+ledger.Suffix), Seed: s.world.seed,
		Life: s.world.seed ^ uint64(s.index)<<40 ^ uint64(s.life)<<48, Epoch: s.world.epoch, Tenants: s.world.tenants,
	})
	if err != nil {
		return err
	}
	log, err := os.Create(filepath.Join(s.world.dir, name+".log"))
	if err != nil {
		return err
	}
	defer log.Close()
	s.cmd = exec.Command(program)
	s.cmd.Env = append(os.Environ(), serverVariable+"="+string(config), "GORACE=halt_on_error=1")
	// In a group of its own: if the test dies, the kernel wakes stopped orphans with SIGHUP.
	s.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	s.cmd.Stderr = log
	s.asked, s.quiet, s.exited = false, make(chan struct{}), make(chan struct{})
	if s.words, err = s.cmd.StdinPipe(); err != nil {
		return err
	}
	out, err := s.cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := s.cmd.Start(); err != nil {
		return err
	}
	impatience := time.AfterFunc(startTimeout, func() { _ = s.cmd.Process.Kill() })
	output := bufio.NewScanner(out)
	ready := output.Scan() && output.Text() == wordReady
	go s.wait(output)
	if !impatience.Stop() || !ready {
		return fmt.Errorf("server %s did not get ready: see its log", name)
	}
	s.world.recover(s.index)
	return ctx.Err()
}

// wait reads the output of the process and waits for its end. Only an end that was asked for is a good
// one.
func (s *process) wait(output *bufio.Scanner) {
	for output.Scan() {
		if output.Text() == wordQuiet {
			close(s.quiet)
		}
	}
	err := s.cmd.Wait()
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.asked {
		s.err = errors.Join(s.err, fmt.Errorf("server s%d-%d ended by itself: %w", s.index, s.life, err))
		s.world.impair(s.index)
	}
	close(s.exited)
}

// kill ends the server in the middle of whatever it does, and starts it again.
func (s *process) kill(ctx context.Context, f mishap) error {
	if !s.busy.TryLock() {
		s.world.journal.add("left out", "%s: it is down", f)
		return nil
	}
	defer s.busy.Unlock()
	s.world.journal.add("kill", "%s", f)
	s.world.impair(s.index)
	s.signal(syscall.SIGKILL)
	<-s.exited
	pause(ctx, f.For)
	err := s.start(ctx)
	s.world.journal.add("restart", "server %d is back", s.index)
	return err
}

// freeze stops the server past its leases and lets it continue as if nothing had happened.
func (s *process) freeze(ctx context.Context, f mishap) error {
	if !s.busy.TryLock() {
		s.world.journal.add("left out", "%s: it is down", f)
		return nil
	}
	defer s.busy.Unlock()
	s.world.journal.add("stop", "%s", f)
	s.world.impair(s.index)
	s.world.fallSilent(s.index)
	s.signal(syscall.SIGSTOP)
	pause(ctx, f.For)
	s.signal(syscall.SIGCONT)
	s.world.recover(s.index)
	s.world.journal.add("continue", "server %d continues", s.index)
	return nil
}

// cut breaks connections of the server at COMMIT for a while.
func (s *process) cut(ctx context.Context, f mishap) error {
	if !s.cutting.TryLock() {
		s.world.journal.add("left out", "%s: it is being cut", f)
		return nil
	}
	defer s.cutting.Unlock()
	s.world.journal.add("cut", "%s", f)
	s.world.impair(s.index)
	s.wire.cut(&cutting{percent: f.Percent, fate: f.Fate, dice: rand.New(rand.NewPCG(f.Dice, 0))})
	pause(ctx, f.For)
	s.wire.cut(nil)
	s.world.recover(s.index)
	return nil
}

// cutOff breaks all connections of the server and lets it make none for a while.
func (s *process) cutOff(ctx context.Context, f mishap) error {
	s.world.journal.add("drop", "%s", f)
	s.world.impair(s.index)
	s.wire.Refuse(true)
	s.wire.CutAll()
	pause(ctx, f.For)
	s.wire.Refuse(false)
	s.world.recover(s.index)
	return nil
}

// silence lets nothing pass between the server and PostgreSQL for a while.
func (s *process) silence(ctx context.Context, f mishap) error {
	s.world.journal.add("stall", "%s", f)
	s.world.impair(s.index)
	s.world.fallSilent(s.index)
	s.wire.stall(f.For)
	pause(ctx, f.For)
	s.world.recover(s.index)
	return nil
}

func (s *process) signal(signal syscall.Signal) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if signal == syscall.SIGKILL {
		s.asked = true
	}
	_ = s.cmd.Process.Signal(signal) // it may have ended by itself: wait has noted it
}

// send sends a word to the server.
func (s *process) send(word string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, _ = fmt.Fprintln(s.words, word)
}

// retire lets the server end in good order and returns how it ended.
func (s *process) retire() error {
	s.mu.Lock()
	s.asked = true
	_ = s.words.Close()
	exited := s.exited
	s.mu.Unlock()
	<-exited
	s.mu.Lock()
	defer s.mu.Unlock()
	if code := s.cmd.ProcessState.ExitCode(); code != 0 {
		return errors.Join(s.err, fmt.Errorf("server s%d-%d ended with code %d", s.index, s.life, code))
	}
	return s.err
}

// end leaves nothing behind, however the test went.
func (s *process) end() {
	s.mu.Lock()
	started, exited := s.cmd != nil && s.cmd.Process != nil, s.exited
	s.mu.Unlock()
	if started {
		s.signal(syscall.SIGKILL) // a stopped process dies of it too
		<-exited
	}
}

// isQuiet reports whether the server asks for nothing new.
func (s *process) isQuiet() bool {
	select {
	case <-s.quiet:
		return true
	default:
		return false
	}
}

// failure is what a server died of, nil if it lives.
func (s *process) failure() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.err
}
