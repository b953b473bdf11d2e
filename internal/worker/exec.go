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

// Exec executes assets of kind exec: it starts the asset's command with the task as JSON on its
// standard input, and returns the content of the result file. A command gets only a few variables of
// the worker's environment, and all of its processes end with it.
type Exec struct {
	Dir     string   // where commands run; default: a new directory for each, removed afterwards
	PassEnv []string // further variables of the worker's environment that commands get
	User    *User    // that commands run as; nil is the worker's own
}

const (
	killGrace  = 5 * time.Second // from SIGTERM to SIGKILL
	pipeGrace  = 2 * time.Second // for output that processes outside of the group keep open
	maxTail    = 4 << 10         // of stderr in a failure's details
	exitTemp   = 75              // EX_TEMPFAIL: retry later
	resultFile = "result.json"
)

// Kind returns exec.
func (*Exec) Kind() string { return KindExec }

// Capabilities returns exec.
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
	defer os.RemoveAll(private) //nolint:errcheck //nolint:errcheck // a temporary file may remain
	if err := e.User.own(private); err != nil {
		return Result{}, diskError(err)
	}
	cmd, err := e.command(ctx, task, private)
	if err != nil {
		return Result{}, err
	}
	if err := e.addFiles(ctx, task, cmd, private); err != nil {
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

// command prepares the command of a task.
func (e *Exec) command(ctx context.Context, task *Task, private string) (*exec.Cmd, error) {
	l := task.Lease()
	argv := l.GetCode().GetExec().GetCommand()
	if len(argv) == 0 {
		return nil, &Error{Code: codeConfig, Message: "the asset has no command"}
	}
	cmd := exec.Command(argv[0], argv[1:]...) //nolint:gosec,noctx //nolint:gosec,noctx // it runs the manifest's command; run kills the group
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
		value, err := task.expandSecrets(ctx, value)
		if err != nil {
			return nil, err
		}
		cmd.Env = append(cmd.Env, name+"="+value)
	}
	cmd.Env = append(cmd.Env,
		"SERVO_TENANT="+l.GetTenant(), "SERVO_RUN="+l.GetRun(), "SERVO_TASK="+l.GetTask(), "SERVO_ATTEMPT="+strconv.Itoa(int(l.GetAttempt())),
		"SERVO_ASSET="+l.GetAsset(), "SERVO_PARTITION="+l.GetPartition(), "SERVO_PIPELINE="+l.GetPipeline(), "SERVO_CURSOR="+task.Cursor(),
		"SERVO_FENCING_TOKEN="+strconv.FormatInt(l.GetFencingToken(), 10), "SERVO_CONFIG="+l.GetConfig(), "SERVO_TRIGGER="+l.GetTriggerType(), "SERVO_SLOT="+instant(l.GetSlot()),
		"SERVO_INTERVAL_START="+instant(l.GetIntervalStart()), "SERVO_INTERVAL_END="+instant(l.GetIntervalEnd()),
		"SERVO_RESULT="+filepath.Join(private, resultFile))
	if parts := PartitionsOf(l); len(parts) > 0 {
		cmd.Env = append(cmd.Env, "SERVO_PARTITION_FIRST="+parts[0].Bare(), "SERVO_PARTITION_LAST="+parts[len(parts)-1].Bare())
	}
	ownGroup(cmd)
	e.User.become(cmd, private)
	return cmd, nil
}

// addFiles gives the command the directory of its output and a list of its input files.
func (e *Exec) addFiles(ctx context.Context, task *Task, cmd *exec.Cmd, private string) error {
	if dir := task.OutputDir(); dir != "" {
		if err := e.User.own(dir); err != nil {
			return diskError(err)
		}
		cmd.Env = append(cmd.Env, "SERVO_OUTPUT_DIR="+dir)
	}
	if !task.hasInputFiles() {
		return nil
	}
	inputs, err := task.Inputs(ctx)
	if err != nil || len(inputs) == 0 {
		return err
	}
	list, err := Marshal(inputs)
	if err != nil {
		return err
	}
	name := filepath.Join(private, "inputs.json")
	if err := os.WriteFile(name, list, 0o644); err != nil { //nolint:gosec //nolint:gosec // the command's user reads it
		return diskError(err)
	}
	cmd.Env = append(cmd.Env, "SERVO_INPUTS="+name)
	return nil
}

// inputFile is a file rather than a pipe, so that a command need not read it.
func inputFile(private string, body []byte) (*os.File, error) {
	name := filepath.Join(private, "input.json")
	if err := os.WriteFile(name, body, 0o600); err != nil {
		return nil, err
	}
	file, err := os.Open(name) //nolint:gosec //nolint:gosec // created above
	if err != nil {
		return nil, err
	}
	_ = os.Remove(name) // the open file stays readable
	return file, nil
}

// run starts the command and waits until it and all processes that it has started have ended.
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
	closeAll(cmd) // the command has its own copies
	exited := make(chan error, 1)
	go func() { exited <- cmd.Wait() }()
	err := e.wait(ctx, task, cmd, exited)
	killGroup(cmd, syscall.SIGKILL) // processes that the command has left
	drained := make(chan struct{})
	go func() {
		defer close(drained)
		reading.Wait()
	}()
	timer := time.NewTimer(pipeGrace)
	defer timer.Stop()
	select {
	case <-drained:
	case <-timer.C: // a process outside of the group keeps them open
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

// wait waits for the command. When the task should end, it sends SIGTERM, then SIGKILL.
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

// copyLines writes a command's output to the task's log.
func (t *Task) copyLines(from io.Reader, level string, tail *lastBytes) {
	reader := bufio.NewReaderSize(from, maxLine)
	for {
		line, err := reader.ReadSlice('\n')
		if tail != nil {
			tail.add([]byte(t.attempt.secrets.text(string(line))))
		}
		if len(line) > 0 {
			if line[len(line)-1] == '\n' {
				line = line[:len(line)-1]
			}
			t.attempt.logs.line(t.worker, t.attempt, time.Now(), level, oneLine(string(line)))
		}
		if err != nil && !errors.Is(err, bufio.ErrBufferFull) { // a longer line is split
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

// commandError returns the failure of a command.
func commandError(cmd *exec.Cmd, err error, tail *lastBytes) error {
	if _, coded := errors.AsType[*Error](err); coded {
		return err
	}
	exit, exited := errors.AsType[*exec.ExitError](err)
	if !exited {
		failure := &Error{Code: codeConfig, Message: fmt.Sprintf("the command %q cannot be started: %v", cmd.Args[0], err), Cause: err}
		if errors.Is(err, exec.ErrNotFound) || errors.Is(err, fs.ErrNotExist) {
			failure.SuggestedAction = "install it on the worker's machine, or use its path"
		}
		return failure
	}
	details := map[string]any{"stderr": tail.String()}
	if signal, killed := signalOf(exit); killed {
		details["signal"] = signal.String()
		failure := &Error{Code: codeUser, Message: fmt.Sprintf("the command was terminated by signal %s", signal), Details: details, Cause: err}
		if signal == syscall.SIGKILL {
			failure.Code = "WORKER_CRASH"
			failure.Message += ", possibly by the kernel because memory ran out"
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

// readResult reads the JSON of the result file; a missing file is null.
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
	return &Error{Code: code, Message: "cannot create the task's directory: " + err.Error(), Cause: err}
}
