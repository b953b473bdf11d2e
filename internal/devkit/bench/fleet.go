package bench

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strconv"
	"sync"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"

	"go.arco.dev/servo/client"
	"go.arco.dev/servo/internal/devkit/devpg"
)

// fleet is what an installation is made of, each a process of its own: PostgreSQL with
// fsync on, one server, and a worker where a scenario wants one.
type fleet struct {
	executable string
	database   string
	postmaster int
	server     *process
	address    string // of the server's gRPC
	web        string // of its pages
	client     *client.Client
	admin      *pgx.Conn
	undo       []func()
}

// startFleet starts PostgreSQL and a server. Close it, whatever it returns.
func startFleet(ctx context.Context, o TaskOptions) (*fleet, error) {
	f := &fleet{executable: o.Executable}
	pg, err := devpg.Start(ctx, devpg.Options{Settings: settings(), Logger: o.Logger})
	if err != nil {
		return f, err
	}
	f.undo = append(f.undo, func() { _ = pg.Stop(context.WithoutCancel(ctx)) })
	f.database, f.postmaster = pg.URL("postgres"), pg.PID()

	ports, err := freePorts(ctx, 2)
	if err != nil {
		return f, err
	}
	web := ports[0]
	f.address, f.web = ports[1], "http://"+web
	f.server, err = f.start(ctx, "server", "--open", "--rate-trigger", "0", "--rate-list", "0", "--rate-deploy", "0", "--max-streams", "0", "--database", f.database, "--migrate", "--http", web, "--grpc", f.address, "--log-level", "warn")
	if err != nil {
		return f, err
	}
	if err := f.server.waitReady(ctx, f.web+"/readyz"); err != nil {
		return f, err
	}
	if f.admin, err = pgx.Connect(ctx, f.database); err != nil {
		return f, err
	}
	f.undo = append(f.undo, func() { _ = f.admin.Close(context.WithoutCancel(ctx)) })
	if f.client, err = client.New(client.Options{Servers: []string{f.address}}); err != nil {
		return f, err
	}
	f.undo = append(f.undo, func() { _ = f.client.Close() })
	return f, nil
}

// close ends everything in the reverse order.
func (f *fleet) close() {
	for i := len(f.undo) - 1; i >= 0; i-- {
		f.undo[i]()
	}
	f.undo = nil
}

// worker starts a worker process with no-op handlers.
func (f *fleet) worker(ctx context.Context, slots int) (*process, error) {
	return f.start(ctx, "bench", "worker", "--server", f.address, "--slots", strconv.Itoa(slots))
}

// freePorts returns unused loopback addresses.
func freePorts(ctx context.Context, n int) ([]string, error) {
	var (
		addresses []string
		listen    net.ListenConfig
	)
	for range n {
		l, err := listen.Listen(ctx, "tcp", "127.0.0.1:0")
		if err != nil {
			return nil, err
		}
		defer l.Close()
		addresses = append(addresses, l.Addr().String())
	}
	return addresses, nil
}

// process is a child that was started here.
type process struct {
	cmd    *exec.Cmd
	output *tail
	done   chan struct{}
	err    error
}

// start runs this very binary with other arguments, until the fleet is closed.
func (f *fleet) start(ctx context.Context, args ...string) (*process, error) {
	p := &process{cmd: exec.CommandContext(context.WithoutCancel(ctx), f.executable, args...), output: &tail{}, done: make(chan struct{})} //nolint:gosec // our own binary
	p.cmd.Stdout, p.cmd.Stderr = p.output, p.output
	p.cmd.Env = append(os.Environ(), "SERVO_CONFIG="+os.DevNull)
	// A bench that is interrupted from the keyboard ends its children itself.
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := p.cmd.Start(); err != nil {
		return nil, fmt.Errorf("start %s %s: %w", f.executable, args[0], err)
	}
	go func() {
		p.err = p.cmd.Wait()
		close(p.done)
	}()
	f.undo = append(f.undo, p.stop)
	return p, nil
}

// stop asks the process to end and waits; after a while it does not ask any more.
func (p *process) stop() {
	_ = p.cmd.Process.Signal(syscall.SIGTERM) // it may have ended
	select {
	case <-p.done:
	case <-time.After(15 * time.Second):
		_ = p.cmd.Process.Kill()
		<-p.done
	}
}

// waitReady waits until the URL answers well.
func (p *process) waitReady(ctx context.Context, url string) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	for {
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
		if err != nil {
			return err
		}
		if answer, err := http.DefaultClient.Do(request); err == nil {
			_ = answer.Body.Close()
			if answer.StatusCode == http.StatusOK {
				return nil
			}
		}
		select {
		case <-p.done:
			return fmt.Errorf("the server ended: %w\n%s", p.err, p.output)
		case <-ctx.Done():
			return fmt.Errorf("the server does not get ready: %w\n%s", ctx.Err(), p.output)
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// alive returns the reason why a process has ended.
func (p *process) alive() error {
	select {
	case <-p.done:
		return fmt.Errorf("%s ended: %w\n%s", p.cmd.Args[1], errors.Join(p.err, errLostTasks), p.output)
	default:
		return nil
	}
}

// tail keeps the end of the output of a process.
type tail struct {
	mu   sync.Mutex
	text bytes.Buffer
}

const tailLength = 16 << 10

// Write implements io.Writer.
func (t *tail) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.text.Write(p)
	if over := t.text.Len() - tailLength; over > 0 {
		t.text.Next(over)
	}
	return len(p), nil
}

func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.text.String()
}
