package devpg

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"go.arco.dev/servo/internal/base/fault"
)

const (
	startPatience     = 2 * time.Minute  // a crashed bench has much to recover
	fastPatience      = 30 * time.Second // a fast shutdown writes a checkpoint
	immediatePatience = 10 * time.Second // PostgreSQL itself kills its backends after 5 s
	killPatience      = 10 * time.Second
	pollEvery         = 10 * time.Millisecond // interval at which a state without a signal is checked
	launchTries       = 5                     // how often a free port may be snatched away
)

// errPortTaken is why a start with a free port is tried again.
var errPortTaken = errors.New("the port was taken")

// gateScript waits for a word before it becomes the program, with the same pid. By then the
// watcher knows the pid, so that at no moment anything runs unwatched; if the parent dies
// first, the word never comes and nothing starts.
const gateScript = `read -r go && exec "$@" </dev/null`

// process is a child and its end.
type process struct {
	cmd      *exec.Cmd
	pid      int
	expected atomic.Bool   // its end was requested
	done     chan struct{} // closed when it has ended
	err      error         // how it ended; read after done
}

// spawn starts a program as the owner, under the eyes of the watcher.
func (s *Server) spawn(ctx context.Context, output *logFile, environment []string, program string, args ...string) (*process, error) {
	cmd := s.owner.command(context.WithoutCancel(ctx), "/bin/sh", append([]string{"-c", gateScript, "sh", program}, args...)...)
	cmd.Env = append(cmd.Env, environment...)
	cmd.Stdout, cmd.Stderr = output.file, output.file
	gate, err := cmd.StdinPipe()
	if err != nil {
		return nil, fmt.Errorf("start %s: %w", filepath.Base(program), err)
	}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("start %s: %w", filepath.Base(program), err)
	}
	p := &process{cmd: cmd, pid: cmd.Process.Pid, done: make(chan struct{})}
	watch := s.watcher
	err = watch.run(p.pid)
	if err == nil {
		_, err = io.WriteString(gate, "go\n")
	}
	err = errors.Join(err, gate.Close())
	go func() {
		defer close(p.done)
		p.err = cmd.Wait()
		if err := watch.idle(); err != nil {
			s.log.Warn("the watcher of PostgreSQL is gone", slog.Any("error", err))
		}
	}()
	if err != nil {
		return nil, errors.Join(fmt.Errorf("start %s: %w", filepath.Base(program), err), p.end(ctx, syscall.SIGKILL))
	}
	return p, nil
}

// end ends the process: with the given signal first, then with stronger ones. The end of the context
// shortens the first wait only, because the process must not survive.
func (p *process) end(ctx context.Context, first syscall.Signal) error {
	p.expected.Store(true)
	begun := false
	for _, step := range []struct {
		signal   syscall.Signal
		patience time.Duration
	}{
		{syscall.SIGINT, fastPatience},
		{syscall.SIGQUIT, immediatePatience},
		{syscall.SIGKILL, killPatience},
	} {
		if begun = begun || step.signal == first; !begun {
			continue
		}
		if step.signal != syscall.SIGINT {
			ctx = context.WithoutCancel(ctx)
		}
		if err := p.cmd.Process.Signal(step.signal); err != nil && !errors.Is(err, os.ErrProcessDone) {
			return fmt.Errorf("signal pid %d: %w", p.pid, err)
		}
		if p.wait(ctx, step.patience) {
			return nil
		}
	}
	return fault.New(fault.Unavailable, fmt.Sprintf("PostgreSQL (pid %d) does not end, not even killed", p.pid),
		fault.Remedy("look at its disk: it may be waiting for it"))
}

// wait reports whether the process ended within its patience.
func (p *process) wait(ctx context.Context, patience time.Duration) bool {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	select {
	case <-p.done:
		return true
	case <-ctx.Done():
		return false
	}
}

// launch starts PostgreSQL on the port, or on a free one if it is 0.
func (s *Server) launch(ctx context.Context, port, foreign int) error {
	for try := 1; ; try++ {
		candidate := port
		if port == 0 {
			var err error
			if candidate, err = freePort(); err != nil {
				return err
			}
		}
		err := s.launchOn(ctx, candidate, foreign)
		if err == nil {
			if s.port != candidate { // readers of the address need no lock: it is written once
				s.port = candidate
			}
			return nil
		}
		if port != 0 || try == launchTries || !errors.Is(err, errPortTaken) {
			return err
		}
	}
}

func (s *Server) launchOn(ctx context.Context, port, foreign int) error {
	begun := time.Now()
	if err := s.writeConfiguration(port); err != nil {
		return err
	}
	output, err := s.openLog()
	if err != nil {
		return err
	}
	defer output.close()
	var environment []string
	if foreign != 0 {
		// PostgreSQL refuses to start while the pid in postmaster.pid lives, unless it is
		// its own family: pg_ctl names its caller this way. Its check of the shared memory,
		// which would find a postmaster after all, stays on.
		environment = append(environment, "PG_GRANDPARENT_PID="+strconv.Itoa(foreign))
	}
	p, err := s.spawn(ctx, output, environment, s.install.program("postgres"), "-D", s.files.data, "-c", "config_file="+s.files.config)
	if err != nil {
		return err
	}
	if err := s.waitReady(ctx, p, port, output); err != nil {
		return errors.Join(err, p.end(ctx, syscall.SIGQUIT))
	}
	s.postmaster = p
	s.pid.Store(int64(p.pid))
	go func() {
		<-p.done
		s.pid.CompareAndSwap(int64(p.pid), 0)
		if !p.expected.Load() {
			s.log.Error("PostgreSQL ended by itself", slog.Int("pid", p.pid), slog.Any("error", p.err), slog.String("log", s.files.log))
		}
	}()
	s.log.Info("PostgreSQL started", slog.String("version", s.install.String()), slog.Int("pid", p.pid),
		slog.Int("port", port), slog.String("dir", s.files.dir), slog.Duration("took", time.Since(begun)))
	return nil
}

// waitReady waits until this postmaster reports that it is ready and its socket answers.
func (s *Server) waitReady(ctx context.Context, p *process, port int, output *logFile) error {
	ctx, cancel := context.WithTimeout(ctx, startPatience)
	defer cancel()
	socket := filepath.Join(s.files.socket, ".s.PGSQL."+strconv.Itoa(port))
	tick := time.NewTicker(pollEvery)
	defer tick.Stop()
	for {
		if file, ok := readPidFile(s.files.data); ok && file.pid == p.pid && file.ready {
			if conn, err := (&net.Dialer{}).DialContext(ctx, "unix", socket); err == nil {
				return conn.Close()
			}
		}
		select {
		case <-tick.C:
		case <-p.done:
			return s.startFault(output.complaint(), port, p.err)
		case <-ctx.Done():
			return fault.New(fault.Unavailable, "PostgreSQL did not get ready in time: "+output.complaint(),
				fault.Remedy("give it more time"), fault.Cause(context.Cause(ctx)))
		}
	}
}

// startFault explains a postmaster that ended before it was ready.
func (s *Server) startFault(why string, port int, cause error) error {
	if strings.Contains(why, "could not create any TCP/IP sockets") {
		return fault.New(fault.Conflict, fmt.Sprintf("port %d on %s is in use", port, loopback),
			fault.Field("port"), fault.Remedy("use another, or 0 for a free one"), fault.Cause(errors.Join(errPortTaken, cause)))
	}
	return fault.New(fault.Unavailable, "PostgreSQL did not start: "+why,
		fault.Remedy("fix the reported problem, such as a setting, in "+s.files.dir), fault.Cause(cause))
}
