package devpg

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"go.arco.dev/servo/internal/base/fault"
)

const (
	// dataName is the data directory inside Options.Dir.
	dataName = "data"
	// unfinishedPrefix begins the names of data directories that initdb still works on.
	unfinishedPrefix = dataName + ".new-"
	// throwawayPattern names throwaway directories.
	throwawayPattern = "servo-pg-"
	// memoryPath is where Linux has files in memory, and memoryNeeded the room that tests ask
	// for: their databases, which come and go, and the write-ahead log.
	memoryPath   = "/dev/shm"
	memoryNeeded = 4 << 30
	// socketPathLimit is the longest path of a unix socket that every system takes: macOS
	// allows 103 bytes, Linux 107.
	socketPathLimit = 103
)

// layout has the paths inside the directory.
type layout struct {
	dir    string // the whole
	data   string // the cluster
	socket string // the directory of the unix socket
	config string // postgresql.conf, written at each start
	log    string // what initdb and postgres print
	lock   string // held by the process that runs the cluster
}

// layoutOf places everything in dir. Only the socket may have to go elsewhere: its path is
// limited. Then it has a name made from dir, so that the next start finds and reuses it.
func layoutOf(dir string) layout {
	files := layout{
		dir:    dir,
		data:   filepath.Join(dir, dataName),
		socket: filepath.Join(dir, "run"),
		config: filepath.Join(dir, "postgresql.conf"),
		log:    filepath.Join(dir, "postgres.log"),
		lock:   filepath.Join(dir, "lock"),
	}
	if len(files.socket)+len("/.s.PGSQL.65535.lock") > socketPathLimit {
		sum := sha256.Sum256([]byte(dir))
		files.socket = filepath.Join("/tmp", throwawayPattern+hex.EncodeToString(sum[:8]))
	}
	return files
}

// makeDir makes the directory, or a throwaway one in parent ("" is where temporary files go),
// and opens it for the owner. Links are resolved, since PostgreSQL's processes are known by
// the real path.
func makeDir(dir, parent string, own owner) (string, error) {
	throwaway := dir == ""
	var err error
	if throwaway {
		dir, err = os.MkdirTemp(parent, throwawayPattern)
	} else if dir, err = filepath.Abs(dir); err == nil {
		err = os.MkdirAll(dir, 0o755) //nolint:gosec // the data below it is closed; this must be passable
	}
	if err == nil {
		dir, err = filepath.EvalSymlinks(dir)
	}
	if err != nil {
		return "", fmt.Errorf("make the directory for PostgreSQL: %w", err)
	}
	if err := own.openPath(dir); err != nil {
		if throwaway {
			err = errors.Join(err, os.Remove(dir))
		}
		return "", err
	}
	return dir, nil
}

// memoryDir is path if files can be made there and enough bytes are free, else "". What is
// there and small, as in containers, is not used: a full one would fail tests that are right.
func memoryDir(path string, needed uint64) string {
	var stat syscall.Statfs_t
	if err := syscall.Statfs(path, &stat); err != nil || stat.Bavail*uint64(stat.Bsize) < needed { //nolint:gosec // a size; its type differs between systems
		return ""
	}
	probe, err := os.MkdirTemp(path, throwawayPattern)
	if err != nil || os.Remove(probe) != nil {
		return ""
	}
	return path
}

// dirLock marks this process as the owner of the cluster of a directory. The kernel releases it
// when the process dies.
type dirLock struct{ file *os.File }

// takeLock locks the directory, or returns a fault that names its owner.
func takeLock(path string) (*dirLock, error) {
	file, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o644) //nolint:gosec // others may read who holds it
	if err != nil {
		return nil, fmt.Errorf("lock the PostgreSQL directory: %w", err)
	}
	if err := syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		holder, readErr := os.ReadFile(path) //nolint:gosec // our own lock file
		err = errors.Join(err, readErr, file.Close())
		who := strings.TrimSpace(string(holder))
		if who == "" {
			who = "another process" // it has the lock and has not yet written its name
		}
		return nil, fault.New(fault.Conflict, "the PostgreSQL in "+filepath.Dir(path)+" is already run by "+who,
			fault.Field("dir"), fault.Remedy("end that process, or use another directory"), fault.Cause(err))
	}
	lock := &dirLock{file: file}
	name := fmt.Sprintf("pid %d (%s)\n", os.Getpid(), filepath.Base(os.Args[0]))
	err = file.Truncate(0)
	if err == nil {
		_, err = file.WriteAt([]byte(name), 0)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("lock the PostgreSQL directory: %w", err), lock.release())
	}
	return lock, nil
}

// release lets others take the directory. The file stays: removing it would let two
// processes lock two files of one name.
func (l *dirLock) release() error { return l.file.Close() }

