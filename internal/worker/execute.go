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
	// Kind is go, exec, http or python.
	Kind() string
	// Capabilities returns what it can execute: a kind, or go and a handler.
	Capabilities() []string
	// Execute runs one task. The context ends when the task should end.
	Execute(ctx context.Context, task *Task) (Result, error)
}

// Result is the result of a task.
type Result struct {
	JSON    json.RawMessage // empty is null
	Partial bool            // PARTIAL_SUCCESS
}

// work executes an attempt, and then buffered ones in its place.
func (w *Worker) work(a *attempt) {
	for a != nil {
		a = w.executeNext(a)
	}
}

// executeNext executes one attempt and returns the next one to execute. The code may end the goroutine
// without returning: then another goroutine continues.
func (w *Worker) executeNext(a *attempt) (next *attempt) {
	returned := false
	defer func() {
		next = w.next(a)
		if !returned && next != nil {
			go w.work(next)
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

// begin reports the start of an attempt. An instance waits for the answer: another one may have
// received the same task, and only one of them may execute it.
func (w *Worker) begin(a *attempt) bool {
	start := a.started(w.options.Instance)
	if w.options.Instance == "" {
		w.reporter.report(a, start)
		return true
	}
	start.answer = make(chan *servov1.ReportAnswer, 1)
	if !w.reporter.report(a, start) {
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
			w.end(a, a.failed(&servov1.Fail{Error: &servov1.Failure{Code: codeCancelled, Message: "cancelled before it started"}}))
			return false
		}
		w.options.Logger.Warn("the server refused the start of a task by this instance", "task", a.lease.GetTask(), "problem", problem)
		w.lose(a)
	case <-a.ctx.Done():
		if !a.lost.Load() {
			w.end(a, w.finalItem(a.ctx, a, Result{}, context.Cause(a.ctx)))
		}
	}
	return false
}

// attempt executes an attempt and reports its result.
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
	err := errors.New("the task ended its goroutine (runtime.Goexit) instead of returning")
	defer func() {
		// In a deferred function, so that a panic and the end of the goroutine are reported as well.
		if value := recover(); value != nil {
			err = panicError(value)
		}
		err = a.secrets.err(err)
		endSpan(span, err)
		if !a.lost.Load() {
			w.end(a, w.finalItem(ctx, a, result, err))
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
	task := w.newTask(a)
	defer func() { task.output.close() }()
	if err := task.prepareOutput(ctx, executor); err != nil {
		return Result{}, err
	}
	result, err := w.executeFunction(ctx, executor, task)
	if err != nil {
		return result, err
	}
	return task.commitOutput(ctx, result)
}

// executeFunction calls the asset's code.
func (w *Worker) executeFunction(ctx context.Context, executor Executor, task *Task) (Result, error) {
	ctx, span := w.step(ctx, "execute_function")
	result, err := executor.Execute(ctx, task)
	err = task.attempt.secrets.err(err)
	endSpan(span, err)
	return result, err
}

// kindOf returns the kind of an asset's code.
func kindOf(code *servov1.Code) string {
	switch code.GetKind().(type) {
	case *servov1.Code_Exec:
		return KindExec
	case *servov1.Code_Http:
		return KindHTTP
	case *servov1.Code_Go:
		return KindGo
	case *servov1.Code_Python:
		return KindPython
	}
	return ""
}

// The kinds of code.
const (
	KindExec   = "exec"
	KindHTTP   = "http"
	KindGo     = "go"
	KindPython = "python"
)

func (w *Worker) noExecutor(kind string) error {
	var has []string
	for _, e := range w.options.Executors {
		has = append(has, e.Kind())
	}
	return &Error{
		Code: codeUnknown, Message: fmt.Sprintf("this worker does not execute assets of kind %q, only %q", kind, has),
		SuggestedAction: "use a pool whose workers can execute the asset",
	}
}

// finalItem returns the last item of an attempt. An error after the end of the context is attributed
// to the cause of that end; a result is always a result.
func (w *Worker) finalItem(ctx context.Context, a *attempt, result Result, err error) item {
	if err == nil {
		return w.success(a, result)
	}
	if yield, ok := errors.AsType[*YieldError](err); ok {
		if yield.Cursor != nil && a.secrets.has(*yield.Cursor) {
			return a.failed(failureOf(cursorError()))
		}
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
		SuggestedAction: "store the data elsewhere, and return a reference to it",
	}
}

// answered processes the answer to an item.
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
		w.options.Logger.Debug("the server refused a report", "task", a.lease.GetTask(), "problem", problem)
	}
}

// startRefused stops an attempt whose run is being cancelled.
func (w *Worker) startRefused(a *attempt) {
	w.reporter.mu.Lock()
	a.reports.startRefused = true
	w.reporter.mu.Unlock()
	w.mu.Lock()
	cancel := a.cancel
	w.mu.Unlock()
	if cancel != nil { // an attempt that was returned has none
		cancel(ErrCancelled)
	}
}

// lastRefused replaces an end that the server refuses by a failure: otherwise the task would wait
// until its lease expires.
func (w *Worker) lastRefused(a *attempt, it item, problem *servov1.Problem) {
	w.reporter.mu.Lock()
	cancelled, replaced := a.reports.startRefused, a.reports.replaced
	w.reporter.mu.Unlock()
	switch {
	case replaced || problem.GetCode() == problemConflict && !cancelled:
		w.options.Logger.Error("the server refused the end of a task", "task", a.lease.GetTask(), "problem", problem)
		w.lose(a)
	case cancelled:
		w.reporter.replaceLast(a, a.failed(&servov1.Fail{Error: &servov1.Failure{Code: codeCancelled, Message: "cancelled before it started"}}))
	default:
		what := "result"
		switch {
		case it.GetFail() != nil:
			what = "failure"
		case it.GetYield() != nil:
			what = "cursor"
		}
		w.reporter.replaceLast(a, a.failed(&servov1.Fail{Error: &servov1.Failure{
			Code: codeUser, Message: cut(storable("the server refuses the "+what+": "+refusal(problem).Error()), maxMessage),
		}}))
	}
}
