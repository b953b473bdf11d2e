package dispatcher

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"net/http"
	"time"

	"go.arco.dev/servo/internal/base/event"
	"go.arco.dev/servo/internal/base/fault"
	"go.arco.dev/servo/internal/base/telemetry"
	"go.arco.dev/servo/internal/domain/push"
	"go.arco.dev/servo/internal/domain/run"
	"go.arco.dev/servo/internal/engine"
	"go.arco.dev/servo/internal/store"
)

// flight is one call.
type flight struct {
	endpoint *endpoint
	pool     store.Pool // when the call began
	client   *http.Client
	lease    engine.Lease

	call    push.Call
	counted bool // by the breaker

	ctx    context.Context //nolint:containedctx // the call's own
	cancel context.CancelCauseFunc
}

// signer signs with a key, at the database's time.
type signer struct {
	key   push.Key
	ahead time.Duration
	lease time.Duration // of a worker that has started its task
}

func (s signer) now() time.Time { return time.Now().Add(s.ahead) }

// Why a call was aborted.
var (
	errCancelled = errors.New("the run was cancelled")
	errTaken     = errors.New("the lease is over")
	errStopping  = errors.New("the server is stopping")
)

// send posts the envelope of a lease and reports the outcome.
func (d *Dispatch) send(f *flight, s signer) {
	o := d.post(f, s)
	d.report(f, o)
	d.end(f, o)
}

// post makes the call.
func (d *Dispatch) post(f *flight, s signer) outcome {
	if err := f.ctx.Err(); err != nil {
		return notAnswered(f, err)
	}
	if f.lease.Code.Declared() != nil { // an endpoint would complete the task without its checks
		return notMade(errors.New("push pools do not support assets with an output or checks; use a pool with workers"))
	}
	body, err := d.envelope(f, s)
	if err != nil {
		return notMade(err)
	}
	request, err := http.NewRequestWithContext(f.ctx, http.MethodPost, f.pool.URL, bytes.NewReader(body))
	if err != nil {
		return notMade(err)
	}
	request.Header.Set("Content-Type", "application/json")
	request.Header.Set("Accept", "application/json")
	request.Header.Set("User-Agent", "servo")
	telemetry.SetHeaders(request.Header, f.lease.Trace)
	request.Header.Set("Idempotency-Key", push.IdempotencyKey(f.lease.Task, f.lease.Attempt, f.lease.Token))
	response, err := f.client.Do(request)
	if err != nil {
		return notAnswered(f, err)
	}
	defer func() { _ = response.Body.Close() }()
	return answered(f, response)
}

// envelope is the signed body of a call.
func (d *Dispatch) envelope(f *flight, s signer) ([]byte, error) {
	l := f.lease
	tenant, err := d.tenantName(f.ctx, l.Tenant)
	if err != nil {
		return nil, err
	}
	now := s.now()
	callbacks, err := push.SignCallbacks(d.config.PublicURL,
		push.Callback{Tenant: l.Tenant, Run: l.Run, Task: l.Task, Attempt: l.Attempt, Token: l.Token}, s.key, now.Add(push.CallbackLifetime))
	if err != nil {
		return nil, err
	}
	e := push.Envelope{
		Pool: f.pool.Name, Tenant: tenant, Run: l.Run, Task: l.Task, Attempt: l.Attempt, Token: l.Token, Asset: l.Asset, Pipeline: l.Pipeline, Partition: l.Partition,
		Parameters: l.Parameters, Cursor: l.Cursor, FanOuts: l.FanOuts, TimeoutSeconds: int64(l.Timeout / time.Second),
		LeaseSeconds: int64(s.lease / time.Second), Callbacks: callbacks,
	}
	e.TriggerType, e.Partitions = l.TriggerType, l.Partitions
	if w := l.Window; w != nil {
		e.Config, e.Slot, e.IntervalStart, e.IntervalEnd = w.Config, w.Slot, w.Start, w.End
	}
	e.Trace.Parent, e.Trace.State = telemetry.Split(l.Trace)
	if l.Code.Go != nil {
		e.Entrypoint = l.Code.Go.Handler
	}
	for _, u := range l.Upstream {
		e.Upstream = append(e.Upstream, push.Upstream{
			Run: u.Run, Task: u.Task, Asset: u.Asset, Partition: u.Partition, Result: u.Result, Omitted: u.Omitted,
		})
	}
	return push.Sign(e, s.key, now, f.pool.Timeout()+push.MaxSkew, rand.Reader)
}

