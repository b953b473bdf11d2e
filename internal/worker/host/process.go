package host

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"sync"
	"sync/atomic"
	"time"
)

// process is a host with its supervisor.
type process struct {
	options *Options
	code    Code
	cmd     *exec.Cmd
	hello   *frame
	tasks   int // that it has executed

	control, down *os.File // write ends
	up            *os.File
	frames        chan *frame   // closed when the host has closed its pipe
	abandoned     chan struct{} // closed when no caller reads frames any more
	abandon       sync.Once
	outputs       []*output
	tail          lastBytes // of its standard error
	pid           int
	oomBefore     int64

	current atomic.Pointer[session] // whose output it is
	writing sync.Mutex

	ended    chan struct{} // closed when the supervisor has ended; then status is set
	status   status
	overflow atomic.Bool // it was killed because of its memory
	killed   atomic.Bool // the worker has killed it
}

// errStart means that a host ended before it was ready.
var errStart = errors.New("the host did not start")

// start starts a host and waits until it has imported its project. What the import prints is output of
// the session, if there is one.
func start(ctx context.Context, options *Options, code Code, s *session) (*process, error) {
	p := &process{options: options, code: code, frames: make(chan *frame), abandoned: make(chan struct{}), ended: make(chan struct{}), oomBefore: outOfMemoryKills()}
	p.current.Store(s)
	if err := p.launch(); err != nil {
		return nil, err
	}
	timer := time.NewTimer(options.StartTimeout)
	defer timer.Stop()
	var failed error
	select {
	case f, open := <-p.frames:
		switch {
		case !open:
			<-p.ended
			failed = p.startFailure()
		case f.Type == typeHello && f.Protocol == Protocol:
			p.hello = f
			return p, nil
		case f.Type == typeHello:
			failed = &Failure{
				Class:   "INVALID_CONFIGURATION",
				Message: fmt.Sprintf("the SDK %s speaks version %d of the host protocol, this worker version %d", f.SDK, f.Protocol, Protocol),
				Remedy:  "install the SDK of the worker's version",
			}
		case f.Type == typeError && f.Error != nil:
			failed = f.Error
		default:
			failed = fmt.Errorf("%w: its first frame is %q", errStart, f.Type)
		}
	case <-p.ended:
		failed = p.startFailure()
	case <-timer.C:
		failed = &Failure{
			Class: "IMPORT_ERROR", Message: fmt.Sprintf("the project was not imported within %s", options.StartTimeout),
			Remedy: "move long work from the top level of modules into functions",
		}
	case <-ctx.Done():
		failed = context.Cause(ctx)
	}
	p.kill()
	return nil, failed
}

// startFailure describes a host that ended before its first frame.
func (p *process) startFailure() error {
	message := fmt.Sprintf("the host ended before it was ready: %s", p.end())
	if p.status.Error != "" {
		message = "the host cannot be started: " + p.status.Error
	}
	return &Failure{
		Class: "IMPORT_ERROR", Message: message, Details: map[string]any{"stderr": p.tail.String()},
		Remedy: "start it by hand and read its output: " + p.code.Command[0],
	}
}

// launch starts the supervisor and the goroutines that read its pipes.
func (p *process) launch() error {
	var ours, theirs []*os.File
	abandon := func(err error) error {
		for _, f := range append(ours, theirs...) {
			_ = f.Close()
		}
		return fmt.Errorf("start a host: %w", err)
	}
	pipe := func(readOurs bool) (err error) {
		r, w, err := os.Pipe()
		if err != nil {
			return err
		}
		if readOurs {
			ours, theirs = append(ours, r), append(theirs, w)
		} else {
			ours, theirs = append(ours, w), append(theirs, r)
		}
		return nil
	}
	// control, stdout, stderr, down, up, log, status
	for _, readOurs := range []bool{false, true, true, false, true, true, true} {
		if err := pipe(readOurs); err != nil {
			return abandon(err)
		}
	}
	environment := append([]string{}, p.code.Env...)
	program := append([]string{lookPath(p.code.Command[0], environment)}, p.code.Command[1:]...)
	p.cmd = exec.Command(p.options.Supervisor[0], append(p.options.Supervisor[1:len(p.options.Supervisor):len(p.options.Supervisor)], program...)...) //nolint:gosec,noctx // this binary; kill ends it
	p.cmd.Dir, p.cmd.Env = p.code.Dir, environment
	p.cmd.Stdin, p.cmd.Stdout, p.cmd.Stderr, p.cmd.ExtraFiles = theirs[0], theirs[1], theirs[2], theirs[3:]
	ownGroup(p.cmd)
	if p.options.Prepare != nil {
		p.options.Prepare(p.cmd)
	}
	if err := p.cmd.Start(); err != nil {
		return abandon(err)
	}
	for _, f := range theirs {
		_ = f.Close()
	}
	p.control, p.down, p.up = ours[0], ours[3], ours[4]
	p.outputs = []*output{
		newOutput(ours[1], p.plainLine("INFO", nil)),
		newOutput(ours[2], p.plainLine("WARN", &p.tail)),
		newOutput(ours[5], p.record),
	}
	go p.receive()
	go p.supervise(ours[6])
	return nil
}