// removeUnfinished removes the directory of an initdb that was cut off. Its processes may live for
// a moment longer than their parent and write a file while the directory is being removed.
func removeUnfinished(ctx context.Context, dir string) error {
	for try := 1; ; try++ {
		err := os.RemoveAll(dir)
		if err == nil || try == 50 {
			return err
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(100 * time.Millisecond):
		}
	}
}

// settle clears what an earlier life left in the directory, which we hold now: unfinished
// clusters, a postmaster whose parent and watcher are both dead, backends without a
// postmaster, sockets. It never touches postmaster.pid: that is PostgreSQL's own guard, and
// it finds a dead pid by itself. If the pid is that of another live program, it is
// returned, so that PostgreSQL can be started in spite of it.
func (s *Server) settle(ctx context.Context) (foreign int, err error) {
	unfinished, _ := filepath.Glob(filepath.Join(s.files.dir, unfinishedPrefix+"*")) // the pattern is well-formed
	for _, dir := range unfinished {
		if err := removeUnfinished(ctx, dir); err != nil {
			return 0, fmt.Errorf("clear an unfinished cluster: %w", err)
		}
	}
	if left, ok := readPidFile(s.files.data); ok && alive(left.pid) {
		if isPostmaster(ctx, left.pid, s.files.data) {
			s.log.Warn("stopping a PostgreSQL left behind in this directory",
				slog.Int("pid", left.pid), slog.String("dir", s.files.dir))
			if err := stopLeftover(ctx, left.pid, s.files.data); err != nil {
				return 0, err
			}
		} else {
			foreign = left.pid
		}
	}
	if err := endOrphans(ctx, s.files.data); err != nil {
		return 0, err
	}
	return foreign, s.makeSocketDir()
}

// makeSocketDir creates an empty directory for the socket. A directory of another user is not used.
func (s *Server) makeSocketDir() error {
	info, err := os.Lstat(s.files.socket)
	if err == nil {
		holder, ownerErr := statOwner(s.files.socket)
		mine := ownerErr == nil && (holder.uid == s.owner.uid || int64(holder.uid) == int64(os.Geteuid()))
		if !info.IsDir() || !mine {
			return fault.New(fault.Conflict, s.files.socket+" is needed for PostgreSQL's socket and belongs to another user",
				fault.Field("dir"), fault.Remedy("remove it, or use a directory with a shorter path"))
		}
	}
	if err := os.RemoveAll(s.files.socket); err != nil {
		return fmt.Errorf("clear the socket directory: %w", err)
	}
	if err := s.owner.makeOwned(s.files.socket, 0o755); err != nil {
		return fmt.Errorf("make the socket directory: %w", err)
	}
	return nil
}

// ensureCluster makes the cluster if there is none. initdb works under another name and the
// cluster gets its own by one rename: it exists completely or not at all.
func (s *Server) ensureCluster(ctx context.Context) error {
	if _, err := os.Stat(filepath.Join(s.files.data, "PG_VERSION")); err == nil {
		return nil
	}
	if _, err := os.Lstat(s.files.data); err == nil {
		return fault.New(fault.Conflict, s.files.data+" exists and is no PostgreSQL cluster",
			fault.Field("dir"), fault.Remedy("remove it, or use another directory"))
	}
	unfinished, err := os.MkdirTemp(s.files.dir, unfinishedPrefix)
	if err != nil {
		return fmt.Errorf("make a cluster: %w", err)
	}
	if err := s.owner.makeOwned(unfinished, 0o700); err != nil {
		return fmt.Errorf("make a cluster: %w", err)
	}
	if err := s.initdb(ctx, unfinished); err != nil {
		return errors.Join(err, os.RemoveAll(unfinished))
	}
	if err := os.Rename(unfinished, s.files.data); err != nil {
		return fmt.Errorf("make a cluster: %w", err)
	}
	return nil
}

// initdb fills an empty directory with a cluster. Locale C sorts alike on every machine.
func (s *Server) initdb(ctx context.Context, dir string) error {
	args := []string{
		"-D", dir, "--username=" + superuser, "--auth=trust",
		"--encoding=UTF8", "--locale=C", "--no-instructions",
	}
	if s.throwaway {
		args = append(args, "--no-sync")
	}
	output, err := s.openLog()
	if err != nil {
		return err
	}
	defer output.close()
	p, err := s.spawn(ctx, output, nil, s.install.program("initdb"), args...)
	if err != nil {
		return err
	}
	select {
	case <-p.done:
	case <-ctx.Done():
		return errors.Join(fmt.Errorf("make a cluster: %w", context.Cause(ctx)), p.end(ctx, syscall.SIGINT))
	}
	if p.err != nil {
		return fault.New(fault.Unavailable, "initdb of "+s.install.String()+" failed: "+output.complaint(),
			fault.Remedy("see that the disk has room and "+s.files.dir+" can be written"), fault.Cause(p.err))
	}
	return nil
}
