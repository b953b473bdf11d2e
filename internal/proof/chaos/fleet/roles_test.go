package fleet

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"syscall"
	"testing"
	"time"

	"go.arco.dev/servo/internal/base/netguard"
	"go.arco.dev/servo/internal/daemon"
	"go.arco.dev/servo/internal/domain/tenant"
	"go.arco.dev/servo/internal/engine"
)

// roleVariable turns the test binary into a server or a worker; its value is a role.
const roleVariable = "SERVO_FLEET_ROLE"

// role is the configuration of a process.
type role struct {
	Name     string   `json:"name"`               // of this life: a process that is started again has another
	Database string   `json:"database,omitempty"` // of a server
	Defaults bool     `json:"defaults,omitempty"` // a server without short times
	Servers  []string `json:"servers,omitempty"`  // of a worker
	Bare     bool     `json:"bare,omitempty"`     // a worker without package client
	Ledger   string   `json:"ledger,omitempty"`   // of a worker
}

func TestMain(m *testing.M) {
	text := os.Getenv(roleVariable)
	if text == "" {
		os.Exit(m.Run())
	}
	log := slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelInfo}))
	var r role
	if err := json.Unmarshal([]byte(text), &r); err != nil {
		log.Error("role", "error", err)
		os.Exit(exitBroken)
	}
	// The second signal is not handled: a process that does not end at the first is stuck.
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	if r.Database != "" {
		go listen(log, func(string) {})
		os.Exit(serve(ctx, r, log))
	}
	os.Exit(work(ctx, r, log))
}

// How processes end.
const (
	exitGood     = 0
	exitBroken   = 1
	exitOrphaned = 3
	exitUnsaid   = 5 // a worker that could not deliver all of its reports
)

// Words between the test and its processes, one a line.
const (
	wordReady   = "ready"   // from a process: it works; a server adds its address
	wordCaught  = "caught"  // from a worker: what it was asked to do in a task happens now
	wordBehave  = "behave"  // to a worker: never mind
	wordBehaved = "behaved" // from a worker: then not

	// To a worker, for the task that comes next.
	wordFreeze = "freeze" // stop when the result is known and not reported
	wordDie    = "die"    // be killed there
	wordLeave  = "leave"  // be asked to end in the middle of it
)

// announce sends a line to the test.
func announce(words ...any) {
	_, _ = fmt.Fprintln(os.Stdout, words...) // the test may be gone
}

// listen receives the lines of the test. At their end the test is gone, and the process
// must not outlive it.
func listen(log *slog.Logger, receive func(word string)) {
	words := bufio.NewScanner(os.Stdin)
	for words.Scan() {
		receive(words.Text())
	}
	log.Error("the test is gone")
	os.Exit(exitOrphaned)
}

// Times of the fleet. Leases are short, so that they expire often.
const (
	leaseTime = 2 * time.Second
	drainTime = 3 * time.Second // of a server
	graceTime = 30 * time.Millisecond
)

// connsEach is how many connections to the database a server has.
const connsEach = 8

// serve is the life of a server.
func serve(ctx context.Context, r role, log *slog.Logger) int {
	d, err := open(ctx, r, log)
	if err != nil {
		return exitGood // it was asked to end before it had begun
	}
	announce(wordReady, d.GRPCAddr())
	select {
	case <-ctx.Done():
	case err = <-d.Failed():
		log.Error("server failed", "error", err)
	}
	if stopErr := d.Stop(context.WithoutCancel(ctx)); stopErr != nil || err != nil {
		log.Error("server did not stop well", "error", stopErr)
		return exitBroken
	}
	return exitGood
}

// open starts a server, again if PostgreSQL goes down just then, as whatever supervises a
// server would.
func open(ctx context.Context, r role, log *slog.Logger) (*daemon.Daemon, error) {
	limits := engine.Config{Quotas: tenant.NoLimits(), QueueWithoutWorkers: 5000, Lease: leaseTime, HeartbeatTimeout: leaseTime, CallTimeout: 4 * time.Second, PollEvery: 500 * time.Millisecond}
	if r.Defaults {
		limits = engine.Config{Quotas: tenant.NoLimits()}
	}
	for {
		d, err := daemon.Start(ctx, daemon.Config{
			DatabaseURL: r.Database, MaxConns: connsEach, WaitForDatabase: time.Minute, HTTP: "127.0.0.1:0", GRPC: "127.0.0.1:0",
			Name: r.Name, Drain: drainTime, Logger: log, Open: true, Engine: limits,
			Targets: netguard.Policy{Local: true}, // push workers of tests listen on loopback
		})
		if err == nil {
			return d, nil
		}
		log.Warn("server did not start", "error", err)
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
