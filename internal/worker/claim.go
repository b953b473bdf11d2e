package worker

import (
	"cmp"
	"context"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/durationpb"

	servov1 "go.arco.dev/servo/gen/servo/v1"
	"go.arco.dev/servo/internal/domain/run"
)

// claimGrace bounds how long a stopping worker asks what its parked claim has brought.
const claimGrace = 3 * time.Second

// claim is the claim loop: one call at a time, parked at the server while it has nothing.
func (w *Worker) claim(ctx, calls context.Context) {
	idle, capabilities := backoff{}, w.capabilities()
	for ctx.Err() == nil {
		most, start := w.wanted()
		if most == 0 {
			select {
			case <-w.room:
			case <-ctx.Done():
			}
			continue
		}
		begun := time.Now()
		got := w.claimOnce(ctx, calls, &servov1.ClaimRequest{
			WorkerId: w.config.ID, ClaimId: w.nextClaim(), Pools: w.config.Pools, Max: int32(most), //nolint:gosec // at most maxClaim
			Lease: w.wantedLease(), Wait: durationpb.New(maxWait), Start: start, Presence: true, Capabilities: capabilities,
			Slots: int32(min(w.config.Concurrency+w.config.Ahead, maxSlots)), //nolint:gosec // bounded
		})
		if w.isDenied() {
			return
		}
		if got > 0 || time.Since(begun) > maxWait/2 {
			idle.tries = 0
		} else {
			idle.sleep(ctx, 0) // it should have waited: the server may be stopping
		}
	}
}

// nextClaim is the id of a new claim.
func (w *Worker) nextClaim() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.claims.next()
}

// capabilities are what the worker declares: it gets no task that it cannot run. A worker without
// any declares one that no task needs, since none would mean all.
func (w *Worker) capabilities() []string {
	var declared []string
	for _, e := range w.config.Executors {
		declared = append(declared, e.Capabilities()...)
	}
	if len(declared) == 0 {
		declared = []string{run.NoCapability}
	}
	return declared
}

// wanted says how many leases to ask for: for free slots, to be started at once, or ahead
// of need. None while too much waits to be reported.
func (w *Worker) wanted() (most int, start bool) {
	if w.reporter.overloaded() {
		return 0, false
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if free := w.config.Concurrency - len(w.running); free > 0 && len(w.buffer) == 0 {
		return min(free, maxClaim), true
	}
	return min(max(w.config.Ahead-len(w.buffer), 0), maxClaim), false
}

// wantedLease is the lease that claims ask for; nil is the server's worker timeout.
func (w *Worker) wantedLease() *durationpb.Duration {
	if w.config.Lease == 0 {
		return nil
	}
	return durationpb.New(w.config.Lease)
}

// learnLease takes over how long the server keeps leases without a heartbeat.
func (w *Worker) learnLease(lease time.Duration) {
	if w.config.Lease == 0 && lease >= minLease {
		w.lease.Store(int64(lease))
	}
}

// leaseTime is how long leases last without a heartbeat.
func (w *Worker) leaseTime() time.Duration { return time.Duration(w.lease.Load()) }

// beatEvery is the time between two heartbeats.
func (w *Worker) beatEvery() time.Duration {
	return cmp.Or(w.config.HeartbeatEvery, min(heartbeatsEach, w.leaseTime()/3))
}

// wakeClaims says that there may be room for more.
func (w *Worker) wakeClaims() {
	select {
	case w.room <- struct{}{}:
	default: // it has been said
	}
}

// claimOnce makes one claim, with the same id again while its outcome is not known: what
// the server has leased to us must not be stranded because its answer was lost. It returns how many leases
// came.
func (w *Worker) claimOnce(ctx, calls context.Context, request *servov1.ClaimRequest) (got int) {
	wait := backoff{}
	var first time.Time // of the tries, once there is more than one
	for {
		begun := time.Now()
		response, err := w.callClaim(ctx, request, maxWait+claimPatience)
		if ctx.Err() == nil {
			w.link.heard("claim", err)
		}
		if err == nil {
			w.learnLease(response.GetLeaseDuration().AsDuration())
			since := time.Now()
			if !first.IsZero() {
				since = first // it may have been leased by the first try
			}
			w.accept(response.GetLeases(), since, true) //nolint:contextcheck // tasks outlive the claim that brought them
			return len(response.GetLeases())
		}
		if first.IsZero() {
			first = begun
		}
		if ctx.Err() != nil {
			break
		}
		if isDenied(err) {
			w.deny(err)
			return 0
		}
		if judge(err) == refused {
			w.config.Logger.Error("the server refuses the claim", "error", err)
			wait.tries = max(wait.tries, 5) // it will not be better soon
			request.ClaimId = w.nextClaim()
		}
		if !wait.sleep(ctx, w.link.pauseAfter(err)) {
			break
		}
	}
	// The worker stops. What the claim may have been given all the same is fetched and
	// given back, rather than left to expire.
	request.Wait, request.Max = durationpb.New(0), 1
	if response, err := w.callClaim(calls, request, claimGrace); err == nil {
		w.accept(response.GetLeases(), first, false) //nolint:contextcheck // it gives them back
	}
	return 0
}

func (w *Worker) callClaim(ctx context.Context, request *servov1.ClaimRequest, most time.Duration) (*servov1.ClaimResponse, error) {
	ctx, cancel := context.WithTimeout(ctx, most)
	defer cancel()
	return w.client.Claim(ctx, request, grpc.MaxCallRecvMsgSize(maxClaimBytes))
}
