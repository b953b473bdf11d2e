package worker

import (
	"cmp"
	"context"
	"slices"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/durationpb"

	servov1 "go.arco.dev/servo/gen/servo/v1"
	"go.arco.dev/servo/internal/data/checks"
	"go.arco.dev/servo/internal/domain/run"
)

// claimGrace bounds how long a stopping worker asks for the result of its waiting claim.
const claimGrace = 3 * time.Second

// claim is the claim loop: one call at a time, which the server holds while it has no tasks.
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
			WorkerId: w.options.ID, ClaimId: w.nextClaim(), Pools: w.options.Pools, Max: int32(most), //nolint:gosec // at most maxClaim
			Lease: w.wantedLease(), Wait: durationpb.New(maxWait), Start: start, Presence: true, Capabilities: capabilities,
			Slots: int32(min(w.options.Concurrency+w.options.Ahead, maxCapacity)), //nolint:gosec // bounded
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

// nextClaim returns the id of a new claim.
func (w *Worker) nextClaim() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.claims.next()
}

// capabilities returns the capabilities that the worker declares, so that it gets only tasks that it
// can execute. A worker without any declares one that no task needs, because an empty list means all.
func (w *Worker) capabilities() []string {
	var declared []string
	for _, e := range w.options.Executors {
		declared = append(declared, e.Capabilities()...)
	}
	if w.options.Blobs != nil {
		for _, capability := range slices.Clone(declared) {
			if capability != KindHTTP { // a call writes no files
				declared = append(declared, run.OutputCapability(capability))
				if checks.HasSQL {
					declared = append(declared, run.SQLCapability(capability))
				}
			}
		}
	}
	if len(declared) == 0 {
		declared = []string{run.NoCapability}
	}
	return declared
}

// wanted returns how many leases to claim: for free capacity, to be started immediately, or ahead of
// need. None while too many reports are pending.
func (w *Worker) wanted() (most int, start bool) {
	if w.reporter.overloaded() {
		return 0, false
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if free := w.options.Concurrency - len(w.running); free > 0 && len(w.buffer) == 0 {
		return min(free, maxClaim), true
	}
	return min(max(w.options.Ahead-len(w.buffer), 0), maxClaim), false
}

// wantedLease returns the lease duration that claims request; nil is the server's worker timeout.
func (w *Worker) wantedLease() *durationpb.Duration {
	if w.options.Lease == 0 {
		return nil
	}
	return durationpb.New(w.options.Lease)
}

// learnLease stores the lease duration of the server.
func (w *Worker) learnLease(lease time.Duration) {
	if w.options.Lease == 0 && lease >= minLease {
		w.lease.Store(int64(lease))
	}
}

// leaseTime returns how long leases last without a heartbeat.
func (w *Worker) leaseTime() time.Duration { return time.Duration(w.lease.Load()) }

// beatEvery returns the time between two heartbeats.
func (w *Worker) beatEvery() time.Duration {
	return cmp.Or(w.options.HeartbeatEvery, min(heartbeatsEach, w.leaseTime()/3))
}

// wakeClaims wakes the claim loop because there may be free capacity.
func (w *Worker) wakeClaims() {
	select {
	case w.room <- struct{}{}:
	default: // already awake
	}
}

// claimOnce makes one claim. It repeats it with the same id while the outcome is unknown, so that
// leases of a lost response are not stranded. It returns how many leases it got.
func (w *Worker) claimOnce(ctx, calls context.Context, request *servov1.ClaimRequest) (got int) {
	wait := backoff{}
	var first time.Time // attempt, once there is more than one
	for {
		begun := time.Now()
		response, err := w.callClaim(ctx, request, maxWait+claimPatience)
		if ctx.Err() == nil {
			w.link.record("claim", err)
		}
		if err == nil {
			w.learnLease(response.GetLeaseDuration().AsDuration())
			since := time.Now()
			if !first.IsZero() {
				since = first // the first attempt may have leased it
			}
			w.accept(response.GetLeases(), since, true) //nolint:contextcheck //nolint:contextcheck // tasks outlive their claim
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
			w.options.Logger.Error("the server refuses the claim", "error", err)
			wait.tries = max(wait.tries, 5) // the next attempts will be refused too
			request.ClaimId = w.nextClaim()
		}
		if !wait.sleep(ctx, w.link.pauseAfter(err)) {
			break
		}
	}
	// The worker stops. Leases that the claim may have got are fetched and returned, so that
	// they do not have to expire.
	request.Wait, request.Max = durationpb.New(0), 1
	if response, err := w.callClaim(calls, request, claimGrace); err == nil {
		w.accept(response.GetLeases(), first, false) //nolint:contextcheck //nolint:contextcheck // it returns them
	}
	return 0
}

func (w *Worker) callClaim(ctx context.Context, request *servov1.ClaimRequest, most time.Duration) (*servov1.ClaimResponse, error) {
	ctx, cancel := context.WithTimeout(ctx, most)
	defer cancel()
	return w.client.Claim(ctx, request, grpc.MaxCallRecvMsgSize(maxClaimBytes))
}
