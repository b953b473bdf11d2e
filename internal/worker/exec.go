package worker

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"sync"
	"syscall"
	"time"

	"go.arco.dev/servo/internal/base/telemetry"
	"go.arco.dev/servo/internal/domain/run"
)

// Exec executes assets of kind exec: it starts the asset's command with the task as JSON on
// its standard input, and takes what the command leaves in the result file as the result.
// A command never sees the worker's environment, but for a few names, and leaves no process
// behind.
type Exec struct {
	Dir     string   // where commands run; a directory of their own, removed after, if not said
	PassEnv []string // names of the worker's environment that commands get beside the usual ones
	User    *User    // that commands run as; nil is the worker's own
}

const (
	killGrace  = 5 * time.Second // from SIGTERM to SIGKILL
	pipeGrace  = 2 * time.Second // for output that processes outside of the group hold open
	maxTail    = 4 << 10         // of stderr in a failure's details
	exitTemp   = 75              // EX_TEMPFAIL: try again later
	resultFile = "result.json"
)

// Kind is exec.
func (*Exec) Kind() string { return KindExec }

// Capabilities is exec.
func (*Exec) Capabilities() []string { return []string{KindExec} }

// Execute runs one command to its end.
func (e *Exec) Execute(ctx context.Context, task *Task) (Result, error) {
	body, err := task.Input(ctx)
	if err != nil {
		return Result{}, err
	}
	private, err := os.MkdirTemp("", "servo-task-")
	if err != nil {
		return Result{}, diskError(err)
	}
	defer os.RemoveAll(private) //nolint:errcheck // what cannot be removed is a temporary file
	if err := e.User.own(private); err != nil {
		return Result{}, diskError(err)
	}
	cmd, err := e.command(task, private)
	if err != nil {
		return Result{}, err
	}
	stdin, err := inputFile(private, body)
	if err != nil {
		return Result{}, diskError(err)
	}
	defer stdin.Close()
	cmd.Stdin = stdin
	if traceparent, tracestate := telemetry.Split(traceOf(ctx)); traceparent != "" {
		cmd.Env = append(cmd.Env, "TRACEPARENT="+traceparent, "TRACESTATE="+tracestate)
	}
	tail := &lastBytes{}
	if err := e.run(ctx, task, cmd, tail); err != nil {
		return Result{}, commandError(cmd, err, tail)
	}
	return e.readResult(filepath.Join(private, resultFile))
}

// command is the command of a task, ready to start.
func (e *Exec) command(task *Task, private string) (*exec.Cmd, error) {
	l := task.Lease()
	argv := l.GetCode().GetExec().GetCommand()
	if len(argv) == 0 {
		return nil, &Error{Code: codeConfig, Message: "the asset has no command"}
	}
	cmd := exec.Command(argv[0], argv[1:]...) //nolint:gosec,noctx // running the manifest's command is what this is for; the group is ended below
	cmd.Dir = private
	if e.Dir != "" {
		cmd.Dir = e.Dir
	}
	cmd.Env = []string{}
	for _, name := range append([]string{"PATH", "HOME", "TMPDIR", "LANG", "TZ"}, e.PassEnv...) {
		if value, set := os.LookupEnv(name); set {
			cmd.Env = append(cmd.Env, name+"="+value)
		}
	}
	for name, value := range l.GetCode().GetExec().GetEnv() {
		cmd.Env = append(cmd.Env, name+"="+value)
	}
	cmd.Env = append(cmd.Env,
		"SERVO_TENANT="+l.GetTenant(), "SERVO_RUN="+l.GetRun(), "SERVO_TASK="+l.GetTask(), "SERVO_ATTEMPT="+strconv.Itoa(int(l.GetAttempt())),
		"SERVO_ASSET="+l.GetAsset(), "SERVO_PARTITION="+l.GetPartition(), "SERVO_PIPELINE="+l.GetPipeline(), "SERVO_CURSOR="+task.Cursor(),
		"SERVO_CONFIG="+l.GetConfig(), "SERVO_TRIGGER="+l.GetTriggerType(), "SERVO_SLOT="+instant(l.GetSlot()),
		"SERVO_INTERVAL_START="+instant(l.GetIntervalStart()), "SERVO_INTERVAL_END="+instant(l.GetIntervalEnd()),
		"SERVO_RESULT="+filepath.Join(private, resultFile))
	ownGroup(cmd)
	e.User.become(cmd, private)
	return cmd, nil
}

// inputFile is a file rather than a pipe: a command that does not read it holds up nobody.
func inputFile(private string, body []byte) (*os.File, error) {
	name := filepath.Join(private, "input.json")
	if err := os.WriteFile(name, body, 0o600); err != nil {
		return nil, err
	}
	file, err := os.Open(name) //nolint:gosec // made above
	if err != nil {
		return nil, err
	}
	_ = os.Remove(name) // it stays open
	return file, nil
}