// report reports the outcome of a call to the engine. While the database is unreachable it tries again; without
// success the lease expires.
func (d *Dispatch) report(f *flight, o outcome) {
	if len(o.actions) == 0 {
		return
	}
	reports := make([]engine.Report, len(o.actions))
	for i, action := range o.actions {
		reports[i] = engine.Report{TaskKey: f.lease.TaskKey, Token: f.lease.Token, Action: action, Meta: event.Meta{Actor: actor, Trace: f.lease.Trace}}
	}
	ctx := context.WithoutCancel(f.ctx)
	for pause := reportPause; ; pause *= 2 {
		_, errs := d.engine.Report(ctx, reports)
		err := errs[len(errs)-1]
		switch {
		case o.kind == done && fault.Is(errs[0], fault.Conflict): // cancelled before it was known to have begun
			d.give(ctx, f, run.Failure{Code: run.CodeCancelled, Message: errCancelled.Error()})
			return
		case err == nil, fault.Is(err, fault.Stale), fault.Is(err, fault.Conflict): // a callback was faster, or another has the task
			return
		case !fault.Is(err, fault.Unavailable) || pause > maxReportPause:
			d.log.Error("the answer of a push pool could not be recorded", "pool", f.pool.Name, "tenant", f.lease.Tenant,
				"run", f.lease.Run, "task", f.lease.Task, "error", err)
			d.refused(ctx, f, err)
			return
		}
		timer := time.NewTimer(pause)
		select {
		case <-timer.C:
		case <-f.ctx.Done():
			timer.Stop()
			return
		}
	}
}

// Pauses between two tries to report.
const (
	reportPause    = 100 * time.Millisecond
	maxReportPause = 10 * time.Second
)

// refused ends an attempt whose answer cannot be stored, such as a result that is too large.
func (d *Dispatch) refused(ctx context.Context, f *flight, err error) {
	if !fault.Is(err, fault.Unavailable) {
		d.give(ctx, f, run.Failure{Code: codeConfiguration, Message: "the answer was refused: " + short(err.Error())})
	}
}

// give ends an attempt in failure. If that cannot be recorded either, the lease expires.
func (d *Dispatch) give(ctx context.Context, f *flight, failure run.Failure) {
	_, err := d.engine.ReportOne(ctx, engine.Report{
		TaskKey: f.lease.TaskKey, Token: f.lease.Token, Meta: event.Meta{Actor: actor, Trace: f.lease.Trace}, Action: engine.Fail{Failure: failure},
	})
	if err != nil && !fault.Is(err, fault.Stale) {
		d.log.Warn("the attempt of a push task could not be ended; its lease will expire", "run", f.lease.Run, "task", f.lease.Task, "error", err)
	}
}

// keepLeases renews the leases of open calls, which may take longer than a lease, and aborts those whose run was
// cancelled or whose lease is over.
func (d *Dispatch) keepLeases() {
	ticker := time.NewTicker(beatEvery)
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
			d.beat()
		case <-d.stopped:
			return
		}
	}
}

// beatEvery is short, so that the calls of a cancelled run end soon.
const beatEvery = 2 * time.Second

func (d *Dispatch) beat() {
	d.mu.Lock()
	flights := make([]*flight, 0, len(d.flights))
	for f := range d.flights {
		flights = append(flights, f)
	}
	d.mu.Unlock()
	if len(flights) == 0 {
		return
	}
	beats := make([]engine.Heartbeat, len(flights))
	for i, f := range flights {
		beats[i] = engine.Heartbeat{Key: f.lease.TaskKey, Token: f.lease.Token, Lease: holdFor}
	}
	pulses, err := d.engine.Heartbeats(d.calling, beats)
	if err != nil {
		d.log.Warn("cannot renew the leases of calls", "error", err)
		return
	}
	for i, f := range flights {
		switch {
		case pulses[i].ShouldCancel:
			f.cancel(errCancelled)
		case !pulses[i].Alive:
			f.cancel(errTaken)
		}
	}
}
