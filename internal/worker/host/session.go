package host

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"time"
)

// Codes of failures that hosts cause.
const (
	codeHostCrash = "HOST_CRASH"
	codeMemory    = "OUT_OF_MEMORY"
	codeUser      = "USER_CODE_EXCEPTION"
)

// Backend is what a task reaches through its host.
type Backend interface {
	// Log adds a line to the task's log.
	Log(at time.Time, level, line string)
	// Progress reports the progress of the task.
	Progress(p Progress)
	// Answer answers a request of the task: cursor, fanout, secret or mapped.
	Answer(ctx context.Context, method string, params json.RawMessage) (any, error)
}

// Outcome is the end of a task that did not fail.
type Outcome struct {
	Result  json.RawMessage
	Partial bool
	Yielded bool
	Next    *string // the cursor of a yield; nil keeps it
}

// Usage is what a task has used.
type Usage struct {
	CPUSeconds      float64
	MemoryGBSeconds float64 // resident set, sampled
	PeakMemory      int64   // bytes, sampled
	Warm            bool    // the host had executed a task before
}

// session is the execution of one task by a host.
type session struct {
	pool    *Pool
	host    *process
	backend Backend
	task    string

	usage   Usage
	started time.Time
}

// Execute runs a task on a warm or a new host. The context ends when the task should end: the host then
// gets a cancel frame and SIGTERM, and SIGKILL after the grace or when abort is closed.
func (p *Pool) Execute(ctx context.Context, code Code, task string, run *Run, backend Backend, abort <-chan struct{}) (Outcome, Usage, error) {
	s := &session{pool: p, backend: backend, task: task}
	h, err := p.take(ctx, code, s)
	if err != nil {
		return Outcome{}, Usage{}, err
	}
	s.host, s.started = h, time.Now()
	s.usage.Warm = h.tasks > 0
	h.tasks++
	h.tail.reset()
	h.current.Store(s)
	reuse := false
	defer func() {
		h.current.Store(nil)
		if reuse {
			p.put(h)
		} else {
			p.discard(h)
		}
	}()
	if err := h.send(&frame{Type: typeRun, Task: task, Run: run}); err != nil {
		if errors.Is(err, errFrame) {
			reuse = true
			return Outcome{}, s.usage, &Failure{Class: "INVALID_CONFIGURATION", Message: "the task's parameters and inputs are too large: " + err.Error(), Remedy: "pass large data by reference"}
		}
		// The host has ended; its status is read below.
	}
	outcome, err := s.wait(ctx, abort)
	if err == nil || !h.hasEnded() {
		h.drain()
		reuse = ctx.Err() == nil && s.reusable()
	}
	return outcome, s.usage, err
}

// reusable reports whether the host can execute another task.
func (s *session) reusable() bool {
	h, o := s.host, s.pool.options
	switch {
	case h.hasEnded() || h.killed.Load():
		return false
	case h.tasks >= o.TasksPerHost:
		o.Logger.Debug("a host is replaced after its number of tasks", "tasks", h.tasks)
		return false
	case h.hasChildren():
		o.Logger.Debug("a host is replaced: its task left processes", "task", s.task)
		return false
	case o.RecycleAbove > 0 && h.memory() > o.RecycleAbove:
		o.Logger.Debug("a host is replaced because of its memory", "task", s.task)
		return false
	}
	return true
}

// wait processes the frames of the host until its task has ended.
func (s *session) wait(ctx context.Context, abort <-chan struct{}) (Outcome, error) {
	h := s.host
	answers, stop := context.WithCancel(ctx)
	var answering sync.WaitGroup
	defer answering.Wait()
	defer stop()
	sample := time.NewTicker(s.pool.options.SampleEvery)
	defer sample.Stop()
	sampled := s.started
	cancelled, frames := ctx.Done(), h.frames
	var kill <-chan time.Time
	var timer *time.Timer
	defer func() {
		if timer != nil {
			timer.Stop()
		}
	}()
	for {
		select {
		case f, open := <-frames:
			if !open { // it ends, or its code has closed the pipe
				frames = nil
				timer = time.NewTimer(escapeGrace)
				kill = timer.C
				continue
			}
			if outcome, done, err := s.process(answers, &answering, f); done {
				return outcome, err
			}
		case <-h.ended:
			for f := range h.frames { // it may have sent the end of the task before its own
				if outcome, done, err := s.process(answers, &answering, f); done {
					return outcome, err
				}
			}
			return Outcome{}, s.hostEnded(ctx)
		case now := <-sample.C:
			s.measure(now.Sub(sampled))
			sampled = now
		case <-cancelled:
			cancelled = nil
			// The frame may block if the host does not read: the signal does not wait for it.
			go func() { _ = h.send(&frame{Type: typeCancel, Task: s.task, Reason: reasonOf(ctx)}) }()
			h.command(commandTerminate)
			timer = time.NewTimer(s.pool.options.Grace)
			kill = timer.C
		case <-kill:
			kill = nil
			h.killed.Store(ctx.Err() != nil)
			h.command(commandKill)
		case <-whenCancelled(ctx, abort):
			abort = nil
			h.killed.Store(true)
			h.command(commandKill)
		}
	}
}