// run starts the command and waits until it and everything that it has started is gone.
func (e *Exec) run(ctx context.Context, task *Task, cmd *exec.Cmd, tail *lastBytes) error {
	var reading sync.WaitGroup
	var pipes []*os.File
	defer func() {
		for _, p := range pipes {
			p.Close()
		}
	}()
	for _, stream := range []struct {
		to    *io.Writer
		level string
		tail  *lastBytes
	}{{&cmd.Stdout, "INFO", nil}, {&cmd.Stderr, "WARN", tail}} {
		reader, writer, err := os.Pipe()
		if err != nil {
			return &Error{Code: "WORKER_CRASH", Message: "no pipe for the command's output: " + err.Error(), Cause: err}
		}
		defer writer.Close()
		*stream.to = writer
		pipes = append(pipes, reader)
		reading.Go(func() { task.copyLines(reader, stream.level, stream.tail) })
	}
	if err := cmd.Start(); err != nil {
		closeAll(cmd)
		reading.Wait()
		return err
	}
	closeAll(cmd) // the command has its own
	exited := make(chan error, 1)
	go func() { exited <- cmd.Wait() }()
	err := e.wait(ctx, task, cmd, exited)
	killGroup(cmd, syscall.SIGKILL) // what the command has left behind
	drained := make(chan struct{})
	go func() {
		defer close(drained)
		reading.Wait()
	}()
	timer := time.NewTimer(pipeGrace)
	defer timer.Stop()
	select {
	case <-drained:
	case <-timer.C: // somebody outside of the group holds them open
		for _, p := range pipes {
			_ = p.SetReadDeadline(time.Now())
		}
		<-drained
	}
	return err
}

func closeAll(cmd *exec.Cmd) {
	for _, w := range []io.Writer{cmd.Stdout, cmd.Stderr} {
		if f, ok := w.(*os.File); ok {
			f.Close()
		}
	}
}

// wait waits for the command. When the task should end the command is asked, then killed.
func (e *Exec) wait(ctx context.Context, task *Task, cmd *exec.Cmd, exited <-chan error) error {
	select {
	case err := <-exited:
		return err
	case <-ctx.Done():
	}
	killGroup(cmd, syscall.SIGTERM)
	timer := time.NewTimer(killGrace)
	defer timer.Stop()
	select {
	case err := <-exited:
		return err
	case <-timer.C:
	case <-task.Aborted():
	}
	killGroup(cmd, syscall.SIGKILL)
	return <-exited
}

// copyLines makes log lines of a command's output.
func (t *Task) copyLines(from io.Reader, level string, tail *lastBytes) {
	reader := bufio.NewReaderSize(from, maxLine)
	for {
		line, err := reader.ReadSlice('\n')
		if tail != nil {
			tail.add(line)
		}
		if len(line) > 0 {
			if line[len(line)-1] == '\n' {
				line = line[:len(line)-1]
			}
			t.attempt.logs.line(t.worker, t.attempt, time.Now(), level, oneLine(string(line)))
		}
		if err != nil && !errors.Is(err, bufio.ErrBufferFull) { // a longer line becomes several
			return
		}
	}
}

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

func (t *lastBytes) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return storable(string(t.data))
}

// commandError is the failure of a command that did not end well.
func commandError(cmd *exec.Cmd, err error, tail *lastBytes) error {
	if _, coded := errors.AsType[*Error](err); coded {
		return err
	}
	exit, exited := errors.AsType[*exec.ExitError](err)
	if !exited {
		failure := &Error{Code: codeConfig, Message: fmt.Sprintf("the command %q cannot be started: %v", cmd.Args[0], err), Cause: err}
		if errors.Is(err, exec.ErrNotFound) || errors.Is(err, fs.ErrNotExist) {
			failure.SuggestedAction = "install it on the worker's machine, or name it by its path"
		}
		return failure
	}
	details := map[string]any{"stderr": tail.String()}
	if signal, killed := signalOf(exit); killed {
		details["signal"] = signal.String()
		failure := &Error{Code: codeUser, Message: fmt.Sprintf("the command was ended by signal %s", signal), Details: details, Cause: err}
		if signal == syscall.SIGKILL {
			failure.Code = "WORKER_CRASH"
			failure.Message += ", perhaps by the kernel for want of memory"
		}
		return failure
	}
	details["exit_code"] = exit.ExitCode()
	failure := &Error{Code: codeUser, Message: fmt.Sprintf("the command exited with code %d", exit.ExitCode()), Details: details, Cause: err}
	if exit.ExitCode() == exitTemp {
		failure.Code = "SERVICE_UNAVAILABLE"
	}
	return failure
}

// readResult takes the JSON that a command has left; none is null.
func (e *Exec) readResult(name string) (Result, error) {
	file, err := e.User.openResult(name)
	if errors.Is(err, fs.ErrNotExist) {
		return Result{}, nil
	}
	if err != nil {
		return Result{}, &Error{Code: codeUser, Message: "the result file cannot be read: " + err.Error(), Cause: err}
	}
	defer file.Close()
	data, err := io.ReadAll(io.LimitReader(file, run.MaxResultLength+1))
	if err != nil {
		return Result{}, &Error{Code: codeUser, Message: "the result file cannot be read: " + err.Error(), Cause: err}
	}
	if len(data) > run.MaxResultLength {
		failure := tooLarge(len(data))
		failure.Message = fmt.Sprintf("the result file has more than %d bytes", run.MaxResultLength)
		return Result{}, failure
	}
	return Result{JSON: data}, nil
}

func diskError(err error) error {
	code := "WORKER_CRASH"
	if errors.Is(err, syscall.ENOSPC) {
		code = "DISK_FULL"
	}
	return &Error{Code: code, Message: "the task has no directory of its own: " + err.Error(), Cause: err}
}
