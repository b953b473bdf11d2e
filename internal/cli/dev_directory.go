package cli

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net/url"
	"os"
	"path/filepath"
	"syscall"

	"go.arco.dev/servo/internal/base/fault"
	"go.arco.dev/servo/internal/devkit/devpg"
)

// devMark is the file that marks a directory of servo dev; the running process has it locked.
const (
	devMark = "servo-dev"
	devText = "This directory belongs to servo dev, and servo dev --reset deletes its content.\n"
)

// devHome is the directory that servo dev keeps its database in.
type devHome struct {
	dir  string
	mark *os.File
}

// postgres is where the private PostgreSQL lives.
func (h *devHome) postgres() string { return filepath.Join(h.dir, "postgres") }

// blobs is the URL of the blob store of outputs.
func (h *devHome) blobs() string {
	return (&url.URL{Scheme: "file", Path: filepath.ToSlash(filepath.Join(h.dir, "blobs"))}).String()
}

// lake is where the example cloudcost keeps its files.
func (h *devHome) lake() string { return filepath.Join(h.dir, "cloudcost") }

// defaultDevDir is below the user's own directories. Root's are closed to the user that
// PostgreSQL then runs as.
func defaultDevDir() string {
	if os.Geteuid() == 0 {
		return "/var/lib/servo/dev"
	}
	state := os.Getenv("XDG_STATE_HOME")
	if state == "" {
		home, err := os.UserHomeDir()
		if err != nil {
			return ""
		}
		state = filepath.Join(home, ".local", "state")
	}
	return filepath.Join(state, "servo", "dev")
}

// openDevHome takes a directory: an existing one of servo dev, an empty one, or a new one. It
// is given back by close.
func openDevHome(dir string) (*devHome, error) {
	if dir == "" {
		return nil, dirFault("is missing", "name a directory", nil)
	}
	dir, err := filepath.Abs(dir)
	if err != nil {
		return nil, dirFault(err.Error(), "name a directory", err)
	}
	if err := os.MkdirAll(dir, 0o755); err != nil { //nolint:gosec // PostgreSQL's user must pass
		return nil, dirFault(fmt.Sprintf("cannot create %s: %v", dir, errors.Unwrap(err)), "name another directory", err)
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, dirFault(fmt.Sprintf("cannot read %s: %v", dir, errors.Unwrap(err)), "name another directory", err)
	}
	path := filepath.Join(dir, devMark)
	if _, err := os.Lstat(path); errors.Is(err, fs.ErrNotExist) && len(entries) > 0 {
		return nil, dirFault(dir+" holds something that is not servo dev's", "name an empty directory, or a new one", nil)
	}
	mark, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o644) //nolint:gosec // nothing in it is a secret
	if err != nil {
		return nil, dirFault(fmt.Sprintf("cannot write %s: %v", path, errors.Unwrap(err)), "name another directory", err)
	}
	home := &devHome{dir: dir, mark: mark}
	if err := syscall.Flock(int(mark.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		home.close()
		return nil, fault.New(fault.Conflict, "another servo dev runs in "+dir, fault.Field("--data-dir"),
			fault.Remedy("end it, or name another directory"), fault.Cause(err))
	}
	if _, err := mark.WriteAt([]byte(devText), 0); err != nil {
		home.close()
		return nil, dirFault(fmt.Sprintf("cannot write %s: %v", path, errors.Unwrap(err)), "name another directory", err)
	}
	return home, nil
}

// close lets others have the directory. The kernel does it for who is killed.
func (h *devHome) close() { _ = h.mark.Close() }

// reset removes the database. What an earlier life may have left running there is stopped
// first, by starting and stopping it in order; a database that does not start any more is
// removed in that case too.
func (h *devHome) reset(ctx context.Context, log *slog.Logger) error {
	if _, err := os.Lstat(h.postgres()); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	server, err := devpg.Start(ctx, devpg.Options{Dir: h.postgres(), Logger: log})
	if err == nil {
		err = server.Stop(ctx)
	}
	if err != nil {
		log.Warn("the database that is to be removed did not start and stop in order", slog.Any("error", err))
	}
	if err := os.RemoveAll(filepath.Join(h.dir, "blobs")); err != nil {
		return dirFault("cannot remove the versions of outputs: "+err.Error(), "remove "+h.dir, err)
	}
	if err := os.RemoveAll(h.postgres()); err != nil {
		return dirFault("cannot remove the database: "+err.Error(), "remove "+h.postgres(), err)
	}
	return nil
}

func dirFault(message, remedy string, cause error) error {
	return fault.New(fault.InvalidArgument, message, fault.Field("--data-dir"), fault.Remedy(remedy), fault.Cause(cause))
}