// whenCancelled returns abort once the context has ended.
func whenCancelled(ctx context.Context, abort <-chan struct{}) <-chan struct{} {
	if ctx.Err() == nil {
		return nil
	}
	return abort
}

// reasoned is a cause with the name that hosts know.
type reasoned interface {
	error
	Reason() string
}

// reasonOf names the cause of the end of a context for a cancel frame.
func reasonOf(ctx context.Context) string {
	if named, ok := errors.AsType[reasoned](context.Cause(ctx)); ok {
		return named.Reason()
	}
	return "CANCELLED"
}

// process processes one frame. Frames of an earlier task, from a thread that it has left, are ignored.
func (s *session) process(ctx context.Context, answering *sync.WaitGroup, f *frame) (outcome Outcome, done bool, err error) {
	if f.Task != "" && f.Task != s.task {
		return outcome, false, nil
	}
	switch f.Type {
	case typeProgress:
		if f.Progress != nil {
			s.backend.Progress(*f.Progress)
		}
	case typeRequest:
		answering.Go(func() { s.answer(ctx, f) })
	case typeResult:
		s.usage.CPUSeconds = f.CPU
		return Outcome{Result: f.Result, Partial: f.Partial}, true, nil
	case typeYield:
		s.usage.CPUSeconds = f.CPU
		return Outcome{Yielded: true, Next: f.Next}, true, nil
	case typeError:
		s.usage.CPUSeconds = f.CPU
		if f.Error == nil {
			f.Error = &Failure{Class: codeUser, Message: "the host reported an error without a message"}
		}
		return outcome, true, f.Error
	}
	return outcome, false, nil
}

// answer answers a request.
func (s *session) answer(ctx context.Context, request *frame) {
	reply := &frame{Type: typeAnswer, ID: request.ID}
	value, err := s.backend.Answer(ctx, request.Method, request.Params)
	if err == nil {
		reply.Value, err = json.Marshal(value)
	}
	if err != nil {
		failure, ok := errors.AsType[*Failure](err)
		if !ok {
			failure = &Failure{Class: codeUser, Message: err.Error()}
		}
		reply.Value, reply.Error = nil, failure
	}
	_ = s.host.send(reply) // the host may have ended
}

// measure adds a sample of the memory, and kills a host beyond its limit.
func (s *session) measure(since time.Duration) {
	used := s.host.memory()
	s.usage.MemoryGBSeconds += float64(used) / 1e9 * since.Seconds()
	s.usage.PeakMemory = max(s.usage.PeakMemory, used)
	if limit := s.pool.options.MemoryLimit; limit > 0 && used > limit && !s.host.overflow.Swap(true) {
		s.host.command(commandKill)
	}
}

// hostEnded returns why a host ended in the middle of its task.
func (s *session) hostEnded(ctx context.Context) error {
	h := s.host
	s.usage.CPUSeconds = h.status.CPU
	s.usage.PeakMemory = max(s.usage.PeakMemory, h.status.MaxRSS)
	details := map[string]any{"stderr": h.tail.String()}
	if h.status.Signal != 0 {
		details["signal"] = signalName(h.status.Signal)
	} else {
		details["exit_code"] = h.status.Exit
	}
	limit := s.pool.options.MemoryLimit
	switch {
	case h.overflow.Load():
		return &Failure{
			Class: codeMemory, Message: fmt.Sprintf("the task used %s of memory, the limit of its host is %s", bytesText(s.usage.PeakMemory), bytesText(limit)),
			Details: details, Remedy: "process the data in smaller parts, or start the worker with a larger --host-memory",
		}
	case ctx.Err() != nil:
		return &Failure{Class: codeHostCrash, Message: fmt.Sprintf("the host ended with %s after its task was stopped: %v", h.end(), context.Cause(ctx)), Details: details}
	case h.killed.Load():
		return &Failure{Class: codeHostCrash, Message: "the worker stopped the host", Details: details}
	case h.status.Signal == sigKill && outOfMemoryKills() > h.oomBefore:
		return &Failure{
			Class: codeMemory, Message: "the kernel killed the host because memory ran out", Details: details,
			Remedy: "process the data in smaller parts, or give the worker more memory",
		}
	case h.status.Signal != 0:
		return &Failure{
			Class: codeHostCrash, Message: fmt.Sprintf("the host died by %s while it executed the task", h.end()), Details: details,
			Remedy: "read the traceback at the end of the log: native code has crashed, or another process has killed the host",
		}
	}
	return &Failure{
		Class: codeUser, Message: fmt.Sprintf("the process exited with code %d while it executed the task", h.status.Exit), Details: details,
		Remedy: "return from the function, or raise an exception, instead of ending the process",
	}
}

const sigKill = 9

// bytesText formats a number of bytes for people.
func bytesText(n int64) string {
	const mib = 1 << 20
	if n >= 10<<30 {
		return fmt.Sprintf("%d GiB", n>>30)
	}
	return fmt.Sprintf("%d MiB", n/mib)
}
