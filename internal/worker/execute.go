package worker

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	servov1 "go.arco.dev/servo/gen/servo/v1"
	"go.arco.dev/servo/internal/domain/run"
)

// Executor runs the code of one kind of asset.
type Executor interface {
	// Kind is go, exec or http.
	Kind() string
	// Capabilities are what it can run, as tasks need it: a kind, or go and a handler.
	Capabilities() []string
	// Execute runs one task. The context ends when the task should.
	Execute(ctx context.Context, task *Task) (Result, error)
}

// Result is what a task has produced.
type Result struct {
	JSON    json.RawMessage // nothing is null
	Partial bool            // a success with a flaw
}

// slot executes an attempt, and then what waits for its slot.
func (w *Worker) slot(a *attempt) {
	for a != nil {
		a = w.turn(a)
	}
}

// turn executes one attempt and returns the next for its slot. The code may end the
// goroutine rather than return: then another goes on in its place.
func (w *Worker) turn(a *attempt) (next *attempt) {
	returned := false
	defer func() {
		next = w.next(a)
		if !returned && next != nil {
			go w.slot(next)
		}
	}()
	if !a.lease.GetStarted() {
		a.since = time.Now()
		if !w.begin(a) {
			a.cancel(nil)
			returned = true
			return nil
		}
	}
	w.attempt(a)
	returned = true
	return nil
}

// begin says that an attempt is executed. An instance waits for the answer: the same task may have
// reached another, and only one of them may run its code.
func (w *Worker) begin(a *attempt) bool {
	start := a.started(w.config.Instance)
	if w.config.Instance == "" {
		w.reporter.say(a, start)
		return true
	}
	start.answer = make(chan *servov1.ReportAnswer, 1)
	if !w.reporter.say(a, start) {
		return false
	}
	select {
	case answer, answered := <-start.answer:
		problem := answer.GetError()
		switch {
		case !answered:
			return false
		case problem == nil:
			return true
		case problem.GetCode() == problemConflict:
			w.end(a, a.failed(&servov1.Fail{Error: &servov1.Failure{Code: codeCancelled, Message: "cancelled before it began"}}))
			return false
		}
		w.config.Logger.Warn("the server does not let this instance start a task", "task", a.lease.GetTask(), "problem", problem)
		w.lose(a)
	case <-a.ctx.Done():
		if !a.lost.Load() {
			w.end(a, w.verdict(a.ctx, a, Result{}, context.Cause(a.ctx)))
		}
	}
	return false
}

// attempt executes an attempt and says what came of it.
func (w *Worker) attempt(a *attempt) {
	ctx := a.ctx
	if timeout := a.lease.GetTimeout().AsDuration(); timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithDeadlineCause(ctx, a.since.Add(timeout), ErrTimedOut)
		defer cancel()
	}
	defer a.cancel(nil)
	ctx, span := w.traced(ctx, a)

	var result Result
	err := errors.New("the task ended its goroutine (runtime.Goexit) rather than return")
	defer func() {
		// Here, so that a panic and the end of the goroutine are heard of as well.
		if value := recover(); value != nil {
			err = panicError(value)
		}
		endSpan(span, err)
		if !a.lost.Load() {
			w.end(a, w.verdict(ctx, a, result, err))
		}
	}()
	result, err = w.execute(ctx, a)
}

func (w *Worker) execute(ctx context.Context, a *attempt) (Result, error) {
	kind := kindOf(a.lease.GetCode())
	executor, known := w.executors[kind]
	if !known {
		return Result{}, w.noExecutor(kind)
	}
	ctx, span := w.step(ctx, "execute_function")
	result, err := executor.Execute(ctx, w.newTask(a))
	endSpan(span, err)
	return result, err
}

// kindOf names the kind of an asset's code.
func kindOf(code *servov1.Code) string {
	switch code.GetKind().(type) {
	case *servov1.Code_Exec:
		return KindExec
	case *servov1.Code_Http:
		return KindHTTP
	case *servov1.Code_Go:
		return KindGo
	}
	return ""
}

// The kinds of code.
const (
	KindExec = "exec"
	KindHTTP = "http"
	KindGo   = "go"
)

func (w *Worker) noExecutor(kind string) error {
	var has []string
	for _, e := range w.config.Executors {
		has = append(has, e.Kind())
	}
	return &Error{
		Code: codeUnknown, Message: fmt.Sprintf("this worker does not execute assets of kind %q, only of %q", kind, has),
		SuggestedAction: "give the asset a pool whose workers can execute it",
	}
}