// receive passes the frames of the host to its current user. An invalid frame ends the host.
func (p *process) receive() {
	defer close(p.frames)
	defer p.up.Close()
	reader := bufio.NewReaderSize(p.up, 64<<10)
	for {
		f, err := readFrame(reader)
		if errors.Is(err, errFrame) {
			f = &frame{Type: typeError, Error: &Failure{Class: codeHostCrash, Message: "the host sent an " + err.Error()}}
			p.killed.Store(true)
			p.command(commandKill)
		} else if err != nil {
			return // the end of the host is detected by its supervisor
		}
		select {
		case p.frames <- f:
		case <-p.abandoned:
			return
		}
		if err != nil {
			return
		}
	}
}

// escapeGrace bounds how long pipes are read that an escaped process keeps open.
const escapeGrace = 2 * time.Second

// supervise records the end of the host.
func (p *process) supervise(from *os.File) {
	defer from.Close()
	decoder := json.NewDecoder(from)
	for {
		var s status
		if err := decoder.Decode(&s); err != nil {
			break
		}
		if s.PID != 0 {
			p.setPID(s.PID)
			continue
		}
		p.status = s
	}
	_ = p.cmd.Wait() // its status was read
	if !p.status.Ended && p.status.Error == "" {
		p.status = status{Ended: true, Signal: sigKill} // the supervisor was killed, and its host with it
		if pid := p.hostPID(); pid != 0 {
			killGroup(pid)
		}
	}
	_ = p.up.SetReadDeadline(time.Now().Add(escapeGrace))
	_ = p.control.Close()
	_ = p.down.Close()
	for _, o := range p.outputs {
		o.close()
	}
	close(p.ended)
}

func (p *process) setPID(pid int) {
	p.writing.Lock()
	defer p.writing.Unlock()
	p.pid = pid
}

// hostPID returns the process id of the host; 0 before it was started.
func (p *process) hostPID() int {
	p.writing.Lock()
	defer p.writing.Unlock()
	return p.pid
}

// send writes a frame to the host. A host that does not read is killed at the latest when its task ends.
func (p *process) send(f *frame) error {
	data, err := encodeFrame(f)
	if err != nil {
		return err
	}
	p.writing.Lock()
	defer p.writing.Unlock()
	_, err = p.down.Write(data)
	return err
}

// command sends a command to the supervisor; an error means that it has ended.
func (p *process) command(c byte) { _, _ = p.control.Write([]byte{c}) }

// kill ends the host with all its descendants, and waits for it.
func (p *process) kill() {
	p.killed.Store(true)
	p.command(commandKill)
	<-p.ended
	p.abandon.Do(func() { close(p.abandoned) })
}

// hasEnded reports whether the host has ended.
func (p *process) hasEnded() bool {
	select {
	case <-p.ended:
		return true
	default:
		return false
	}
}

// drain passes all output that the host has written so far.
func (p *process) drain() {
	for _, o := range p.outputs {
		o.drain()
	}
}

// plainLine returns a function that logs a line of output.
func (p *process) plainLine(level string, tail *lastBytes) func([]byte) {
	return func(line []byte) {
		if tail != nil {
			tail.add(line)
			tail.add([]byte{'\n'})
		}
		p.log(time.Now(), level, string(line))
	}
}

// logRecord is a record of the log pipe: one JSON object on a line.
type logRecord struct {
	Time    float64 `json:"time"` // seconds since 1970
	Level   string  `json:"level"`
	Message string  `json:"message"`
}

// record logs a record of the host's logger. A line that is no record, such as a truncated one, is text.
func (p *process) record(line []byte) {
	var r logRecord
	if json.Unmarshal(line, &r) != nil || r.Message == "" {
		p.log(time.Now(), "INFO", string(line))
		return
	}
	at := time.Now()
	if r.Time > 0 {
		at = time.UnixMicro(int64(r.Time * 1e6))
	}
	p.log(at, r.Level, r.Message)
}

func (p *process) log(at time.Time, level, line string) {
	if s := p.current.Load(); s != nil {
		s.backend.Log(at, level, line)
		return
	}
	p.options.Logger.Debug("output of a host without a task", "line", line)
}

// memory returns the resident set of the host and all its descendants.
func (p *process) memory() int64 {
	pid := p.cmd.Process.Pid
	total := int64(0)
	for _, child := range descendants(pid) {
		total += residentSet(child)
	}
	return total
}

// hasChildren reports whether the host's task has left processes.
func (p *process) hasChildren() bool { return len(descendants(p.cmd.Process.Pid)) > 1 }

// end describes how the host ended. The process must have ended.
func (p *process) end() string {
	if p.status.Signal != 0 {
		return "signal " + signalName(p.status.Signal)
	}
	return fmt.Sprintf("exit code %d", p.status.Exit)
}

const maxTail = 4 << 10

// lastBytes keeps the end of a stream.
type lastBytes struct {
	mu   sync.Mutex
	data []byte
}

func (t *lastBytes) add(more []byte) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.data = append(t.data, more...)
	if extra := len(t.data) - maxTail; extra > 0 {
		t.data = append(t.data[:0], t.data[extra:]...)
	}
}

// String returns the kept bytes.
func (t *lastBytes) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return string(t.data)
}

func (t *lastBytes) reset() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.data = nil
}
