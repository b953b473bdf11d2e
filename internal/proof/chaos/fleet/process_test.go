package fleet

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"
)

// Bounds of what a process may take, on a machine with better things to do too. They are for
// what is stuck, and no measure of speed.
const (
	startPatience = 2 * time.Minute
	stopPatience  = 2 * time.Minute
	lurePatience  = 2 * time.Second
)

// process is a place for a server or a worker: its lives come and go.
type process struct {
	name string
	role func(name string) role // of the next life
	dir  string                 // for logs

	address string // of a server, as it reported last; for tests in which servers are not started again

	// began and ended are called for each life, with what it reported about itself.
	began func(report string)
	ended func()

	busy sync.Mutex // one fault at a time

	mu    sync.Mutex
	life  *life
	lives []*life
	err   error // of lives that were not asked to end like that
}

// life is one process.
type life struct {
	name   string
	cmd    *exec.Cmd
	words  io.WriteCloser
	lines  chan string   // what it printed after it was ready
	exited chan struct{} // closed when it is buried
	asked  bool          // its end is ours; guarded by process.mu
}

func (l *life) code() int { return l.cmd.ProcessState.ExitCode() }

// start begins a life and waits until the process works.
func (p *process) start() error {
	p.mu.Lock()
	name := fmt.Sprintf("%s-%d", p.name, len(p.lives)+1)
	p.mu.Unlock()
	l, out, err := p.spawn(name)
	if err != nil {
		return err
	}
	p.mu.Lock()
	p.life, p.lives = l, append(p.lives, l)
	p.mu.Unlock()
	impatience := time.AfterFunc(startPatience, func() { _ = l.cmd.Process.Kill() })
	output := bufio.NewScanner(out)
	ready := output.Scan() && strings.HasPrefix(output.Text(), wordReady)
	if ready && impatience.Stop() {
		p.began(strings.TrimSpace(strings.TrimPrefix(output.Text(), wordReady)))
	}
	go p.attend(l, output)
	if !ready {
		return fmt.Errorf("%s did not get ready: see its log", name)
	}
	return nil
}

func (p *process) spawn(name string) (*life, io.Reader, error) {
	program, err := os.Executable()
	if err != nil {
		return nil, nil, err
	}
	config, err := json.Marshal(p.role(name))
	if err != nil {
		return nil, nil, err
	}
	log, err := os.Create(filepath.Join(p.dir, name+".log"))
	if err != nil {
		return nil, nil, err
	}
	defer log.Close()
	cmd := exec.Command(program) //nolint:noctx // it ends when the test ends it
	cmd.Env = append(os.Environ(), roleVariable+"="+string(config), "GORACE=halt_on_error=1")
	// In a group of its own: if the test dies, the kernel wakes stopped orphans with SIGHUP.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Stderr = log
	l := &life{name: name, cmd: cmd, lines: make(chan string, 8), exited: make(chan struct{})}
	if l.words, err = cmd.StdinPipe(); err != nil {
		return nil, nil, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, nil, err
	}
	return l, out, cmd.Start()
}

// attend reads the output of a process and waits for its end. Only an end that was asked for is a good
// one.
func (p *process) attend(l *life, output *bufio.Scanner) {
	for output.Scan() {
		select {
		case l.lines <- output.Text():
		default: // more output than the test reads
		}
	}
	err := l.cmd.Wait()
	p.ended()
	p.mu.Lock()
	if !l.asked {
		p.err = errors.Join(p.err, fmt.Errorf("%s ended by itself: %w", l.name, err))
	}
	p.mu.Unlock()
	close(l.exited)
}

// current is the life of now.
func (p *process) current() *life {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.life
}

// failure is the error of lives that ended without being asked to.
func (p *process) failure() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.err
}

func (p *process) signal(s syscall.Signal) {
	_ = p.current().cmd.Process.Signal(s) // it may have ended: attend has noted it
}

// expectEnd marks the end of the current life, which comes now, as intended.
func (p *process) expectEnd() *life {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.life.asked = true
	return p.life
}

// kill ends the current life in the middle of whatever it does.
func (p *process) kill() {
	l := p.expectEnd()
	_ = l.cmd.Process.Kill() // a stopped process dies of it too
	<-l.exited
}

// retire asks the current life to end in good order, and returns an error if it did not.
func (p *process) retire(allowed ...int) error {
	l := p.expectEnd()
	_ = l.cmd.Process.Signal(syscall.SIGTERM)
	return p.awaitEnd(l, allowed...)
}

// awaitEnd waits for a life that ends in good order.
func (p *process) awaitEnd(l *life, allowed ...int) error {
	impatience := time.AfterFunc(stopPatience, func() { _ = l.cmd.Process.Signal(syscall.SIGQUIT) }) // it shows its goroutines
	<-l.exited
	if impatience.Stop() && slices.Contains(allowed, l.code()) {
		return nil
	}
	return fmt.Errorf("%s was asked to end and ended as %v: see its log", l.name, l.cmd.ProcessState)
}

// lure asks a worker to do something in the task that comes next, and reports whether it does.
// Without a task for a while it is ordered to behave.
func (p *process) lure(ctx context.Context, word string) (life *life, caught bool) {
	l := p.current()
	p.mu.Lock()
	l.asked = word != wordFreeze
	p.mu.Unlock()
	defer func() {
		p.mu.Lock()
		l.asked = l.asked && caught
		p.mu.Unlock()
	}()
	_, _ = fmt.Fprintln(l.words, word) // a process that is gone is noted elsewhere
	wait, cancel := context.WithTimeout(ctx, lurePatience)
	defer cancel()
	select {
	case line := <-l.lines:
		return l, line == wordCaught
	case <-l.exited:
		return l, false
	case <-wait.Done():
	}
	_, _ = fmt.Fprintln(l.words, wordBehave)
	select {
	case line := <-l.lines:
		return l, line == wordCaught
	case <-l.exited:
		return l, false
	}
}

// end leaves nothing behind, however the test went.
func (p *process) end() {
	if p.current() != nil {
		p.kill()
	}
}

// leftovers are the lives of which something still runs.
func (p *process) leftovers() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	var left []string
	for _, l := range p.lives {
		if err := syscall.Kill(-l.cmd.Process.Pid, 0); !errors.Is(err, syscall.ESRCH) {
			left = append(left, l.name)
		}
	}
	return left
}
