// Package devpg runs a private PostgreSQL for development and tests: it finds the server
// binaries, creates a cluster, starts it on 127.0.0.1 and a Unix socket, and removes it when the
// process that started it ends for any reason.
//
// It never changes a PostgreSQL that it did not create, never listens on other addresses
// and never executes SQL. Do not use it in production: every user of the machine
// may log in as the superuser.
package devpg

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"

	"go.arco.dev/servo/internal/base/fault"
)

// superuser is the role that owns the cluster and that URLs log in as.
const superuser = "servo"

// Options are the directory and the settings of a cluster.
type Options struct {
	// Dir is where the cluster lives, with its data, log, socket and lock. It is made if
	// it is missing and kept at Stop. Empty means a throwaway directory, removed at Stop.
	Dir string
	// Memory puts a throwaway directory into memory where there is room for it: files are
	// then made and removed at a fraction of the cost, and a crash of the machine takes all.
	Memory bool
	// Port on 127.0.0.1; 0 takes a free one.
	Port int
	// Settings go to postgresql.conf on top of the defaults, e.g. fsync=off.
	Settings map[string]string
	// Logger receives starts, stops and crashes; nil is silent.
	Logger *slog.Logger
}

// Server is one private PostgreSQL. Its methods may be called from any goroutine.
type Server struct {
	log       *slog.Logger
	settings  map[string]string
	files     layout
	owner     owner
	install   installation
	throwaway bool
	port      int
	pid       atomic.Int64

	mu         sync.Mutex // one start or stop at a time
	lock       *dirLock   // nil after Stop
	watcher    *watcher   // nil after Stop
	postmaster *process   // nil when PostgreSQL is down
}

// Start makes the cluster if there is none, starts PostgreSQL and returns when it takes
// connections. The context bounds the start, not the life of the server.
func Start(ctx context.Context, o Options) (*Server, error) {
	s, err := prepare(ctx, o)
	if err != nil {
		return nil, err
	}
	if err := s.up(ctx, o.Port); err != nil {
		return nil, errors.Join(err, s.letGo())
	}
	return s, nil
}

// prepare decides everything that stays the same for the life of the server.
func prepare(ctx context.Context, o Options) (*Server, error) {
	if err := checkOptions(o); err != nil {
		return nil, err
	}
	logger := o.Logger
	if logger == nil {
		logger = slog.New(slog.DiscardHandler)
	}
	own, err := ownerOf(o.Dir)
	if err != nil {
		return nil, err
	}
	installs, err := systemFinder(own).find(ctx)
	if err != nil {
		return nil, err
	}
	install, err := installs.forCluster(o.Dir)
	if err != nil {
		return nil, err
	}
	parent := ""
	if o.Memory {
		parent = memoryDir(memoryPath, memoryNeeded)
	}
	dir, err := makeDir(o.Dir, parent, own)
	if err != nil {
		return nil, err
	}
	return &Server{
		log:       logger,
		settings:  o.Settings,
		files:     layoutOf(dir),
		owner:     own,
		install:   install,
		throwaway: o.Dir == "",
	}, nil
}

// up takes the directory, clears what an earlier life left in it and starts PostgreSQL.
// What it took when it fails is given back by letGo.
func (s *Server) up(ctx context.Context, port int) error {
	var err error
	if s.lock == nil {
		if s.lock, err = takeLock(s.files.lock); err != nil {
			return err
		}
	}
	if s.watcher == nil {
		if s.watcher, err = startWatcher(s.removedAtEnd()); err != nil {
			return err
		}
	}
	stale, err := s.settle(ctx)
	if err != nil {
		return err
	}
	if err := s.ensureCluster(ctx); err != nil {
		return err
	}
	return s.launch(ctx, port, stale)
}

// removedAtEnd are the directories that do not outlive the server.
func (s *Server) removedAtEnd() []string {
	var dirs []string
	if s.throwaway {
		dirs = append(dirs, s.files.dir)
	}
	if filepath.Dir(s.files.socket) != s.files.dir {
		dirs = append(dirs, s.files.socket)
	}
	return dirs
}

// letGo releases what up acquired: temporary directories, the watcher, the lock. The order ensures
// that the rest has an owner at each moment.
func (s *Server) letGo() error {
	var errs []error
	if s.lock != nil { // without the lock the directory has another owner
		for _, dir := range s.removedAtEnd() {
			errs = append(errs, os.RemoveAll(dir))
		}
	}
	if s.watcher != nil {
		errs = append(errs, s.watcher.dismiss())
		s.watcher = nil
	}
	if s.lock != nil {
		errs = append(errs, s.lock.release())
		s.lock = nil
	}
	return errors.Join(errs...)
}