// verdict is the last thing that an attempt says. An error that comes after the end of the
// context is put down to what ended it; a result is a result.
func (w *Worker) verdict(ctx context.Context, a *attempt, result Result, err error) item {
	if err == nil {
		return w.success(a, result)
	}
	if yield, ok := errors.AsType[*YieldError](err); ok {
		return a.yielded(yield.Cursor)
	}
	if ctx.Err() != nil {
		code := ""
		switch cause := context.Cause(ctx); {
		case errors.Is(cause, ErrCancelled):
			code = codeCancelled
		case errors.Is(cause, ErrInterrupted):
			code = codeInterrupted
		case errors.Is(cause, ErrTimedOut):
			code = codeTimeout
			err = fmt.Errorf("ran longer than its timeout of %s: %w", a.lease.GetTimeout().AsDuration(), err)
		}
		if code != "" {
			return a.failed(failureOf(&Error{Code: code, Message: err.Error(), Cause: err}))
		}
	}
	return a.failed(failureOf(err))
}

func (w *Worker) success(a *attempt, result Result) item {
	status := servov1.Complete_SUCCESS
	if result.Partial {
		status = servov1.Complete_PARTIAL_SUCCESS
	}
	complete := &servov1.Complete{Status: status}
	if len(result.JSON) > 0 {
		if len(result.JSON) > run.MaxResultLength {
			return a.failed(failureOf(tooLarge(len(result.JSON))))
		}
		value, err := toValue(result.JSON)
		if err != nil {
			return a.failed(failureOf(&Error{Code: codeUser, Message: "the result " + err.Error(), Cause: err}))
		}
		complete.Result = value
	}
	return a.completed(complete)
}

func tooLarge(length int) *Error {
	return &Error{
		Code: codeUser, Message: fmt.Sprintf("the result has %d bytes, the limit is %d", length, run.MaxResultLength),
		SuggestedAction: "keep the data where it belongs, and return a reference to it",
	}
}

// answered does what the answer to an item asks for.
func (w *Worker) answered(a *attempt, it item, answer *servov1.ReportAnswer) {
	problem := answer.GetError()
	switch {
	case it.GetLog() != nil:
		a.logs.sent(w, a)
	case it.GetStart() != nil && problem.GetCode() == problemConflict:
		w.startRefused(a)
		return
	}
	if problem == nil {
		if it.last {
			w.forget(a)
		}
		return
	}
	switch {
	case problem.GetCode() == problemStale || problem.GetCode() == problemNotFound && it.last:
		w.lose(a)
	case it.last:
		w.lastRefused(a, it, problem)
	default:
		w.config.Logger.Debug("the server refuses an item", "task", a.lease.GetTask(), "problem", problem)
	}
}

// startRefused stops an attempt whose run is being cancelled.
func (w *Worker) startRefused(a *attempt) {
	w.reporter.mu.Lock()
	a.outbox.startRefused = true
	w.reporter.mu.Unlock()
	w.mu.Lock()
	cancel := a.cancel
	w.mu.Unlock()
	if cancel != nil { // one that is given back was never begun
		cancel(ErrCancelled)
	}
}

// lastRefused says something else in place of an end that the server does not take: nobody
// would hear of the task until its lease is over.
func (w *Worker) lastRefused(a *attempt, it item, problem *servov1.Problem) {
	w.reporter.mu.Lock()
	cancelled, mended := a.outbox.startRefused, a.outbox.mended
	w.reporter.mu.Unlock()
	switch {
	case mended || problem.GetCode() == problemConflict && !cancelled:
		w.config.Logger.Error("the server does not take the end of a task", "task", a.lease.GetTask(), "problem", problem)
		w.lose(a)
	case cancelled:
		w.reporter.mend(a, a.failed(&servov1.Fail{Error: &servov1.Failure{Code: codeCancelled, Message: "cancelled before it began"}}))
	default:
		what := "result"
		switch {
		case it.GetFail() != nil:
			what = "failure"
		case it.GetYield() != nil:
			what = "cursor"
		}
		w.reporter.mend(a, a.failed(&servov1.Fail{Error: &servov1.Failure{
			Code: codeUser, Message: cut(storable("the server refuses the "+what+": "+refusal(problem).Error()), maxMessage),
		}}))
	}
}
