package fleet

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"google.golang.org/protobuf/types/known/structpb"

	"go.arco.dev/servo/client"
	servov1 "go.arco.dev/servo/gen/servo/v1"
)

// trigger is one request for a run: any process that sends it, however often, means the same one.
type trigger struct {
	key    string
	tenant string
	shape  shape
}

// newTrigger is a function of the seed and the number alone.
func newTrigger(seed uint64, number int) trigger {
	all := shapes()
	return trigger{
		key:    fmt.Sprintf("trigger-%d", number),
		tenant: tenants()[mix("tenant", seed, number)%uint64(len(tenants()))],
		shape:  all[mix("shape", seed, number)%uint64(len(all))],
	}
}

// twice reports whether two programs send a trigger at the same time.
func (t trigger) twice() bool { return mix("twice", t.key)%4 == 0 }

// The load: a trigger comes every so often, while the faults last and until there are enough.
// Those beyond wait while the fleet has enough to do: what piles up would only show how fast
// the machine is.
const (
	triggerEvery = 150 * time.Millisecond
	enough       = 200 // with ten tasks each
	enoughOpen   = 40  // runs
)

// requests are the triggers that were sent, and what was answered.
type requests struct {
	mu   sync.Mutex
	sent []trigger
	runs map[string]string // by key
	errs []error
}

// load sends triggers until there are enough and the context is done, and returns when each
// of them was answered. The calls are made under the other context.
func (w *world) load(ctx, calls context.Context) *requests {
	r := &requests{runs: map[string]string{}}
	var open sync.WaitGroup
	for number := 0; ctx.Err() == nil || number < enough && calls.Err() == nil; number++ {
		for number >= enough && w.openRuns(ctx) > enoughOpen && ctx.Err() == nil {
			pause(ctx, triggerEvery)
		}
		t := newTrigger(w.seed, number)
		r.sent = append(r.sent, t)
		open.Go(func() { r.send(calls, w.clients[0], t) })
		if t.twice() {
			open.Go(func() { r.send(calls, w.clients[1], t) })
		}
		pause(calls, triggerEvery)
	}
	open.Wait()
	return r
}

// openRuns is how many runs have not ended; none if the database does not answer.
func (w *world) openRuns(ctx context.Context) int {
	open := 0
	if err := w.query(ctx, `SELECT count(*) FROM servo.runs WHERE state < 10`, &open); err != nil {
		return 0
	}
	return open
}

// tryTime is how long one try may take. A server that is stopped does not answer.
const tryTime = 4 * time.Second

// send sends a trigger until it is answered.
func (r *requests) send(ctx context.Context, c *client.Client, t trigger) {
	parameters := &structpb.Struct{Fields: map[string]*structpb.Value{"key": structpb.NewStringValue(t.key)}}
	for ctx.Err() == nil {
		try, cancel := context.WithTimeout(client.WithIdempotencyKey(ctx, t.key), tryTime)
		answer, err := c.Runs().TriggerRun(try, &servov1.TriggerRunRequest{Tenant: t.tenant, Pipeline: t.shape.name, Parameters: parameters})
		cancel()
		if err != nil && (client.Is(err, client.Unavailable) || errors.Is(err, context.DeadlineExceeded)) {
			pause(ctx, 50*time.Millisecond)
			continue
		}
		r.answered(t, answer.GetRun().GetId(), err)
		return
	}
	r.answered(t, "", ctx.Err())
}

func (r *requests) answered(t trigger, run string, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	first, known := r.runs[t.key]
	switch {
	case err != nil:
		r.errs = append(r.errs, fmt.Errorf("%s was answered: %w", t.key, err))
	case known && first != run:
		r.errs = append(r.errs, fmt.Errorf("%s was answered with the runs %s and %s", t.key, first, run))
	}
	r.runs[t.key] = run
}