// URL is where clients connect, through the unix socket; database "" is "postgres".
func (s *Server) URL(database string) string {
	if database == "" {
		database = "postgres"
	}
	u := url.URL{
		Scheme: "postgres",
		User:   url.User(superuser),
		Path:   "/" + database,
		RawQuery: url.Values{
			"host":    {s.files.socket},
			"port":    {strconv.Itoa(s.port)},
			"sslmode": {"disable"},
		}.Encode(),
	}
	return u.String()
}

// TCPAddr is the same server over TCP, as host:port, for proxies in front of it.
func (s *Server) TCPAddr() string {
	return net.JoinHostPort(loopback, strconv.Itoa(s.port))
}

// PID is the postmaster's process id, 0 while PostgreSQL is down.
func (s *Server) PID() int { return int(s.pid.Load()) }

// Stop shuts PostgreSQL down fast and gives the directory back: a throwaway one is removed.
// A context that ends makes it shut down at once instead; nothing is left either way.
// Stopping again does nothing.
func (s *Server) Stop(ctx context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.lock == nil {
		return nil
	}
	if err := s.halt(ctx, syscall.SIGINT); err != nil {
		return err
	}
	// A killed postmaster leaves backends that may still write into the directory.
	if err := endOrphans(context.WithoutCancel(ctx), s.files.data); err != nil {
		return err
	}
	s.log.Info("PostgreSQL stopped", slog.String("dir", s.files.dir))
	return s.letGo()
}

// StopImmediate ends PostgreSQL without a checkpoint, as a crash would: the next start
// recovers. The directory stays, a throwaway one too, until Stop.
func (s *Server) StopImmediate(ctx context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.halt(ctx, syscall.SIGQUIT)
}

// Restart starts PostgreSQL again on the same directory and port, after a stop or a crash.
// A server that still runs is stopped first.
func (s *Server) Restart(ctx context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.lock == nil && s.throwaway {
		return fault.New(fault.Conflict, "this throwaway PostgreSQL was stopped and its data removed",
			fault.Remedy("start a new one, or give Options.Dir to keep the data"))
	}
	if err := s.halt(ctx, syscall.SIGINT); err != nil {
		return err
	}
	fresh := s.lock == nil
	if err := s.up(ctx, s.port); err != nil {
		if fresh { // the caller of Stop does not stop it again
			return errors.Join(err, s.letGo())
		}
		return err
	}
	return nil
}

// halt ends the postmaster, if there is one, beginning with the given signal.
func (s *Server) halt(ctx context.Context, first syscall.Signal) error {
	if s.postmaster == nil {
		return nil
	}
	if err := s.postmaster.end(ctx, first); err != nil {
		return err
	}
	s.postmaster = nil
	s.pid.Store(0)
	return nil
}

// checkOptions refuses what can never work, before anything is touched.
func checkOptions(o Options) error {
	var violations []fault.Violation
	if o.Port < 0 || o.Port > maxPort {
		violations = append(violations, fault.Violation{
			Code: fault.InvalidArgument, Field: "port",
			Message: fmt.Sprintf("%d is no port", o.Port), Remedy: "use 1 to 65535, or 0 for a free one",
		})
	}
	violations = append(violations, checkSettings(o.Settings)...)
	return fault.FromViolations(violations)
}

// Program is the path of a program that came with this PostgreSQL, such as pg_dump.
func (s *Server) Program(name string) string { return s.install.program(name) }

// Log is what PostgreSQL has printed, over all its starts.
func (s *Server) Log() ([]byte, error) { return os.ReadFile(s.files.log) }

// BaseBackup copies the running cluster into a directory, as a standby that follows it once it
// is started there with Options.Dir.
func (s *Server) BaseBackup(ctx context.Context, dir string) error {
	dir, err := makeDir(dir, "", s.owner)
	if err != nil {
		return err
	}
	data := layoutOf(dir).data
	if err := s.owner.makeOwned(data, 0o700); err != nil {
		return err
	}
	cmd := s.owner.command(ctx, s.Program("pg_basebackup"), "--pgdata="+data, "--host="+s.files.socket, "--port="+strconv.Itoa(s.port),
		"--username="+superuser, "--wal-method=stream", "--checkpoint=fast", "--write-recovery-conf")
	if output, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("base backup: %w: %s", err, output)
	}
	return nil
}
