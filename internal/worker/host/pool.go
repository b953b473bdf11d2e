package host

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"os"
	"os/exec"
	"sync"
	"time"
)

// Options configures a pool. A zero field has the default that its comment names.
type Options struct {
	// Supervisor is the command line of a supervisor, without the host's; this binary and
	// SupervisorCommand.
	Supervisor []string
	// Prepare changes the command of a supervisor, for example its user; nothing.
	Prepare func(*exec.Cmd)

	Hosts        int           // idle hosts that are kept; 4
	TasksPerHost int           // after which a host is replaced; 1000
	MemoryLimit  int64         // bytes of a host with its descendants, beyond which it is killed; none
	RecycleAbove int64         // bytes beyond which a host is replaced after its task; three quarters of MemoryLimit
	StartTimeout time.Duration // for the import of the project; 2 m
	Grace        time.Duration // from SIGTERM to SIGKILL; 5 s
	SampleEvery  time.Duration // between two measurements of memory; 100 ms

	Logger *slog.Logger // of the pool itself; none
}

func (o Options) withDefaults() (Options, error) {
	if len(o.Supervisor) == 0 {
		binary, err := os.Executable()
		if err != nil {
			return o, err
		}
		o.Supervisor = []string{binary, SupervisorCommand, "--"}
	}
	o.Hosts = cmp.Or(o.Hosts, 4)
	o.TasksPerHost = cmp.Or(o.TasksPerHost, 1000)
	o.RecycleAbove = cmp.Or(o.RecycleAbove, o.MemoryLimit/4*3)
	o.StartTimeout = cmp.Or(o.StartTimeout, 2*time.Minute)
	o.Grace = cmp.Or(o.Grace, 5*time.Second)
	o.SampleEvery = cmp.Or(o.SampleEvery, 100*time.Millisecond)
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	return o, nil
}

// Code is what a host executes. Hosts are reused for tasks of the same code.
type Code struct {
	Digest  string   // of the code; "" for a directory that may change
	Command []string // the interpreter and its arguments
	Dir     string   // working directory
	Env     []string // the whole environment
}

// key identifies the hosts that can execute the code.
func (c Code) key() string { return c.Digest + "\x00" + c.Dir }

// Pool starts hosts, keeps them warm and replaces them.
type Pool struct {
	options Options

	mu     sync.Mutex
	idle   []*process // the last used one is last
	busy   map[*process]struct{}
	closed bool
}

// NewPool returns a pool without hosts.
func NewPool(options Options) (*Pool, error) {
	options, err := options.withDefaults()
	if err != nil {
		return nil, err
	}
	return &Pool{options: options, busy: map[*process]struct{}{}}, nil
}

// errClosed means that the pool was closed.
var errClosed = errors.New("the worker is stopping")

// Assets starts a host, or uses a warm one, and returns the assets of its project.
func (p *Pool) Assets(ctx context.Context, code Code) ([]string, error) {
	h, err := p.take(ctx, code, nil)
	if err != nil {
		return nil, err
	}
	defer p.put(h)
	return h.hello.Assets, nil
}

// Description is what a project declares.
type Description struct {
	Manifest json.RawMessage
	Places   map[string]string // file and line of each asset
	Problems []Problem         // mistakes that prevent a deployment
}

// Manifest asks a new host for the manifest of its project.
func (p *Pool) Manifest(ctx context.Context, code Code, backend Backend) (Description, error) {
	h, err := start(ctx, &p.options, code, &session{backend: backend})
	if err != nil {
		return Description{}, err
	}
	defer h.kill()
	if err := h.send(&frame{Type: typeDescribe}); err != nil {
		return Description{}, err
	}
	select {
	case f, open := <-h.frames:
		if !open {
			<-h.ended
			return Description{}, h.startFailure()
		}
		h.drain()
		if f.Type == typeError && f.Error != nil {
			return Description{}, f.Error
		}
		return Description{Manifest: f.Manifest, Places: f.Places, Problems: f.Problems}, nil
	case <-h.ended:
		return Description{}, h.startFailure()
	case <-ctx.Done():
		return Description{}, context.Cause(ctx)
	}
}

// Warm starts hosts for the code until the pool has n idle ones, so that first tasks do not wait.
func (p *Pool) Warm(ctx context.Context, code Code, n int) error {
	var started []*process
	var failed error
	for range n {
		h, err := p.take(ctx, code, nil)
		if err != nil {
			failed = err
			break
		}
		started = append(started, h)
	}
	for _, h := range started {
		p.put(h)
	}
	return failed
}

// take returns a host for the code. If it starts one, what the import prints is output of the session.
func (p *Pool) take(ctx context.Context, code Code, s *session) (*process, error) {
	p.mu.Lock()
	if p.closed {
		p.mu.Unlock()
		return nil, errClosed
	}
	var gone []*process
	for i := len(p.idle) - 1; i >= 0; i-- {
		h := p.idle[i]
		if h.hasEnded() {
			p.idle = append(p.idle[:i], p.idle[i+1:]...)
			gone = append(gone, h)
			continue
		}
		if h.code.key() != code.key() {
			continue
		}
		p.idle = append(p.idle[:i], p.idle[i+1:]...)
		p.busy[h] = struct{}{}
		p.mu.Unlock()
		endAll(gone)
		return h, nil
	}
	if len(p.idle) > 0 && len(p.idle)+len(p.busy) >= p.options.Hosts { // hosts of other code make room
		gone = append(gone, p.idle[0])
		p.idle = p.idle[1:]
	}
	p.mu.Unlock()
	endAll(gone)
	h, err := start(ctx, &p.options, code, s)
	if err != nil {
		return nil, err
	}
	p.mu.Lock()
	closed := p.closed
	if !closed {
		p.busy[h] = struct{}{}
	}
	p.mu.Unlock()
	if closed {
		h.kill()
		return nil, errClosed
	}
	return h, nil
}

func endAll(hosts []*process) {
	for _, h := range hosts {
		h.kill()
	}
}

// put returns a host that may be reused.
func (p *Pool) put(h *process) {
	p.mu.Lock()
	delete(p.busy, h)
	keep := !p.closed && !h.hasEnded() && len(p.idle) < p.options.Hosts
	if keep {
		p.idle = append(p.idle, h)
	}
	p.mu.Unlock()
	if !keep {
		h.kill()
	}
}

// discard ends a host that must not be reused.
func (p *Pool) discard(h *process) {
	h.kill()
	p.mu.Lock()
	delete(p.busy, h)
	p.mu.Unlock()
}

// Close ends all hosts.
func (p *Pool) Close() {
	p.mu.Lock()
	p.closed = true
	all := p.idle
	p.idle = nil
	for h := range p.busy {
		all = append(all, h)
	}
	p.mu.Unlock()
	for _, h := range all {
		h.killed.Store(true)
		h.command(commandKill)
	}
	endAll(all)
}
