package guides

import (
	"errors"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// guard runs a command and ends it, with everything that it has started, when the test has
// ended for any reason: then the other end of standard input is closed.
const guard = `exec 3<&0
{ cat <&3 >/dev/null; kill -TERM 0; } >/dev/null 2>&1 &
"$@" </dev/null 3<&-`

// certain is the longest that something certain may take on a busy machine.
const certain = 3 * time.Minute

// process is a command in a process group of its own.
type process struct {
	command *exec.Cmd
	hold    io.Closer
	exited  chan error
	once    sync.Once
}

// start starts a command that ends, with all its children, no later than the test. Its
// output goes to a file: a child that keeps it open blocks nothing.
func start(t *testing.T, dir string, env []string, output *os.File, name string, args ...string) *process {
	t.Helper()
	p := &process{exited: make(chan error, 1)}
	p.command = exec.Command("bash", append([]string{"-c", guard, "guard", name}, args...)...)
	p.command.Dir, p.command.Env = dir, env
	p.command.Stdout, p.command.Stderr = output, output
	p.command.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	hold, err := p.command.StdinPipe()
	require.NoError(t, err)
	p.hold = hold
	require.NoError(t, p.command.Start())
	go func() { p.exited <- p.command.Wait() }()
	t.Cleanup(p.end)
	return p
}

// end asks the whole group to end, and kills what does not.
func (p *process) end() {
	p.once.Do(func() {
		group := -p.command.Process.Pid
		_ = syscall.Kill(group, syscall.SIGTERM)
		_ = p.hold.Close()
		for patience := time.Now().Add(10 * time.Second); time.Now().Before(patience); time.Sleep(20 * time.Millisecond) {
			if errors.Is(syscall.Kill(group, 0), syscall.ESRCH) {
				return
			}
		}
		_ = syscall.Kill(group, syscall.SIGKILL)
	})
}

// wait waits for the command's own end.
func (p *process) wait(t *testing.T) error {
	t.Helper()
	select {
	case err := <-p.exited:
		return err
	case <-time.After(certain):
		p.end()
		return errors.New("it never ended")
	}
}

// waitForLine waits until the output of a running command has a line with this prefix, and returns
// the line.
func (p *process) waitForLine(t *testing.T, file, prefix string) string {
	t.Helper()
	for patience := time.Now().Add(certain); time.Now().Before(patience); time.Sleep(20 * time.Millisecond) {
		data, err := os.ReadFile(file)
		require.NoError(t, err)
		for line := range strings.Lines(string(data)) {
			if strings.HasPrefix(line, prefix) && strings.HasSuffix(line, "\n") {
				return strings.TrimSpace(line)
			}
		}
		select {
		case err := <-p.exited:
			require.FailNow(t, "it has ended", "%v\n%s", err, data)
		default:
		}
	}
	require.FailNow(t, "it never printed "+prefix)
	return ""
}
