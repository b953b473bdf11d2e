package worker

import (
	"fmt"
	"log/slog"
	"os"
	"time"

	"go.opentelemetry.io/otel/trace"
	"google.golang.org/grpc"

	"go.arco.dev/servo/internal/base/fault"
	"go.arco.dev/servo/internal/data/blob"
)

// Options configures a worker. A zero field has the default that its comment names.
type Options struct {
	Conn        grpc.ClientConnInterface // to the server
	ID          string                   // host-pid
	Instance    string                   // of the process, if several may receive the same task: code waits until the server grants its start; none
	Pools       []string                 // in the order of preference; "default"
	Concurrency int                      // capacity: how many tasks run concurrently; 1
	Ahead       int                      // leases ahead of need: half of Concurrency, at least 1; NoAhead for none
	Lease       time.Duration            // how long a lease lasts without a heartbeat; the server's worker timeout
	Grace       time.Duration            // how long tasks may continue when the worker stops; 30 s

	HeartbeatEvery time.Duration // 10 s, or a third of a shorter lease
	FlushEvery     time.Duration // how long log lines and progress are collected before they are sent; 1 s

	Executors []Executor
	Blobs     *blob.Store  // where outputs are stored; without it, the worker gets no tasks with outputs or checks
	Secrets   *Secrets     // that tasks may read; none
	LogLevel  slog.Leveler // of what tasks log; INFO
	Logger    *slog.Logger // of the worker itself; none
	Tracer    trace.Tracer // of attempts; none
}

// NoAhead is the value of Options.Ahead for a worker that leases no tasks ahead of need.
const NoAhead = -1

// The limits of calls and of stopping.
const (
	maxClaim = 1000             // leases in one claim: the server's limit
	maxWait  = 30 * time.Second // how long the server holds a claim

	claimPatience  = 15 * time.Second // longer than the claim waits
	reportPatience = 30 * time.Second
	maxClaimBytes  = 256 << 20 // of the response to a claim, which includes upstream results

	stopGrace  = 7 * time.Second  // from the interruption of tasks until they are abandoned: longer than killGrace
	flushGrace = 10 * time.Second // for the last reports
	abortGrace = 2 * time.Second  // for tasks to end and for the last reports when the worker is aborted
)

// Defaults until the server sends its own.
const (
	defaultLease   = 30 * time.Second // the server's default, without its margin
	heartbeatsEach = 10 * time.Second
)

const (
	minLease    = time.Second
	maxLease    = time.Hour
	maxCapacity = 100_000
	maxPools    = 100
)

func (o Options) withDefaults() Options {
	if o.ID == "" {
		host, err := os.Hostname()
		if err != nil {
			host = "worker"
		}
		o.ID = fmt.Sprintf("%s-%d", host, os.Getpid())
	}
	if len(o.Pools) == 0 {
		o.Pools = []string{DefaultPool}
	}
	if o.Concurrency == 0 {
		o.Concurrency = 1
	}
	switch o.Ahead {
	case NoAhead:
		o.Ahead = 0
	case 0:
		o.Ahead = max(1, o.Concurrency/2)
	}
	set := func(field *time.Duration, value time.Duration) {
		if *field == 0 {
			*field = value
		}
	}
	set(&o.Grace, 30*time.Second)
	set(&o.FlushEvery, time.Second)
	if o.LogLevel == nil {
		o.LogLevel = slog.LevelInfo
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	return o
}

func (o Options) validate() error {
	switch {
	case o.Conn == nil:
		return fault.Invalid("server", "is missing", "set the server to work for")
	case len(o.ID) > 200:
		return fault.Invalid("id", "has more than 200 bytes", "use a shorter name")
	case len(o.Pools) > maxPools:
		return fault.Invalid("pools", "has more than 100 names", "serve fewer pools")
	case o.Concurrency < 0 || o.Concurrency > maxCapacity:
		return fault.Invalid("concurrency", fmt.Sprintf("is %d, must be 1 to 100000", o.Concurrency), "use a value in the range")
	case o.Ahead < 0 || o.Ahead > maxCapacity:
		return fault.Invalid("ahead", fmt.Sprintf("is %d, must be -1 to 100000", o.Ahead), "use -1 for none")
	case o.Lease != 0 && (o.Lease < minLease || o.Lease > maxLease):
		return fault.Invalid("lease", fmt.Sprintf("is %s, must be 1s to 1h", o.Lease), "use a duration such as 30s")
	case o.Grace < 0:
		return fault.Invalid("grace", fmt.Sprintf("is %s, must be 0s or more", o.Grace), "use a duration such as 30s")
	case o.HeartbeatEvery < 0 || o.Lease != 0 && o.HeartbeatEvery >= o.Lease:
		return fault.Invalid("heartbeat_every", fmt.Sprintf("is %s, must be less than the lease", o.HeartbeatEvery), "send more than one heartbeat during a lease")
	}
	kinds := map[string]bool{}
	for _, e := range o.Executors {
		if kinds[e.Kind()] {
			return fault.Invalid("executors", "has two of kind "+e.Kind(), "use one of each kind")
		}
		kinds[e.Kind()] = true
	}
	return nil
}
