package worker

import (
	"fmt"
	"log/slog"
	"os"
	"time"

	"go.opentelemetry.io/otel/trace"
	"google.golang.org/grpc"

	"go.arco.dev/servo/internal/base/fault"
)

// Config says how a worker runs. Zero fields have the defaults that stand beside them.
type Config struct {
	Conn        grpc.ClientConnInterface // to the server
	ID          string                   // host-pid
	Instance    string                   // of the process, if tasks may reach two: code waits for its start to be granted; none
	Pools       []string                 // in the order of preference; "default"
	Concurrency int                      // slots: how many tasks run at once; 1
	Ahead       int                      // leases ahead of need: half of Concurrency, at least 1; NoAhead for none
	Lease       time.Duration            // how long a lease lasts without a heartbeat; the server's worker timeout
	Grace       time.Duration            // how long tasks may go on when the worker stops; 30 s

	HeartbeatEvery time.Duration // 10 s, sooner if leases are short: a third of them
	FlushEvery     time.Duration // how long log lines and progress may wait for company; 1 s

	Executors []Executor
	LogLevel  slog.Leveler // of what tasks log; INFO
	Logger    *slog.Logger // of the worker itself; none
	Tracer    trace.Tracer // of attempts; none
}

// NoAhead is the value of Config.Ahead for a worker that leases nothing ahead of need.
const NoAhead = -1

// The limits of calls and of stopping.
const (
	maxClaim = 1000             // leases in one claim: the server's limit
	maxWait  = 30 * time.Second // how long a claim is parked

	claimPatience  = 15 * time.Second // beyond what the claim waits for
	reportPatience = 30 * time.Second
	maxClaimBytes  = 256 << 20 // of a claim's answer: upstream results come along

	stopGrace  = 7 * time.Second  // from the interruption of tasks to their abandonment: longer than killGrace
	flushGrace = 10 * time.Second // for the last reports
	abortGrace = 2 * time.Second  // for tasks to end and for the last reports when there is no time
)

// Times of presence, until the server has said otherwise.
const (
	defaultLease   = 30 * time.Second // the server's default, without its margin
	heartbeatsEach = 10 * time.Second
)

const (
	minLease = time.Second
	maxLease = time.Hour
	maxSlots = 100_000
	maxPools = 100
)

func (c Config) withDefaults() Config {
	if c.ID == "" {
		host, err := os.Hostname()
		if err != nil {
			host = "worker"
		}
		c.ID = fmt.Sprintf("%s-%d", host, os.Getpid())
	}
	if len(c.Pools) == 0 {
		c.Pools = []string{DefaultPool}
	}
	if c.Concurrency == 0 {
		c.Concurrency = 1
	}
	switch c.Ahead {
	case NoAhead:
		c.Ahead = 0
	case 0:
		c.Ahead = max(1, c.Concurrency/2)
	}
	set := func(field *time.Duration, value time.Duration) {
		if *field == 0 {
			*field = value
		}
	}
	set(&c.Grace, 30*time.Second)
	set(&c.FlushEvery, time.Second)
	if c.LogLevel == nil {
		c.LogLevel = slog.LevelInfo
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	return c
}

func (c Config) validate() error {
	switch {
	case c.Conn == nil:
		return fault.Invalid("server", "is missing", "say which server to work for")
	case len(c.ID) > 200:
		return fault.Invalid("id", "has more than 200 bytes", "use a shorter name")
	case len(c.Pools) > maxPools:
		return fault.Invalid("pools", "has more than 100 names", "serve fewer pools")
	case c.Concurrency < 0 || c.Concurrency > maxSlots:
		return fault.Invalid("concurrency", fmt.Sprintf("is %d", c.Concurrency), "use 1 to 100000")
	case c.Ahead < 0 || c.Ahead > maxSlots:
		return fault.Invalid("ahead", fmt.Sprintf("is %d", c.Ahead), "use -1 (none) to 100000")
	case c.Lease != 0 && (c.Lease < minLease || c.Lease > maxLease):
		return fault.Invalid("lease", fmt.Sprintf("is %s", c.Lease), "use 1s to 1h")
	case c.Grace < 0:
		return fault.Invalid("grace", fmt.Sprintf("is %s", c.Grace), "use 0 or more")
	case c.HeartbeatEvery < 0 || c.Lease != 0 && c.HeartbeatEvery >= c.Lease:
		return fault.Invalid("heartbeat_every", fmt.Sprintf("is %s", c.HeartbeatEvery), "beat more than once in a lease")
	}
	kinds := map[string]bool{}
	for _, e := range c.Executors {
		if kinds[e.Kind()] {
			return fault.Invalid("executors", "has two of kind "+e.Kind(), "give one of each kind")
		}
		kinds[e.Kind()] = true
	}
	return nil
}
