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

	address string // of a server, as it said last; for tests in which servers are not started again

	// began and ended are told of each life, with what it said about itself.
	began func(said string)
	ended func()

	busy sync.Mutex // one fault at a time

	mu    sync.Mutex
	life  *life
	lives []*life
	err   error // of lives that nobody has asked to end like that
}

// life is one process.
type life struct {
	name   string
	cmd    *exec.Cmd
	words  io.WriteCloser
	heard  chan string   // what it said after it was ready
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
	said := bufio.NewScanner(out)
	ready := said.Scan() && strings.HasPrefix(said.Text(), wordReady)
	if ready && impatience.Stop() {
		p.began(strings.TrimSpace(strings.TrimPrefix(said.Text(), wordReady)))
	}
	go p.attend(l, said)
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
	cmd := exec.Command(program) //nolint:noctx // it ends when the test says so
	cmd.Env = append(os.Environ(), roleVariable+"="+string(config), "GORACE=halt_on_error=1")
	// In a group of its own: if the test dies, the kernel wakes stopped orphans with SIGHUP.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Stderr = log
	l := &life{name: name, cmd: cmd, heard: make(chan string, 8), exited: make(chan struct{})}
	if l.words, err = cmd.StdinPipe(); err != nil {
		return nil, nil, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, nil, err
	}
	return l, out, cmd.Start()
}

// attend hears what a process says and buries it. Only an end that was asked for is a good
// one.
func (p *process) attend(l *life, said *bufio.Scanner) {
	for said.Scan() {
		select {
		case l.heard <- said.Text():
		default: // nobody listens to that much
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

// failure is what lives have died of that nobody has asked to die.
func (p *process) failure() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.err
}

func (p *process) signal(s syscall.Signal) {
	_ = p.current().cmd.Process.Signal(s) // it may have ended: attend has noted it
}

// expectEnd says that the end of the current life, which comes now, is ours.
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

// retire asks the current life to end in good order, and says if it did not.
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
// Without a task for a while it is told to behave.
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
	case said := <-l.heard:
		return l, said == wordCaught
	case <-l.exited:
		return l, false
	case <-wait.Done():
	}
	_, _ = fmt.Fprintln(l.words, wordBehave)
	select {
	case said := <-l.heard:
		return l, said == wordCaught
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
